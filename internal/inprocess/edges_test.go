package inprocess

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// TestResetForgetsWhatRedisSaid and granted.
func TestResetForgetsWhatRedisSaid(t *testing.T) {
	for _, kind := range algo.Kinds {
		p := mustParams(t, algo.Limit{Kind: kind, N: 10, Per: 3600 * sec, Burst: 10})
		now := t0
		s := storeAt(t, 4, &now)
		s.Decide("k", p, 1)
		s.Observe("k", p, algo.Decision{Allowed: true, Remaining: 2, ResetAfter: 3600 * sec}, 7, 0)
		s.Reset("k")
		if got := s.Granted("k", p, 0); got != 0 {
			t.Errorf("%v: %v of the limit was granted", kind, got)
		}
		if d := s.Decide("k", p, 0); d.Remaining != 10 {
			t.Errorf("%v: %d left of 10", kind, d.Remaining)
		}
	}
}

// TestFullBucketIsReset already.
func TestFullBucketIsReset(t *testing.T) {
	for _, kind := range algo.Kinds {
		p := mustParams(t, algo.Limit{Kind: kind, N: 10, Per: 3600 * sec, Burst: 10})
		now := t0
		if d := storeAt(t, 4, &now).Decide("k", p, 0); d.ResetAfter != 0 || d.RetryAfter != 0 || d.Delay != 0 {
			t.Errorf("%v: %+v", kind, d)
		}
	}
}

// TestMoreIsKeptThanThereIs: who asks for nothing is admitted also where all of a small part is kept for critical calls.
func TestMoreIsKeptThanThereIs(t *testing.T) {
	for _, kind := range algo.Kinds {
		p := mustParams(t, algo.Limit{Kind: kind, N: 10, Per: 3600 * sec, Burst: 10})
		p.Keep = 11
		now := t0
		s := storeAt(t, 4, &now)
		for n, want := range map[int64]bool{0: true, 1: false} {
			if peek, d := s.Peek("k", p, n), s.Decide("k", p, n); peek.Allowed != want || d.Allowed != want {
				t.Errorf("%v, a cost of %d: a peek %+v, decided %+v", kind, n, peek, d)
			}
		}
	}
}

// TestBucketUnderASlowerLimit: what is used drains at the rate of before until the slower limit charges the key, which it does where
// exactly as much is left as it asks for.
func TestBucketUnderASlowerLimit(t *testing.T) {
	fast := mustParams(t, algo.Limit{Kind: algo.TokenBucket, N: 1, Per: sec, Burst: 10})
	slow := mustParams(t, algo.Limit{Kind: algo.TokenBucket, N: 1, Per: 10 * sec, Burst: 10})
	for cost, want := range map[int64]algo.Decision{
		5: {Allowed: true, ResetAfter: 100 * sec},
		6: {Remaining: 5, RetryAfter: sec, ResetAfter: 5 * sec},
	} {
		now := t0
		s := storeAt(t, 4, &now)
		s.Decide("k", fast, 5)
		d := s.Decide("k", slow, cost)
		if abs(d.ResetAfter-want.ResetAfter) <= 1 { // floating point
			d.ResetAfter = want.ResetAfter
		}
		if d != want {
			t.Errorf("a cost of %d: %+v, want %+v", cost, d, want)
		}
	}
}

// TestPartOfAUnitIsNotGivenBack, however small the part is that may have drained.
func TestPartOfAUnitIsNotGivenBack(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.TokenBucket, N: 1, Per: 100 * sec, Burst: 10})
	for after, want := range map[int64]int64{300 * sec: 2, 300*sec + 100: 1} {
		now := t0
		s := storeAt(t, 4, &now)
		var rc Receipt
		s.Take("k", &p, 5, nil, &rc)
		s.Decide("k", p, 5)
		if now += after; s.GiveBack("k", &rc, 5) != want {
			t.Errorf("after %d not %d of 5 units are given back", after, want)
		}
	}
}

// TestTimesOfWhatRedisSaid: a read that leaves more, perhaps of a replica that is behind, makes what was left matter for longer, and
// one that leaves as much says until when.
func TestTimesOfWhatRedisSaid(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 10, Per: 3600 * sec, Burst: 10})
	for _, c := range []struct {
		first, then       int64 // what is left
		firstEnd, thenEnd int64
		want              int64 // what is left after 20 s
	}{
		{2, 3, 10 * sec, 60 * sec, 2},
		{2, 3, 60 * sec, 10 * sec, 2},
		{2, 2, 60 * sec, 10 * sec, 10},
		{2, 2, 10 * sec, 60 * sec, 2},
		{2, 3, 10 * sec, 10 * sec, 10},
	} {
		now := t0
		s := storeAt(t, 4, &now)
		s.Observe("k", p, algo.Decision{Allowed: true, Remaining: c.first, ResetAfter: c.firstEnd}, 8, 0)
		s.Observe("k", p, algo.Decision{Allowed: true, Remaining: c.then, ResetAfter: c.thenEnd}, 0, 0)
		if now += 20 * sec; s.Decide("k", p, 0).Remaining != c.want {
			t.Errorf("%+v: not so many are left", c)
		}
	}
}

// TestRefundSaysWhatItForgave: up to most, and no more than was owed.
func TestRefundSaysWhatItForgave(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 10, Per: 3600 * sec, Burst: 10})
	for most, want := range map[int64]int64{0: 0, 1: 1, 2: 2, 3: 3, 9: 3} {
		now := t0
		s := storeAt(t, 4, &now)
		s.Take("k", &p, 3, &p, nil)
		if got := s.Refund("k", p, 3, most); got != want {
			t.Errorf("at most %d: %d were forgiven", most, got)
		}
		owed := int64(0)
		for _, d := range takeDebts(s, 0) {
			owed += units(d)
		}
		if owed != 3-want {
			t.Errorf("at most %d: %d are owed", most, owed)
		}
	}
	now := t0
	if got := storeAt(t, 4, &now).Refund("unknown", p, 3, 3); got != 0 {
		t.Errorf("%d were forgiven of nothing", got)
	}
}

// TestLastBlockIsTheLongest: a key is blocked also after the end of an earlier and shorter block, and one that is not blocked is not
// while others are.
func TestLastBlockIsTheLongest(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 10, Per: sec, Burst: 10})
	now := t0
	s := storeAt(t, 4, &now)
	s.Block("short", p, sec)
	s.Block("long", p, 2*sec)
	for id, want := range map[string]int64{"short": sec, "long": 2 * sec, "none": 0} {
		if got := s.Blocked(p.Kind, id); got != want {
			t.Errorf("%s: blocked for %d", id, got)
		}
	}
	if now += sec; s.Blocked(p.Kind, "long") != sec {
		t.Error("not blocked any more")
	}
}

// TestSharedStatesOfManyLimits: a limit for which there is no room has the state of another one of its algorithm, that which is
// fully reset last; what is fully reset makes room.
func TestSharedStatesOfManyLimits(t *testing.T) {
	const now = 1000
	of := func(kind algo.Kind, n int) limit { return limit{kind: kind, units: int64(n)} }
	// The first ones are of windows, and fully reset later than the others.
	full := func() *stripe {
		st := new(stripe)
		for i := range maxShared {
			kind, at := algo.GCRA, now+1+i
			if i < maxShared/2 {
				kind, at = algo.FixedWindow, now+1000+i
			}
			st.share(of(kind, i), now).idleAt = int64(at)
		}
		return st
	}
	for range 20 { // a map has another order each time
		st := full()
		if e := st.share(of(algo.GCRA, -1), now); e != st.shared[of(algo.GCRA, maxShared-1)] || len(st.shared) != maxShared {
			t.Errorf("a state that is reset at %d, of %d", e.idleAt, len(st.shared))
		}
		st = full()
		if e := st.share(of(algo.TokenBucket, -1), now); e != st.shared[of(algo.TokenBucket, -1)] || e.kind != algo.TokenBucket {
			t.Errorf("an algorithm without a state: %+v", e)
		}
		st = full()
		st.shared[of(algo.GCRA, maxShared-1)].idleAt = now
		e := st.share(of(algo.GCRA, -1), now)
		if e != st.shared[of(algo.GCRA, -1)] || e.idleAt != 0 || len(st.shared) != maxShared || st.shared[of(algo.GCRA, maxShared-1)] != nil {
			t.Errorf("one is fully reset: a state that is reset at %d, of %d", e.idleAt, len(st.shared))
		}
	}
}
