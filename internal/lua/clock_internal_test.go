package lua

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/redistest"
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

// TestForgedReplies: a peek at a state that is beyond its limit, and blocks that are none.
func TestForgedReplies(t *testing.T) {
	p, err := algo.Limit{Kind: algo.GCRA, N: 5, Per: 1_000_000, Burst: 5}.Params()
	if err != nil {
		t.Fatal(err)
	}
	keys := (&Namer{}).KeysOf(algo.GCRA, "k")
	for _, c := range []struct {
		reply  []int64
		broken bool
	}{
		{[]int64{1_760_000_000_000_000, p.Full()}, false},
		{[]int64{1_760_000_000_000_000, p.Full() + 1}, true},
	} {
		items := []Item{{Keys: keys, Params: NewArgs(p)}}
		if _, _, err := decode(c.reply, items, nil); (err != nil) != c.broken {
			t.Errorf("a level of %d of %d: %v", c.reply[1], p.Full(), err)
		}
	}
	for _, c := range []struct {
		reply []int64
		want  string
	}{{[]int64{5}, ""}, {[]int64{-1}, "does not hold"}, {[]int64{0}, "block [0]"}, {[]int64{-1, 5}, "block [-1 5]"}, {nil, "block []"}} {
		err := (&Block{Keys: keys, Params: NewArgs(p)}).reply(c.reply)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.reply, err, c.want)
		}
	}
}

// TestWritesAreNoPeeks: what is sent without a script may change something.
func TestWritesAreNoPeeks(t *testing.T) {
	for _, c := range []Command{Plain{"DEL", "k"}, &Permits{Items: []PermitItem{{Leave: &Leaver{ID: "k", Key: "k", Caller: "a"}}}}} {
		script, w, peeks := c.request(&Clock{})
		if w.free(); script != nil || peeks {
			t.Errorf("%T: %v, a peek: %v", c, script, peeks)
		}
	}
}

// TestClockOfOthersStays: what says no time by which windows are chosen changes nothing of what is known of the clock.
func TestClockOfOthersStays(t *testing.T) {
	p, err := algo.Limit{Kind: algo.GCRA, N: 5, Per: 1_000_000, Burst: 5}.Params()
	if err != nil {
		t.Fatal(err)
	}
	c, errs := NewClient(redistest.Client(t, redistest.Start(t))), make([]error, 1)
	d := &Decide{Nonce: "n", Items: []Item{{Keys: NewNamer("p").KeysOf(algo.GCRA, "k"), Params: NewArgs(p), Cost: 1}}}
	if c.Do(t.Context(), []Command{d}, errs); errs[0] != nil || c.clock.skew.Load() != 0 {
		t.Errorf("%v, %d µs", errs[0], c.clock.skew.Load())
	}
}
