//go:build !race

package sim

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// mostAllocations is how many allocations a decision of the fleets of each push may take, with all that
// happens around it: what keeps the simulator fast enough, where time itself is not measured.
const mostAllocations = 120

// TestSimulate runs one fleet after the other for as long as SIM says, by default 6 fleets
// and a simulated day at least, or as many fleets with few decisions as FLEETS says, from the
// seed SEED, and stops at the first that breaks a promise. Its last line is what make simulate
// prints.
func TestSimulate(t *testing.T) {
	wish := wanted(t)
	seed, length, short := wish.seed, wish.length, wish.fleets
	sum, shaped := Report{Faults: map[string]int{}, Redirects: map[string]int{}}, map[string]int{}
	began, shown, worlds, fleets := time.Now(), time.Now(), 0, time.Duration(0)
	usual := seed == 1 && length == 0 && short == 0 && !testing.Short() // one fleet alone has few decisions
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	more := func() bool {
		switch {
		case worlds == 0:
			return true
		case t.Failed() || testing.Short():
			return false
		case short > 0:
			return worlds < short
		case length > 0:
			return time.Since(began) < length
		}
		return worlds < 6 || fleets < 24*time.Hour
	}
	for more() {
		plan := Draw(seed)
		if short > 0 {
			plan = DrawShort(seed)
		}
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
		sum.Violations = append(sum.Violations, rep.Violations...)
		if len(rep.Violations) > 0 {
			t.Errorf("seed %d: %v", plan.Seed, rep.Violations[0])
			now := func(format string, args ...any) { fmt.Printf(format+"\n", args...) } // while a smaller plan is looked for
			now("seed %d: %v", plan.Seed, rep.Violations[0])
			explain(now, func(p Plan, tracing bool) Report { return Run(t, p, tracing) }, rep)
		}
		if time.Since(shown) > 10*time.Second {
			shown = time.Now()
			fmt.Printf("%s, %.1f fleet-hours, %d decisions\n", countOf(worlds, "fleet"), fleets.Hours(), sum.Decisions)
		}
	}
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	each := float64(after.Mallocs-before.Mallocs) / float64(sum.Decisions)
	if !t.Failed() { // else it counts those of a smaller plan
		t.Logf("%.0f allocations for each decision", each)
	}
	if usual && each > mostAllocations && !t.Failed() {
		t.Errorf("at most %d allocations for each decision are allowed", mostAllocations)
	}
	fmt.Printf("%s from seed %d to %d, %.1f fleet-hours, %d decisions, %d checks, %s in %v (%.2g s per fleet-hour)\nfleets: %s\nfaults: %s\nredirects: %s\n",
		countOf(worlds, "fleet"), seed-uint64(worlds), seed-1, fleets.Hours(), sum.Decisions, sum.Checks, countOf(len(sum.Violations), "violation"), took.Round(time.Second), took.Seconds()/fleets.Hours(), counted(shaped), counted(sum.Faults), counted(sum.Redirects))
}

// countOf is how many of a thing there are.
func countOf(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// counted lists counts by name, or says that there are none.
func counted(counts map[string]int) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%s %d", k, counts[k]))
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

// TestServersRedirect: servers of a cluster answer as real ones do where they do not have the
// keys, so that the worlds in which they are clusters hold what they seem to.
func TestServersRedirect(t *testing.T) {
	limits := []Limit{{Limit: limiter.GCRA(limiter.PerSecond(100), 50)}, {Limit: limiter.GCRA(limiter.PerMinute(600), 300)}}
	seen := map[string]int{}
	for _, shape := range []Shape{OneShard, Cluster, WrappedCluster} {
		p := Plan{
			Seed: 1, Shape: shape, Processes: 4, Callers: 4, Keys: 4, Limits: limits, Life: 2 * time.Minute, Think: 30 * time.Millisecond,
			Faults: []Fault{{Kind: FailedOver, At: 60 * time.Second, For: 10 * time.Second, On: 1}},
		}
		for i := range shape.servers() - 1 {
			p.Faults = append(p.Faults, Fault{Kind: Migrated, At: time.Duration(20+20*i) * time.Second, For: 10 * time.Second, On: i})
		}
		if shape == OneShard { // callers of several keys share a command when many are in flight
			p.Callers, p.Life = 16, time.Minute
			p.Faults = []Fault{{Kind: Sluggish, At: 20 * time.Second, For: 2 * time.Second, By: time.Millisecond}}
		}
		rep := Run(t, p, false)
		for _, v := range rep.Violations {
			t.Errorf("%v: %v", shape, v)
		}
		for word, n := range rep.Redirects {
			seen[word] += n
		}
	}
	for _, word := range []string{"MOVED", "ASK", "TRYAGAIN", "CROSSSLOT"} {
		if seen[word] == 0 {
			t.Errorf("no server answered %s: %v", word, seen)
		}
	}
}
