//go:debug randseednop=0

package sim

import (
	"context"
	"os"
	"runtime"
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
	for range deepStacks {
		go deep()
	}
	os.Exit(m.Run())
}

// deepStacks is how many goroutines do nothing but have a large stack. Go begins a new goroutine
// with a stack as large as the average of what it found in use when it last collected memory. Most
// goroutines of a world wait, with little in use, but each call of go-redis has a goroutine and
// needs 8 KiB: a quarter of the processor time was spent on stacks that grow.
const deepStacks = 300

// deep waits with 12 KiB in use. The largest stack that costs little is one of 16 KiB.
func deep() {
	var used [12 << 10]byte
	keep(&used)
	select {}
}

//go:noinline
func keep(*[12 << 10]byte) {}

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

// running lets a plan live, with or without a trace.
type running func(p Plan, tracing bool) Report

// explain says how to replay a violation, and what led to it.
func explain(log func(format string, args ...any), run running, rep Report) {
	v := rep.Violations[0]
	which := "SIM=1s"
	if os.Getenv("FLEETS") != "" {
		which = "FLEETS=1"
	}
	log("replay: make simulate SEED=%d %s", rep.Plan.Seed, which)
	if os.Getenv("SIM_STOP") != "" {
		return
	}
	log("looking for a smaller plan, for up to a minute")
	small := shrink(run, rep.Plan, v.Promise, 60, time.Minute)
	last := run(small, true)
	if len(last.Violations) == 0 {
		log("the plan: %+v", rep.Plan)
		return
	}
	log("a smaller plan that breaks it, too: %+v", small)
	log("there: %v", last.Violations[0])
	trace := last.Trace
	for i, line := range trace {
		if at, _ := strconv.ParseFloat(strings.Fields(line)[0], 64); at > (last.Violations[0].At + time.Microsecond).Seconds() { // a line has microseconds
			trace = trace[:i]
			break
		}
	}
	for _, line := range trace[max(0, len(trace)-60):] {
		log("%s", line)
	}
}

// shrink looks for a smaller plan that breaks the same promise, in at most so many runs, none of which begins later.
func shrink(run running, p Plan, promise string, runs int, most time.Duration) Plan {
	began := time.Now()
	breaks := func(smaller Plan) bool {
		if runs == 0 || time.Since(began) > most {
			runs = 0
			return false
		}
		runs--
		for _, v := range run(smaller, false).Violations {
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
