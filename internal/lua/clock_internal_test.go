package lua

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// TestClockIsHeard: what is known of the clock of a server changes where it is off by more than a second.
func TestClockIsHeard(t *testing.T) {
	const second = 1_000_000
	var c Clock
	for _, off := range []int64{second / 2, -second / 2} {
		if c.heard(wall() + off); c.skew.Load() != 0 {
			t.Errorf("%d µs off are %d µs", off, c.skew.Load())
		}
	}
	for _, off := range []int64{5 * second, 3600 * second, -3600 * second, -3602 * second, 0} {
		if c.heard(wall() + off); c.skew.Load() < off-second/10 || c.skew.Load() > off+second/10 {
			t.Errorf("%d µs off are %d µs", off, c.skew.Load())
		}
		was := c.skew.Load()
		if c.heard(wall() + off + second/2); c.skew.Load() != was {
			t.Errorf("half a second more than %d µs makes it %d µs", was, c.skew.Load())
		}
	}
	if c.at(7) != 7 {
		t.Error("a time that is said is not that of the command")
	}
}

// TestWhatSaysTheClock: answers on windows of a calendar that were chosen by the clock of the server, and no others.
func TestWhatSaysTheClock(t *testing.T) {
	item := func(p algo.Params) []Item { return []Item{{Params: Args{Params: p}, At: 9}} }
	day := item(algo.Params{Kind: algo.FixedWindow, Calendar: &algo.Calendar{}})
	for _, c := range []struct {
		now   int64
		items []Item
		want  int64
	}{{0, day, 9}, {5, day, 0}, {0, item(algo.Params{Kind: algo.FixedWindow}), 0}, {0, item(algo.Params{Kind: algo.GCRA}), 0}} {
		one, all := Decide{Now: c.now, Items: c.items}, DecideAll{Now: c.now, Of: 1, Items: c.items}
		if one.calendarAt() != c.want || all.calendarAt() != c.want {
			t.Errorf("for %d, %v: %d and %d, want %d", c.now, c.items[0].Params.Kind, one.calendarAt(), all.calendarAt(), c.want)
		}
	}
}

// TestCountsOfSeveralLimits: a request to several limits is one, whatever the count of an item.
func TestCountsOfSeveralLimits(t *testing.T) {
	p, err := algo.Limit{Kind: algo.GCRA, N: 5, Per: 1_000_000, Burst: 5}.Params()
	if err != nil {
		t.Fatal(err)
	}
	d := DecideAll{Nonce: "n", Of: 1, Items: []Item{{Keys: (&Namer{}).KeysOf(algo.GCRA, "k"), Params: NewArgs(p), Cost: 1, Count: 3}}}
	_, w, _ := d.request(&Clock{})
	w.free()
	if d.Items[0].Count != 1 {
		t.Errorf("%d", d.Items[0].Count)
	}
}
