package algo

import (
	"reflect"
	"testing"
)

// TestWindowsAndClocks: a clock that steps back by up to a window stays in the window that
// has begun; one that steps further begins anew with what was counted.
func TestWindowsAndClocks(t *testing.T) {
	const w = 1000
	start := int64(t0 - t0%w)
	for _, kind := range []Kind{FixedWindow, SlidingWindowCounter} {
		p := Params{Kind: kind, Cap: 10, Num: 1, Den: w}
		var s State
		if d := Step(p, &s, start+w, 0); d.ResetAfter != 0 || d.Remaining != 10 || !reflect.DeepEqual(s, State{}) {
			t.Errorf("%v, never used: %+v, %+v", kind, d, s)
		}
		one := s
		if d := Step(p, &one, start+w, 1); d.ResetAfter == 0 || one.Birth != start+w {
			t.Errorf("%v, one unit: %+v, %+v", kind, d, one)
		}
		extra := map[Kind]int64{FixedWindow: 0, SlidingWindowCounter: w}[kind]
		Step(p, &s, start+w, 8)
		for _, now := range []int64{start + w - 1, start + 1, start} {
			c := s
			if d := Step(p, &c, now, 3); d.Allowed || d.Remaining != 2 || d.ResetAfter != start+2*w+extra-now {
				t.Errorf("%v, %d before: %+v", kind, start+w-now, d)
			}
			if d := Step(p, &c, now, 2); !d.Allowed || c.At != start+2*w {
				t.Errorf("%v, %d before: %+v, %+v", kind, start+w-now, d, c)
			}
		}
		c := s
		d := Step(p, &c, start-1, 3)
		if kind == FixedWindow {
			if d.Allowed || d.RetryAfter != 1 || c.At != start || c.V != 8 {
				t.Errorf("%v, far before: %+v, %+v", kind, d, c)
			}
		} else if d.Allowed || c.At != start+w || c.V != 8 {
			t.Errorf("%v, far before: %+v, %+v", kind, d, c)
		}
		c = s
		if Step(p, &c, start-1, 0); !reflect.DeepEqual(c, s) {
			t.Errorf("%v: a look changes %+v to %+v", kind, s, c)
		}
	}
}

// TestCounterOfTheWindowBefore: it counts as the part of it that is still covered, and is
// cut where a product would leave 2^53.
func TestCounterOfTheWindowBefore(t *testing.T) {
	const w = 1000
	start := int64(t0 - t0%w)
	p := Params{Kind: SlidingWindowCounter, Cap: 10, Num: 1, Den: w}
	s := State{At: start, V: 1, Birth: 5}
	if d := Step(p, &s, start+1, 0); d.Remaining != 9 || d.ResetAfter != w-1 {
		t.Errorf("%+v", d)
	}
	if Step(p, &s, start+1, 1); s.V != 1 || s.W != 1 {
		t.Errorf("%+v", s)
	}
	s = State{At: start - w, V: 9, W: 9, Birth: 5}
	if Step(p, &s, start+1, 1); s.V != 1 || s.W != 0 {
		t.Errorf("%+v", s)
	}
	wide := Params{Kind: SlidingWindowCounter, Cap: 1, Num: 1, Den: MaxExact / 4}
	at := wide.Den * 3
	for _, c := range []struct{ v, w, retry int64 }{{1, 1 << 40, 2*wide.Den - 5}, {0, 1 << 40, wide.Den - 5}, {1 << 40, 0, 2*wide.Den - 5}} {
		s = State{At: at + wide.Den, V: c.v, W: c.w}
		if d := Step(wide, &s, at+5, 1); d.Allowed || d.RetryAfter != c.retry {
			t.Errorf("%d and %d before: %+v", c.v, c.w, d)
		}
	}
}

// TestLogIsSwept: a step takes out as many units that have left as it adds, and 100 more, the
// oldest first; all of them when there are no more.
func TestLogIsSwept(t *testing.T) {
	p := Params{Kind: SlidingWindowLog, Cap: 1000, Num: 1, Den: 100}
	old := State{Log: []Cell{{t0 - 300, 50}, {t0 - 200, 60}, {t0 - 150, 1}, {t0 - 100, 200}, {t0 - 99, 5}}, V: 316}
	for _, c := range []struct {
		n    int64
		want []Cell
		v    int64
	}{
		{0, old.Log, 316},
		{1, []Cell{{t0 - 200, 9}, {t0 - 150, 1}, {t0 - 100, 200}, {t0 - 99, 5}, {t0, 1}}, 216},
		{10, []Cell{{t0 - 150, 1}, {t0 - 100, 200}, {t0 - 99, 5}, {t0, 10}}, 216},
		{11, []Cell{{t0 - 100, 200}, {t0 - 99, 5}, {t0, 11}}, 216},
		{210, []Cell{{t0 - 100, 1}, {t0 - 99, 5}, {t0, 210}}, 216},
		{211, []Cell{{t0 - 99, 5}, {t0, 211}}, 216},
		{995, []Cell{{t0 - 99, 5}, {t0, 995}}, 1000},
		{996, old.Log, 316},
	} {
		s := old.clone()
		d := Step(p, &s, t0, c.n)
		if d.Allowed != (c.n <= 995) || s.V != c.v || !reflect.DeepEqual(s.Log, c.want) {
			t.Errorf("%d more: %+v, %+v", c.n, d, s)
		}
		if d.Allowed && d.Remaining != 995-c.n {
			t.Errorf("%d more: %d remain", c.n, d.Remaining)
		}
	}
	if old.Log[1].V != 60 || old.Log[3].V != 200 {
		t.Errorf("a copy was changed: %+v", old)
	}
}

// TestLogAndClocks: what was taken before the clock stepped back counts for a window from
// now at most, and the log stays in order.
func TestLogAndClocks(t *testing.T) {
	p := Params{Kind: SlidingWindowLog, Cap: 10, Num: 1, Den: 100}
	s := State{Log: []Cell{{t0, 4}, {t0 + 50, 3}}, V: 7}
	c := s.clone()
	if d := Step(p, &c, t0+20, 2); !d.Allowed || !reflect.DeepEqual(c.Log, []Cell{{t0, 4}, {t0 + 20, 2}, {t0 + 50, 3}}) || d.ResetAfter != 130 {
		t.Errorf("%+v, %+v", d, c)
	}
	c = s.clone()
	if d := Step(p, &c, t0-50, 4); d.Allowed || d.RetryAfter != 150 || !reflect.DeepEqual(c.Log, s.Log) {
		t.Errorf("a window back: %+v, %+v", d, c)
	}
	if d := Step(p, &c, t0-51, 4); d.Allowed || d.RetryAfter != 100 || !reflect.DeepEqual(c.Log, []Cell{{t0 - 51, 7}}) || c.V != 7 {
		t.Errorf("further back: %+v, %+v", d, c)
	}
}

// TestBucketsAndClocks: what drained since the clock stepped back is there again, up to a
// full bucket; a level in other units carries over whole ones.
func TestBucketsAndClocks(t *testing.T) {
	for _, kind := range []Kind{TokenBucket, LeakyBucket, GCRA} {
		p := Params{Kind: kind, Cap: 10, Num: 1, Den: sec}
		var s State
		Step(p, &s, t0, 4)
		for _, c := range []struct {
			now, remaining int64
			rebased        bool
		}{{t0, 6, false}, {t0 + 2*sec, 8, false}, {t0 - 2*sec, 4, false}, {t0 - 6*sec, 0, false}, {t0 - 7*sec, 0, true}, {t0 - 10*sec, 0, true}, {t0 - 11*sec, 0, true}} {
			if d := Step(p, &s, c.now, 0); d.Remaining != c.remaining || d.ResetAfter != (10-c.remaining)*sec {
				t.Errorf("%v, %d s later: %+v", kind, (c.now-t0)/sec, d)
			}
			moved := s
			if Step(p, &moved, c.now, 10); (moved.At != s.At) != c.rebased {
				t.Errorf("%v, %d s later, denied: %+v", kind, (c.now-t0)/sec, moved)
			}
		}
		half := Params{Kind: kind, Cap: 8, Num: 1, Den: 2 * sec}
		s = State{}
		Step(p, &s, t0, 4)
		Step(p, &s, t0+sec/2, 0)
		c := s
		c.At++ // a bit more than four units are used: five
		if d := Step(half, &c, t0, 0); d.Remaining != 3 {
			t.Errorf("%v in other units: %+v, want 3", kind, d)
		}
		// What a smaller bucket holds beyond its burst stays, and a denial does not write.
		small := Params{Kind: kind, Cap: 3, Num: 1, Den: sec}
		wants := Decision{RetryAfter: 2 * sec, ResetAfter: 4 * sec}
		after := s
		if d := Step(small, &after, t0, 1); d != wants || !d.Allowed && !reflect.DeepEqual(after, s) {
			t.Errorf("%v, smaller: %+v, want %+v", kind, d, wants)
		}
	}
}

// TestShapingDelays: the delay is the time that what is ahead takes to drain, and what would
// wait for longer than the longest delay is denied until it would not.
func TestShapingDelays(t *testing.T) {
	p := Params{Kind: LeakyBucketShaping, Cap: 10, Num: 1, Den: sec, MaxDelay: 3 * sec}
	var s State
	for i, want := range []Decision{
		{Allowed: true, Remaining: 7, ResetAfter: 3 * sec},
		{Allowed: true, Remaining: 6, ResetAfter: 4 * sec, Delay: 3 * sec},
		{Remaining: 6, RetryAfter: sec, ResetAfter: 4 * sec},
	} {
		if d := Step(p, &s, t0, []int64{3, 1, 1}[i]); d != want {
			t.Errorf("%d: %+v, want %+v", i, d, want)
		}
	}
	// Debts are charged whatever the delay.
	if d := Debit(p, &s, t0, 3, 0); !d.Allowed || d.Remaining != 3 {
		t.Errorf("%+v", d)
	}
}

// TestDecideBlocked: a blocked key is denied and nothing changes but a block that a clock
// has moved; what is kept concerns requests with a cost alone.
func TestDecideBlocked(t *testing.T) {
	p := Params{Kind: FixedWindow, Cap: 10, Num: 1, Den: 3600 * sec, Keep: 4}
	s := State{At: t0 - t0%(3600*sec) + 3600*sec, V: 5, Birth: t0, Until: t0 + 100, Length: 100}
	c := s
	if d := Decide(p, &c, t0+1, 1); d.Allowed || d.Remaining != 0 || d.RetryAfter != 99 || c.Until != s.Until {
		t.Errorf("%+v, %+v", d, c)
	}
	if d := Decide(p, &c, t0-5, 0); d.Allowed || c.Until != s.Until || c.Birth != t0 {
		t.Errorf("%+v, %+v", d, c)
	}
	if d := Decide(p, &c, t0-5, 1); d.Allowed || d.RetryAfter != 100 || c.Until != t0+95 {
		t.Errorf("%+v, %+v", d, c)
	}
	c = State{At: t0 - t0%(3600*sec) + 3600*sec, V: 6, Birth: t0}
	if d := Decide(p, &c, t0, 0); !d.Allowed || d.Remaining != 4 {
		t.Errorf("a look at what is kept: %+v", d)
	}
	if d := Decide(p, &c, t0, 1); d.Allowed {
		t.Errorf("what is kept was given: %+v", d)
	}
}

func TestKindsHaveNames(t *testing.T) {
	if len(Kinds) != 7 {
		t.Fatalf("%d algorithms", len(Kinds))
	}
	names := map[string]bool{}
	for _, k := range Kinds {
		if !k.Valid() || names[k.String()] || names[k.Short()] {
			t.Errorf("%d: %v, %s", k, k, k.Short())
		}
		names[k.String()], names[k.Short()] = true, true
	}
	for _, k := range []Kind{0, Kinds[0] + 100} {
		if k.Valid() || names[k.String()] || names[k.Short()] {
			t.Errorf("%d is %v, %s", k, k, k.Short())
		}
	}
}
