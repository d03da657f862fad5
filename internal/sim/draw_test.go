package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// TestEverythingIsDrawn: of so many seeds each fault, each answer of a server that rejects, each shape and each
// way in which a fleet changes is drawn, or what docs/simulation.md says would be of fewer fleets than it seems.
func TestEverythingIsDrawn(t *testing.T) {
	seen := map[string]int{}
	note := func(ok bool, what string) {
		if ok {
			seen[what]++
		}
	}
	for seed := range uint64(400) {
		p := DrawShort(seed)
		seen[p.Shape.String()]++
		for _, f := range p.Faults {
			seen[f.Kind.String()]++
			seen[f.Text]++
			note(f.Of != nil, "a fault of some processes")
			note(f.Kind == ClockSteps && f.By > 12*time.Hour, "a clock steps by half a day")
			note(f.Kind == ClockSteps && f.By < -12*time.Hour, "a clock steps back by half a day")
		}
		for _, l := range p.Leaves {
			note(l.Crash, "a crash")
			note(!l.Crash, "a close")
		}
		note(len(p.Joins) > 0, "a process that joins")
		note(len(p.Changes) > 0, "a limit that changes")
		note(p.Varied > 0, "calls of all kinds")
		note(p.Looks > 0, "peeks")
		note(p.Waits > 0, "waits")
		note(p.Hasty > 0, "callers that leave")
		note(p.Traffic.Skew > 0 && p.Traffic.Skew != 1, "skewed keys")
		note(p.Traffic.Moves > 0, "keys that move")
		note(p.Traffic.Ranks > 0, "Zipf's law over processes")
		note(p.Traffic.Burst > 0, "bursts")
		note(p.Traffic.Beat > 0, "callers at the same moments")
		note(len(p.Permits) > 0, "permits")
		note(p.Host.Limit > 0, "a host")
		note(p.Sampled.Keys > 0, "a sampled limiter")
		note(p.Options.LocalKeys > 0, "a small memory")
		for _, l := range p.Limits {
			seen[l.Algorithm()]++
			note(l.Lease > 0, "leases")
			note(l.Parts > 1, "split keys")
			note(l.Headroom > 0, "headroom")
			note(l.Unit != 0, "a calendar")
		}
	}
	want := slices.Concat([]string{
		"a fault of some processes", "a clock steps by half a day", "a clock steps back by half a day", "a crash", "a close",
		"a process that joins", "a limit that changes", "calls of all kinds", "peeks", "waits", "callers that leave", "skewed keys",
		"keys that move", "Zipf's law over processes", "bursts", "callers at the same moments", "permits", "a host",
		"a sampled limiter", "a small memory", "leases", "split keys", "headroom", "a calendar",
	}, rejections, writeRejections)
	for k := range faultKinds {
		want = append(want, k.String())
	}
	for s := range Ring + 1 {
		want = append(want, s.String())
	}
	for _, k := range algo.Kinds {
		want = append(want, k.String())
	}
	for _, what := range want {
		if seen[what] == 0 {
			t.Errorf("never drawn: %s", what)
		}
	}
}
