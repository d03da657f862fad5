package lua

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// TestNumbersOfNoState: for each algorithm the greatest numbers that a state can lead to, and the next ones, which a state
// was forged for.
func TestNumbersOfNoState(t *testing.T) {
	const now, den, most = 1_760_000_000_000_000, 1_000_000, algo.MaxExact
	item := func(kind algo.Kind, cost, count int64) Item {
		p, err := algo.Limit{Kind: kind, N: 10, Per: den, Burst: 10}.Params()
		if err != nil {
			t.Fatal(err)
		}
		return Item{Keys: NewNamer("p").KeysOf(kind, "k"), Params: NewArgs(p), Cost: cost, Count: count}
	}
	fw, swc, swl, gcra, lbs := algo.FixedWindow, algo.SlidingWindowCounter, algo.SlidingWindowLog, algo.GCRA, algo.LeakyBucketShaping
	for i, c := range []struct {
		kind        algo.Kind
		cost, count int64
		v           []int64 // after the time
		ok          bool
	}{
		{fw, 1, 1, []int64{1}, true}, {fw, 1, 1, []int64{0}, false}, {fw, 1, 1, []int64{most}, true}, {fw, 1, 1, []int64{most + 1}, false}, {fw, 0, 1, []int64{0}, true},
		{fw, 1, 1, []int64{1, 1, markEnds, 1}, true}, {fw, 1, 1, []int64{1, 1, markEnds, 0}, false}, {fw, 1, 1, []int64{1, 1, markEnds, 2 * den}, true}, {fw, 1, 1, []int64{1, 1, markEnds, 2*den + 1}, false},
		{swl, 1, 1, []int64{1, 5, 0, 1, markEnds, 1}, false}, {gcra, 1, 1, []int64{100_000, 1, markEnds, 1}, false},
		{fw, 1, 1, []int64{-1 - 10, 1, markBlocked, 1}, true}, {fw, 1, 1, []int64{-1 - 10, 1, markBlocked, 0}, false}, {fw, 1, 1, []int64{-1 - 10, 1, markBlocked, most}, true},
		{fw, 1, 1, []int64{-1 - 10, 1, markBlocked, most + 1}, false}, {fw, 1, 1, []int64{1, 1, markBlocked, 1}, false},
		{fw, 1, 3, []int64{10, 1, markPartly, 1}, true}, {fw, 1, 3, []int64{10, 1, markPartly, 2}, true}, {fw, 1, 3, []int64{10, 1, markPartly, 3}, false}, {fw, 1, 3, []int64{10, 1, markPartly, 0}, false},
		{fw, 1, 3, []int64{-1 - 10, 1, markPartly, 1}, false}, {fw, 1, 3, []int64{3}, true}, {fw, 1, 3, []int64{2}, false}, {fw, 4, 2, []int64{8}, true}, {fw, 4, 2, []int64{7}, false},
		{fw, 1, 1, []int64{1, 2, markEnds, 1}, false}, {fw, 1, 1, []int64{1, 1, markEnds}, false}, {fw, 1, 1, []int64{1, 1, markElsewhen, 1}, false}, {fw, 1, 1, []int64{1, 1, markElsewhen + 1, 1}, false},
		{swc, 1, 1, []int64{1, 0}, true}, {swc, 1, 1, []int64{1, -1}, false}, {swc, 1, 1, []int64{1, most / den}, true}, {swc, 1, 1, []int64{1, most/den + 1}, false}, {swc, 1, 1, []int64{1}, false},
		{swl, 1, 1, []int64{1, 0, 0}, true}, {swl, 1, 1, []int64{1, most, 0}, true}, {swl, 1, 1, []int64{1, most + 1, 0}, false}, {swl, 1, 1, []int64{1, -1, 0}, false},
		{swl, 1, 1, []int64{-1 - 10, 5, most}, true}, {swl, 1, 1, []int64{-1 - 10, 5, most + 1}, false}, {swl, 1, 1, []int64{-1 - 10, 5, 0}, false}, {swl, 1, 1, []int64{-1 - 10, 5, -1}, false},
		{gcra, 1, 1, []int64{10 * 100_000}, true}, {gcra, 1, 1, []int64{10*100_000 + 1}, false}, {gcra, 1, 1, []int64{100_000}, true}, {gcra, 1, 1, []int64{99_999}, false}, {gcra, 1, 1, []int64{-1 - 10*100_000}, true},
		{lbs, 1, 1, []int64{100_000}, true}, {lbs, 1, 1, []int64{10*100_000 + 1}, false},
	} {
		items := []Item{item(c.kind, c.cost, c.count)}
		at, out, err := decode(append([]int64{now}, c.v...), items, nil)
		var reply *ReplyError
		if (err == nil) != c.ok || err != nil && !errors.As(err, &reply) {
			t.Errorf("%d: %v of %v: %v, %v", i, c.v, c.kind, out, err)
		}
		if c.ok && (at != now || len(out) != 1 || items[0].At != now || out[0].Allowed != (items[0].Admitted > 0) || items[0].Broken) {
			t.Errorf("%d: %v of %v: %+v of %+v", i, c.v, c.kind, out, items[0])
		}
		if !c.ok && len(out) == 1 && items[0].Broken && (items[0].Admitted != 0 || out[0] != algo.Decision{}) {
			t.Errorf("%d: %v of %v: %+v of %+v", i, c.v, c.kind, out, items[0])
		}
	}
}

// TestMarksOfSeveral: what is special is said of the items that it is said of, and no other.
func TestMarksOfSeveral(t *testing.T) {
	const now = 1_760_000_000_000_000
	items := []Item{gcraItem(), gcraItem(), gcraItem()}
	items[1].Count = 4
	_, out, err := decode([]int64{now, -1 - 1_000_000, 1_000_000, 100_000, 1, markBlocked, 7_000_000, 2, markPartly, 3}, items, nil)
	if err != nil || items[0].Admitted != 0 || items[1].Admitted != 3 || items[2].Admitted != 1 || out[0].RetryAfter != 7_000_000 || out[1].RetryAfter != 100_000 || !out[1].Allowed || out[2].Remaining != 9 {
		t.Errorf("%+v, %v, %+v", out, err, items)
	}
	// Broken is one alone.
	_, out, err = decode([]int64{now, 100_000, 0, 100_000, 2, markBroken, 0}, items, nil)
	if err == nil || items[0].Broken || !items[1].Broken || items[2].Broken || !out[0].Allowed || out[1].Allowed || !out[2].Allowed {
		t.Errorf("%+v, %v, %+v", out, err, items)
	}
	// Of requests of two each, the first was denied although there was room for its first item.
	d := DecideAll{Of: 2, Items: []Item{gcraItem(), gcraItem(), gcraItem(), gcraItem()}}
	if err := d.reply([]int64{now, 0, 300_000, -1 - 1_000_000, 1, 100_000, 200_000}); err != nil || !d.Charged() {
		t.Errorf("%v", err)
	}
	for i, want := range []algo.Decision{
		{Allowed: true, Remaining: 7, ResetAfter: 300_000}, {RetryAfter: 100_000, ResetAfter: 1_000_000},
		{Allowed: true, Remaining: 9, ResetAfter: 100_000}, {Allowed: true, Remaining: 8, ResetAfter: 200_000},
	} {
		if d.Out[i] != want {
			t.Errorf("%d: %+v, want %+v", i, d.Out[i], want)
		}
	}
}
