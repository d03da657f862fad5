//go:debug randseednop=0

package sim

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	runtime.GOMAXPROCS(1) // so that what happens at one time happens in one order
	os.Exit(m.Run())
}

// wanted is the first seed and for how long fleets are simulated, by SEED and SIM.
func wanted(t *testing.T) (seed uint64, length time.Duration) {
	t.Helper()
	seed = 1
	if s := os.Getenv("SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("SEED is %q: must be a number", s)
		}
		seed = n
	}
	if s := os.Getenv("SIM"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatalf("SIM is %q: must be a duration such as 10m", s)
		}
		length = d
	}
	return seed, length
}

// TestSimulate runs one fleet after the other for as long as SIM says, by default 6 fleets
// and a simulated day at least, from the seed SEED, and stops at the first that breaks a promise. Its last line is what
// make simulate prints.
func TestSimulate(t *testing.T) {
	seed, length := wanted(t)
	sum, shaped := Report{Faults: map[string]int{}, Redirects: map[string]int{}}, map[string]int{}
	began, shown, worlds, fleets := time.Now(), time.Now(), 0, time.Duration(0)
	more := func() bool {
		switch {
		case worlds == 0:
			return true
		case t.Failed() || testing.Short():
			return false
		case length > 0:
			return time.Since(began) < length
		}
		return worlds < 6 || fleets < 24*time.Hour
	}
	for more() {
		plan := Draw(seed)
		seed++
		rep := Run(t, plan, false)
		worlds++
		fleets += plan.Life
		sum.Decisions += rep.Decisions
		sum.Checks += rep.Checks
		shaped[plan.Shape.String()]++
		for k, n := range rep.Faults {
			sum.Faults[k] += n
		}
		for k, n := range rep.Redirects {
			sum.Redirects[k] += n
		}
		if len(rep.Violations) > 0 {
			t.Errorf("seed %d: %v", plan.Seed, rep.Violations[0])
			explain(t, rep)
		}
		if time.Since(shown) > 10*time.Second {
			shown = time.Now()
			fmt.Printf("%d fleets, %.1f fleet-hours, %d decisions\n", worlds, fleets.Hours(), sum.Decisions)
		}
	}
	took := time.Since(began)
	fmt.Printf("%d fleets from seed %d to %d, %.1f fleet-hours, %d decisions, %d checks in %v (%.2g s per fleet-hour)\nfleets: %s\nfaults: %s\nredirects: %s\n",
		worlds, seed-uint64(worlds), seed-1, fleets.Hours(), sum.Decisions, sum.Checks, took.Round(time.Second), took.Seconds()/fleets.Hours(), counted(shaped), counted(sum.Faults), counted(sum.Redirects))
}

// counted lists counts by name.
func counted(counts map[string]int) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%s %d", k, counts[k]))
	}
	return strings.Join(all, ", ")
}

// explain prints how to replay a violation, and what led to it.
func explain(t *testing.T, rep Report) {
	v := rep.Violations[0]
	t.Logf("replay: make simulate SEED=%d SIM=1s", rep.Plan.Seed)
	if os.Getenv("SIM_STOP") != "" {
		return
	}
	small := shrink(t, rep.Plan, v.Promise, 60)
	last := Run(t, small, true)
	if len(last.Violations) == 0 {
		t.Logf("the plan: %+v", rep.Plan)
		return
	}
	t.Logf("a smaller plan that breaks it, too: %+v", small)
	t.Logf("there: %v", last.Violations[0])
	trace := last.Trace
	for i, line := range trace {
		if at, _ := strconv.ParseFloat(strings.Fields(line)[0], 64); at > last.Violations[0].At.Seconds() {
			trace = trace[:i]
			break
		}
	}
	for _, line := range trace[max(0, len(trace)-60):] {
		t.Log(line)
	}
}

// shrink looks for a smaller plan that breaks the same promise, in at most so many runs.
func shrink(t *testing.T, p Plan, promise string, runs int) Plan {
	breaks := func(smaller Plan) bool {
		if runs == 0 {
			return false
		}
		runs--
		for _, v := range Run(t, smaller, false).Violations {
			if v.Promise == promise {
				return true
			}
		}
		return false
	}
	for again := true; again && runs > 0; {
		again = false
		for _, smaller := range p.smaller() {
			if breaks(smaller) {
				p, again = smaller, true
				break
			}
		}
	}
	return p
}
