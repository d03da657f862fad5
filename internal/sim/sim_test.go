//go:debug randseednop=0

package sim

import (
	"context"
	"fmt"
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

// wishes are what is to be simulated.
type wishes struct {
	seed         uint64        // the first one, by SEED
	length       time.Duration // by SIM, 0 where it is not said
	fleets, runs int           // by FLEETS and RUNS, the same
}

// read reads them from variables of the environment.
func read(env func(name string) string) (w wishes, err error) {
	w.seed = 1
	if s := env("SEED"); s != "" {
		if w.seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			return w, fmt.Errorf("SEED is %q: must be a number, and at least 0", s)
		}
	}
	if s := env("SIM"); s != "" {
		if w.length, err = time.ParseDuration(s); err != nil || w.length <= 0 {
			return w, fmt.Errorf("SIM is %q: must be a duration such as 10m, and above 0", s)
		}
	}
	for name, n := range map[string]*int{"FLEETS": &w.fleets, "RUNS": &w.runs} {
		if s := env(name); s != "" {
			if *n, err = strconv.Atoi(s); err != nil || *n < 1 {
				return w, fmt.Errorf("%s is %q: must be a number, and at least 1", name, s)
			}
		}
	}
	return w, nil
}

func wanted(t *testing.T) wishes {
	t.Helper()
	w, err := read(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestWishes: what cannot be simulated is an error, and not what is simulated by default.
func TestWishes(t *testing.T) {
	for name, bad := range map[string][]string{
		"SEED": {"x", "-1", "1.5"}, "SIM": {"x", "10", "0", "-1m"}, "FLEETS": {"x", "0", "-1"}, "RUNS": {"x", "0", "-1"},
	} {
		for _, value := range bad {
			_, err := read(func(n string) string { return map[string]string{name: value}[n] })
			if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("%s is %q: must be", name, value)) {
				t.Errorf("%s=%s: %v", name, value, err)
			}
		}
	}
	for _, c := range []struct {
		of   map[string]string
		want wishes
	}{
		{nil, wishes{seed: 1}},
		{map[string]string{"SEED": "0", "SIM": "10m", "FLEETS": "3", "RUNS": "2"}, wishes{0, 10 * time.Minute, 3, 2}},
	} {
		if w, err := read(func(n string) string { return c.of[n] }); err != nil || w != c.want {
			t.Errorf("%v: %+v, %v", c.of, w, err)
		}
	}
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
