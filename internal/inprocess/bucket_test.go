package inprocess

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// TestGiveBackOfTheBucket: a bucket takes back what cannot have drained since it was taken, says how
// much that was, and keeps its fraction of a unit and its rate.
func TestGiveBackOfTheBucket(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.TokenBucket, N: 1, Per: 100 * sec, Burst: 10})
	for _, c := range []struct {
		take, back, after int64 // µs
		given, left       int64
		next              int64 // µs until another unit
	}{
		{10, 1, 0, 1, 1, 100 * sec},
		{10, 10, 0, 10, 10, 0},
		{1, 1, 0, 1, 10, 0},
		{10, 5, 30 * sec, 5, 5, 70 * sec},
		{10, 5, 50 * sec, 5, 5, 50 * sec},
		{10, 5, 70 * sec, 5, 5, 30 * sec},
		{10, 9, 100 * sec, 9, 10, 0},
		{10, 10, 300 * sec, 7, 10, 0},
		{10, 10, 350 * sec, 6, 10, 0},
		{3, 3, 200 * sec, 1, 10, 0},
		{3, 3, 300 * sec, 0, 10, 0},
		{3, 3, 400 * sec, 0, 10, 0},
		{4, 1, 350 * sec, 0, 10, 0},
	} {
		now := t0
		s := storeAt(t, 10, &now)
		var rc Receipt
		if !s.Take("k", &p, c.take, nil, &rc).Allowed {
			t.Fatal("denied")
		}
		now += c.after
		given := s.GiveBack("k", &rc, c.back)
		d := s.Decide("k", p, 0)
		if given != c.given || d.Remaining != c.left {
			t.Errorf("%+v: %d given back, %d left", c, given, d.Remaining)
		}
		if c.next > 0 {
			if wait := s.Peek("k", p, c.left+1).RetryAfter; abs(wait-c.next) > 1 {
				t.Errorf("%+v: another unit in %d", c, wait)
			}
		}
	}
}

// TestWholeUnitsOfTheBucket: what was given back can be used at once, with the units that were refilled
// until then, whatever floating point makes of their sum.
func TestWholeUnitsOfTheBucket(t *testing.T) {
	for _, per := range []int64{3, 7, 11, 13, 1_000_003, 86_400_000_000} { // µs for a unit
		p := mustParams(t, algo.Limit{Kind: algo.TokenBucket, N: 1, Per: per, Burst: 40})
		for k := range int64(20) {
			now := t0
			s := storeAt(t, 10, &now)
			for back := int64(1); back <= 20; back++ {
				s.Reset("k")
				now = t0
				var rc Receipt
				s.Take("k", &p, 40, nil, &rc)
				now += k * per
				s.GiveBack("k", &rc, back)
				if d := s.Decide("k", p, k+back); !d.Allowed {
					t.Errorf("a unit in %d µs: of %d refilled ones and %d given back: %+v", per, k, back, d)
				}
			}
		}
	}
}

// TestWaitsOfAFastBucket end when the units are there, or a microsecond later where floating point
// makes a unit slightly less.
func TestWaitsOfAFastBucket(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.TokenBucket, N: 1, Per: 3, Burst: 40})
	for n := int64(1); n <= 40; n++ {
		now := t0
		s := storeAt(t, 10, &now)
		s.Decide("k", p, 40)
		d := s.Decide("k", p, n)
		if d.RetryAfter < 3*n || d.RetryAfter > 3*n+1 {
			t.Errorf("%d units of 3 µs in %d", n, d.RetryAfter)
		}
		now += d.RetryAfter
		if !s.Decide("k", p, n).Allowed {
			t.Errorf("%d units are denied after %d", n, d.RetryAfter)
		}
	}
}

// TestBlockedBucket: nothing is left until the end of a block, to the microsecond, and who asks for
// nothing waits for no units.
func TestBlockedBucket(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.TokenBucket, N: 1, Per: 3600 * sec, Burst: 10})
	p.Keep = 5
	now := t0
	s := storeAt(t, 10, &now)
	s.Decide("k", p, 5)
	p.Keep = 9
	s.Block("k", p, sec)
	for _, left := range []int64{sec, 1} {
		now = t0 + sec - left
		if d := s.Decide("k", p, 0); d.Allowed || d.Remaining != 0 || d.RetryAfter != left {
			t.Errorf("blocked for %d: %+v", left, d)
		}
	}
	if now++; !s.Decide("k", p, 0).Allowed {
		t.Error("blocked after the end")
	}
}

// TestReserveOfOneUnit is left.
func TestReserveOfOneUnit(t *testing.T) {
	for _, kind := range algo.Kinds {
		p := mustParams(t, algo.Limit{Kind: kind, N: 10, Per: 3600 * sec, Burst: 10})
		p.Keep = 1
		now := t0
		s := storeAt(t, 10, &now)
		if s.Decide("k", p, 5); s.Decide("k", p, 5).Allowed || !s.Decide("k", p, 4).Allowed {
			t.Errorf("%v: not exactly 9 of 10 were admitted", kind)
		}
	}
}

// TestGiveBackUnderANewLimit: what was taken under another burst comes back, and the limit of now goes on.
func TestGiveBackUnderANewLimit(t *testing.T) {
	before := mustParams(t, algo.Limit{Kind: algo.TokenBucket, N: 1, Per: sec, Burst: 10})
	p := mustParams(t, algo.Limit{Kind: algo.TokenBucket, N: 1, Per: sec, Burst: 20})
	now := t0
	s := storeAt(t, 10, &now)
	var rc Receipt
	s.Take("k", &before, 8, nil, &rc)
	s.Decide("k", p, 1)
	s.GiveBack("k", &rc, 3)
	if d := s.Decide("k", p, 0); d.Remaining != 14 {
		t.Errorf("%d left, want 11 and 3", d.Remaining)
	}
	now += 4 * sec
	if d := s.Decide("k", p, 0); d.Remaining != 18 {
		t.Errorf("%d left, want 4 more after 4 s", d.Remaining)
	}
}

// TestGiveBackAtAnotherRate returns nothing of what that rate may have refilled already.
func TestGiveBackAtAnotherRate(t *testing.T) {
	before := mustParams(t, algo.Limit{Kind: algo.TokenBucket, N: 1, Per: 10 * sec, Burst: 10})
	p := mustParams(t, algo.Limit{Kind: algo.TokenBucket, N: 1, Per: sec, Burst: 20})
	for _, c := range []struct{ after, left int64 }{{0, 11}, {4 * sec, 15}, {18 * sec, 20}} {
		now := t0
		s := storeAt(t, 10, &now)
		var rc Receipt
		s.Take("k", &before, 8, nil, &rc)
		s.Decide("k", p, 1)
		now += c.after
		for range 2 {
			if d := s.Decide("k", p, 0); d.Remaining != c.left {
				t.Errorf("%d left after %d", d.Remaining, c.after)
			}
			s.Decide("k", before, 0) // nor when the rate of then is back
			if back := s.GiveBack("k", &rc, 3); back != 0 {
				t.Errorf("after %d: %d given back", c.after, back)
			}
		}
	}
}

// TestRefundOfABlockedKey that has taken nothing changes nothing.
func TestRefundOfABlockedKey(t *testing.T) {
	for _, kind := range algo.Kinds {
		p := mustParams(t, algo.Limit{Kind: kind, N: 10, Per: sec, Burst: 10})
		now := t0
		s := storeAt(t, 10, &now)
		s.Block("k", p, sec)
		s.Refund("k", p, 3, 3)
		now += sec
		if d := s.Decide("k", p, 0); !d.Allowed || d.Remaining != 10 {
			t.Errorf("%v: %+v", kind, d)
		}
	}
}

// TestWaitsOfTheBucket are those of the step functions, to the microsecond, also where the rate is low.
func TestWaitsOfTheBucket(t *testing.T) {
	for _, l := range []algo.Limit{
		{N: 1, Per: 3600 * sec, Burst: 5},
		{N: 7, Per: 3600 * sec, Burst: 5},
		{N: 1, Per: sec, Burst: 5},
		{N: 1_000_000, Per: sec, Burst: 5},
		{N: 300_000, Per: sec, Burst: 5},
		{N: 5_000_000, Per: sec, Burst: 5},
	} {
		l.Kind = algo.TokenBucket
		p := mustParams(t, l)
		for _, pause := range []int64{0, 1, 2, 333} {
			for n := int64(1); n <= p.Cap; n++ {
				now := t0
				s := storeAt(t, 10, &now)
				var ref algo.State
				s.Decide("k", p, 5)
				algo.Decide(p, &ref, now, 5)
				now += pause
				got, want := s.Decide("k", p, n), algo.Decide(p, &ref, now, n)
				if got != want {
					t.Errorf("%+v, a cost of %d after %d µs: %+v, want %+v", l, n, pause, got, want)
				}
			}
		}
	}
}
