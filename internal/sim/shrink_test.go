package sim

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// full is a plan that has one of everything that can be left out.
func full() Plan {
	return Plan{
		Seed: 7, Shape: Sentinel, Processes: 3, Callers: 2, Keys: 2,
		Limits: []Limit{
			{Limit: limiter.GCRA(limiter.PerSecond(20), 10), Lease: 2, Age: 100 * time.Millisecond},
			{Limit: limiter.FixedWindow(limiter.PerSecond(9)), Parts: 3},
		},
		Permits: []Permits{{2, 2 * time.Second}}, Life: time.Minute, Think: 200 * time.Millisecond, Looks: 0.1, Varied: 0.1,
		Traffic: Traffic{Burst: 2},
		Faults: []Fault{
			{Kind: Refused, At: 10 * time.Second, For: time.Second, Of: []int{2}},
			{Kind: Frozen, At: 20 * time.Second, For: time.Second},
			{Kind: Flushed, At: 25 * time.Second},
		},
		Joins: []time.Duration{15 * time.Second}, Leaves: []Leave{{At: 30 * time.Second, Process: 1}},
		Changes: []Change{{At: 12 * time.Second, Of: 1, To: limiter.FixedWindow(limiter.PerSecond(6))}},
		Host:    Host{Limit: 9, Window: 5 * time.Second}, Options: options{LocalKeys: 3},
		Sampled: Sampled{Rate: limiter.PerSecond(9), Interval: time.Second, Keys: 2, TopKeys: 2, LocalKeys: 2},
	}
}

// planted is a run of which a promise is broken at 40 s whenever a server freezes.
func planted(p Plan, tracing bool) Report {
	rep := Report{Plan: p}
	if !slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == Frozen }) {
		rep.Violations = []Violation{{Promise: "another", At: time.Second}}
		return rep
	}
	rep.Violations = []Violation{{Promise: "planted", At: 40*time.Second + 600, What: "it is"}}
	for i := range 100 {
		if tracing {
			rep.Trace = append(rep.Trace, fmt.Sprintf("%12.6f line", float64(i)+600e-9))
		}
	}
	return rep
}

// TestViolationsAreExplained: by the command that replays them, by what is left of the plan when all is gone
// that does not matter, and by a trace that ends at the violation.
func TestViolationsAreExplained(t *testing.T) {
	for fleets, want := range map[string]string{"": "replay: make simulate SEED=7 SIM=1s", "50": "replay: make simulate SEED=7 FLEETS=1"} {
		t.Setenv("FLEETS", fleets)
		t.Setenv("SIM_STOP", "")
		var lines []string
		explain(func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }, planted, planted(full(), false))
		if len(lines) < 10 || lines[0] != want || !strings.Contains(lines[3], "planted at 40.0000006s: it is") {
			t.Fatalf("%q", lines)
		}
		if first, last := lines[4], lines[len(lines)-1]; first != "    0.000001 line" || last != "   40.000001 line" {
			t.Errorf("the trace is from %q to %q", first, last)
		}
	}
	small := shrink(planted, full(), "planted", 1000, time.Hour)
	if p := shrink(planted, full(), "planted", 1000, -1); fmt.Sprint(p) != fmt.Sprint(full()) {
		t.Errorf("no time is left, and there is %+v", p)
	}
	least := Plan{
		Seed: 7, Processes: 1, Callers: 1, Keys: 2, Limits: []Limit{{Limit: full().Limits[0].Limit}}, Life: time.Minute, Think: 200 * time.Millisecond,
		Faults: full().Faults[1:2], Permits: []Permits{}, Joins: []time.Duration{}, Leaves: []Leave{}, Changes: []Change{},
	}
	if fmt.Sprintf("%+v", small) != fmt.Sprintf("%+v", least) {
		t.Errorf("what is left is %+v, not %+v", small, least)
	}
}

// TestSmallerPlansLive: what the shrinker tries are plans, each with one thing less.
func TestSmallerPlansLive(t *testing.T) {
	whole := full()
	whole.Faults = nil // those that are left out are what the test above is about
	fields := map[string]bool{}
	for _, p := range append(whole.smaller(), full().smaller()...) {
		for i := range reflect.TypeFor[Plan]().NumField() {
			if fmt.Sprintf("%+v", reflect.ValueOf(p).Field(i)) != fmt.Sprintf("%+v", reflect.ValueOf(full()).Field(i)) {
				fields[reflect.TypeFor[Plan]().Field(i).Name] = true
			}
		}
		p.Life = min(p.Life, 32*time.Second) // after the last thing that happens
		for _, v := range Run(t, p, false).Violations {
			t.Errorf("%v in %+v", v, p)
		}
	}
	for _, name := range []string{"Shape", "Callers", "Limits", "Permits", "Looks", "Varied", "Traffic", "Faults", "Joins", "Leaves", "Changes", "Host", "Sampled", "Options"} {
		if !fields[name] {
			t.Errorf("nothing is tried without %s", name)
		}
	}
}
