package inprocess

import (
	"fmt"
	"math"
	"testing"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// TestWhatIsOwed of keys whose use here is not all that weighs, or not any more.
func TestWhatIsOwed(t *testing.T) {
	windows := []algo.Kind{algo.FixedWindow, algo.SlidingWindowCounter, algo.SlidingWindowLog}
	buckets := []algo.Kind{algo.TokenBucket, algo.GCRA, algo.LeakyBucketShaping}
	for name, c := range map[string]struct {
		kinds []algo.Kind
		use   func(s *Store, p *algo.Params, now *int64)
		want  int64
	}{
		"one unit": {algo.Kinds[:], func(s *Store, p *algo.Params, _ *int64) {
			s.Take("k", p, 1, p, nil)
		}, 1},
		"a peek": {algo.Kinds[:], func(s *Store, p *algo.Params, _ *int64) {
			s.Take("k", p, 0, p, nil)
		}, 0},
		"a cost that was denied": {algo.Kinds[:], func(s *Store, p *algo.Params, _ *int64) {
			s.Take("k", p, 5, p, nil)
			s.Take("k", p, 8, p, nil)
		}, 5},
		"a part has drained": {buckets, func(s *Store, p *algo.Params, now *int64) {
			s.Take("k", p, 4, p, nil)
			*now += 2 * sec
			s.Take("k", p, 1, p, nil)
		}, 3},
		"some was used before Redis was lost": {buckets, func(s *Store, p *algo.Params, _ *int64) {
			s.Observe("k", *p, algo.Decision{Allowed: true, Remaining: 6, ResetAfter: 4 * sec}, 1, 0)
			s.Take("k", p, 3, p, nil)
		}, 3},
		"and some was given back": {[]algo.Kind{algo.TokenBucket, algo.GCRA}, func(s *Store, p *algo.Params, _ *int64) {
			s.Observe("k", *p, algo.Decision{Allowed: true, Remaining: 6, ResetAfter: 4 * sec}, 1, 0)
			var rc Receipt
			s.Take("k", p, 3, p, &rc)
			s.GiveBack("k", &rc, 2)
		}, 1},
		"and all was given back": {[]algo.Kind{algo.TokenBucket, algo.GCRA}, func(s *Store, p *algo.Params, _ *int64) {
			s.Observe("k", *p, algo.Decision{Allowed: true, Remaining: 6, ResetAfter: 4 * sec}, 1, 0)
			var rc Receipt
			s.Take("k", p, 3, p, &rc)
			s.GiveBack("k", &rc, 3)
		}, 0},
		"some is being charged": {buckets, func(s *Store, p *algo.Params, _ *int64) {
			s.Observe("k", *p, algo.Decision{Allowed: true, Remaining: 6, ResetAfter: 4 * sec}, 1, 0)
			s.Take("k", p, 3, p, nil)
			s.TakeDebt(s.Debtors()[0])
			s.Take("k", p, 2, p, nil)
		}, 2},
		"charges beyond all sums": {algo.Kinds[:], func(s *Store, p *algo.Params, _ *int64) {
			s.Charge("k", *p, math.MaxInt64, p)
			s.Charge("k", *p, math.MaxInt64, p)
		}, 10},
		"a window has passed": {windows, func(s *Store, p *algo.Params, now *int64) {
			s.Take("k", p, 4, p, nil)
			*now += 20 * sec
		}, 0},
	} {
		for _, kind := range c.kinds {
			p := mustParams(t, algo.Limit{Kind: kind, N: 10, Per: 10 * sec, Burst: 10})
			now := t0
			s := storeAt(t, 10, &now)
			c.use(s, &p, &now)
			owed := int64(0)
			for _, of := range s.Debtors() {
				d, _ := s.TakeDebt(of)
				owed += units(d)
			}
			if owed != c.want {
				t.Errorf("%v, %s: %d units are owed, want %d", kind, name, owed, c.want)
			}
		}
	}
}

// TestDebtsUnderWayTogether: a key owes until all parts of its debt that are being charged are
// settled, and what of any of them was not charged is owed again.
func TestDebtsUnderWayTogether(t *testing.T) {
	for _, kind := range algo.Kinds {
		p := mustParams(t, algo.Limit{Kind: kind, N: 10, Per: 3600 * sec, Burst: 10})
		now := t0
		s := storeAt(t, 10, &now)
		var parts []Debt
		for _, n := range []int64{4, 3} {
			s.Take("k", &p, n, &p, nil)
			d, ok := s.TakeDebt(s.Debtors()[0])
			if !ok || units(d) != n {
				t.Fatalf("%v: %d units are owed, want %d", kind, units(d), n)
			}
			parts = append(parts, d)
		}
		of := s.Debtors()[0]
		if d, ok := s.TakeDebt(of); ok || s.Owed() != 1 {
			t.Errorf("%v: %d units are owed beside what is being charged, by %d keys", kind, units(d), s.Owed())
		}
		s.Settled(parts[0], nil)
		if s.Owed() != 1 {
			t.Errorf("%v: %d keys owe while 3 units are being charged", kind, s.Owed())
		}
		s.Settled(parts[1], []algo.Use{{Units: 2}})
		if s.Owed() != 1 {
			t.Fatalf("%v: %d keys owe what was not charged", kind, s.Owed())
		}
		d, ok := s.TakeDebt(of)
		if !ok || units(d) != 2 {
			t.Errorf("%v: %d units are owed again, want 2", kind, units(d))
		}
		s.Reset("k")
		if d, ok := s.TakeDebt(of); ok || s.Owed() != 0 {
			t.Errorf("%v: %+v is owed of a key that was reset", kind, d)
		}
		s.Settled(d, []algo.Use{{Units: 2}})
		if s.Owed() != 0 {
			t.Errorf("%v: a key that was reset owes what was not charged before", kind)
		}
	}
}

// TestChargesAreTaken, each as far as there is room, also at the border of a window, and count with
// what Redis said.
func TestChargesAreTaken(t *testing.T) {
	for _, kind := range algo.Kinds {
		p := mustParams(t, algo.Limit{Kind: kind, N: 10, Per: 3600 * sec, Burst: 10})
		for _, c := range []struct{ said, charge, want int64 }{{10, 3, 7}, {10, 1, 9}, {10, 50, 0}, {4, 2, 2}, {4, 4, 0}, {4, 5, 0}} {
			now := t0 - t0%(3600*sec)
			s := storeAt(t, 10, &now)
			if c.said < 10 {
				s.Observe("k", p, algo.Decision{Allowed: true, Remaining: c.said, ResetAfter: 3600 * sec}, 1, 0)
			}
			s.Charge("k", p, c.charge, nil)
			if d := s.Decide("k", p, 0); d.Remaining != c.want {
				t.Errorf("%v: %d left of %d after %d were charged", kind, d.Remaining, c.said, c.charge)
			}
			now += 3600*sec - 1
			if d := s.Decide("k", p, 0); kind.Windowed() && d.Remaining != c.want {
				t.Errorf("%v: %d left of %d at the end of the window in which %d were charged", kind, d.Remaining, c.said, c.charge)
			}
		}
	}
}

// TestChargesOfPartsOfUnits: a charge leaves less than a unit of a bucket where there is room for no more,
// whatever floating point makes of its fraction.
func TestChargesOfPartsOfUnits(t *testing.T) {
	for _, c := range []struct{ hours, burst int64 }{{75, 40}, {80, 40}, {1039, 3}} {
		p := mustParams(t, algo.Limit{Kind: algo.TokenBucket, N: 1, Per: c.hours * 3600 * sec, Burst: c.burst})
		for k := range c.burst {
			now := t0
			s := storeAt(t, 10, &now)
			s.Decide("k", p, c.burst)
			now += k * c.hours * 3600 * sec // k units, or slightly less
			s.Charge("k", p, 50, nil)
			if d := s.Decide("k", p, 0); d.Remaining > 1 {
				t.Errorf("%d units are left of about %d", d.Remaining, k)
			}
		}
	}
}

// TestChargesOfPartsBelowAUnit: a charge, or a decision, takes the unit of the first window of a part of a limit, and
// there is no other before the part has produced it, also where the key could have been forgotten.
func TestChargesOfPartsBelowAUnit(t *testing.T) {
	other := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 5, Per: sec, Burst: 5})
	for _, kind := range []algo.Kind{algo.FixedWindow, algo.SlidingWindowCounter, algo.SlidingWindowLog} {
		p := partOf(t, algo.Limit{Kind: kind, N: 5, Per: 60 * sec, Burst: 5}, 0.05) // a quarter of a unit
		for _, c := range []struct {
			windows         int64
			taken, admitted bool
		}{
			{0, false, false}, {1, false, false}, {2, false, false}, {3, false, false}, {5, false, true},
			{0, true, false}, {1, true, false}, {2, true, false}, {3, true, false}, {5, true, true},
		} {
			now := t0 - t0%(60*sec)
			s := storeAt(t, 1, &now)
			if c.taken {
				s.Decide("k", p, 1)
			} else {
				s.Charge("k", p, 1, nil)
			}
			if e := s.get(kind, "k"); e == nil {
				t.Fatalf("%v: no key", kind)
			}
			admitted := false
			for range c.windows {
				now += 60 * sec
				s.Decide("other", other, 1) // which needs a place
				admitted = s.Decide("k", p, 1).Allowed || admitted
			}
			admitted = s.Decide("k", p, 1).Allowed || admitted
			if admitted != c.admitted {
				t.Errorf("%v: admitted %v within %d windows after that, taken %v", kind, admitted, c.windows, c.taken)
			}
		}
	}
}

// TestFirstWindowOfAPart: a key that this process has not decided on has a unit of the smallest part in
// its first window, also when it was blocked or reset before.
func TestFirstWindowOfAPart(t *testing.T) {
	for _, kind := range []algo.Kind{algo.FixedWindow, algo.SlidingWindowCounter, algo.SlidingWindowLog} {
		for _, share := range []float64{0.05, 1e-9} {
			p := partOf(t, algo.Limit{Kind: kind, N: 5, Per: 60 * sec, Burst: 5}, share)
			for name, before := range map[string]func(s *Store){
				"new":     func(*Store) {},
				"blocked": func(s *Store) { s.Block("k", p, sec) },
				"reset":   func(s *Store) { s.Decide("k", p, 1); s.Reset("k") },
			} {
				now := t0 - t0%(60*sec)
				s := storeAt(t, 10, &now)
				before(s)
				now += 2 * sec
				if d := s.Peek("k", p, 1); !d.Allowed {
					t.Errorf("%v, %s, a part of %v: peek %+v", kind, name, share, d)
				}
				if d := s.Decide("k", p, 1); !d.Allowed {
					t.Errorf("%v, %s, a part of %v: %+v", kind, name, share, d)
				}
			}
		}
	}
}

// TestCostsThatNeverFit wait for what produces as many units, or for another unit of a part where that is
// enough, and make no key.
func TestCostsThatNeverFit(t *testing.T) {
	limit := func(kind algo.Kind, n, per, burst int64) algo.Params {
		return mustParams(t, algo.Limit{Kind: kind, N: n, Per: per, Burst: burst})
	}
	keeping := func(p algo.Params, n int64) algo.Params { p.Keep = n; return p }
	half := partOf(t, algo.Limit{Kind: algo.FixedWindow, N: 10, Per: 10 * sec}, 0.25) // 2.5 units
	for _, c := range []struct {
		p       algo.Params
		n, wait int64
	}{
		{limit(algo.GCRA, 3, 9*sec, 5), 6, 18 * sec},
		{limit(algo.TokenBucket, 3, 9*sec, 5), 60, 180 * sec},
		{limit(algo.LeakyBucketShaping, 3, 9*sec, 5), 6, 18 * sec},
		{limit(algo.FixedWindow, 1, 10*sec, 0), 2, 20 * sec},
		{limit(algo.SlidingWindowLog, 3, 9*sec, 0), 4, 12 * sec},
		{limit(algo.GCRA, 10_000_000, sec, 1), 2, 1},
		{limit(algo.GCRA, 1, 3600*sec, 1), 1 << 50, algo.MaxPeriod},
		{half, 3, 10 * sec},
		{half, 4, 20 * sec},
		{keeping(half, 1), 2, 10 * sec},
		{keeping(half, 1), 3, 20 * sec},
		{keeping(half, 2), 2, 20 * sec},
		{keeping(limit(algo.GCRA, 3, 9*sec, 5), 2), 4, 18 * sec},
	} {
		now := t0 - t0%(10*sec)
		s := storeAt(t, 10, &now)
		peek, d := s.Peek("k", c.p, c.n), s.Decide("k", c.p, c.n)
		if want := (algo.Decision{Remaining: c.p.Cap, RetryAfter: c.wait, ResetAfter: d.ResetAfter}); d != want || peek != want {
			t.Errorf("%v of %d, %d kept, a cost of %d: %+v, peek %+v, want a wait of %d", c.p.Kind, c.p.Cap, c.p.Keep, c.n, d, peek, c.wait)
		}
		if s.Len() != 0 {
			t.Errorf("%v: %d keys", c.p.Kind, s.Len())
		}
	}
}

// TestWindowWithoutAUnit: who is denied in a window in which a part of a limit has no unit is admitted after
// the time that was said, and not before.
func TestWindowWithoutAUnit(t *testing.T) {
	p := partOf(t, algo.Limit{Kind: algo.FixedWindow, N: 5, Per: 60 * sec}, 0.05) // a quarter of a unit
	for phase := range int64(8) {
		p.Phase = phase << 17
		now := t0 - t0%(60*sec)
		s := storeAt(t, 10, &now)
		if !s.Decide("k", p, 1).Allowed {
			t.Fatal("denied in the first window")
		}
		now += 61 * sec
		d := s.Decide("k", p, 1)
		if d.Allowed || d.Remaining != 0 {
			t.Fatalf("%+v in the second window", d)
		}
		now += d.RetryAfter - 1
		if s.Peek("k", p, 1).Allowed {
			t.Errorf("phase %d: admitted before %d", phase, d.RetryAfter)
		}
		if now++; !s.Decide("k", p, 1).Allowed {
			t.Errorf("phase %d: denied after %d", phase, d.RetryAfter)
		}
	}
}

// TestPlacesOfKeysInUse: a key keeps its place as long as what was charged or said of it matters; one
// that was reset makes room at once, wherever it stands.
func TestPlacesOfKeysInUse(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 1, Per: sec, Burst: 10})
	used := algo.Decision{Allowed: true, ResetAfter: 10 * sec}
	for name, use := range map[string]func(s *Store){
		"charged": func(s *Store) { s.Charge("k", p, 10, nil) },
		"Redis said so": func(s *Store) {
			s.Decide("k", p, 1)
			s.Observe("k", p, used, 1, 0)
		},
		"said before a block": func(s *Store) {
			s.Observe("k", p, used, 1, 0)
			s.Block("k", p, sec)
		},
	} {
		now := t0
		s := storeAt(t, 1, &now)
		use(s)
		now += 5 * sec
		s.Decide("other", p, 1)
		if s.get(algo.GCRA, "k") == nil {
			t.Errorf("%s: forgotten after half of the time", name)
		}
		now += 5 * sec
		if s.Decide("other", p, 1); s.get(algo.GCRA, "other") == nil {
			t.Errorf("%s: a key that is idle keeps its place", name)
		}
	}

	const keys = 20
	for reset := range keys {
		now := t0
		s := storeAt(t, keys, &now)
		for i := range keys {
			s.Decide(fmt.Sprint(i), p, int64(1+i*7%10))
		}
		s.Decide("none makes room", p, 1)
		s.Reset(fmt.Sprint(reset))
		s.Decide("other", p, 1)
		for i := range keys {
			if has := s.get(algo.GCRA, fmt.Sprint(i)) != nil; has != (i != reset) {
				t.Errorf("%d was reset: %d has a place: %v", reset, i, has)
			}
		}
	}
}

// TestDebtOfBeforeAReset: what was being sent when its key was reset is not owed again, and does not touch what is owed since.
func TestDebtOfBeforeAReset(t *testing.T) {
	s := NewStore(10)
	p := mustParams(t, algo.Limit{Kind: algo.FixedWindow, N: 100, Per: 3600 * sec})
	take := func(n int64) {
		for range n {
			s.Take("k", &p, 1, &p, nil)
		}
	}
	take(5)
	before, ok := s.TakeDebt(s.Debtors()[0])
	if !ok {
		t.Fatal("nothing is owed")
	}
	s.Reset("k")
	take(1)
	s.Settled(before, before.Uses)
	now, ok := s.TakeDebt(s.Debtors()[0])
	if !ok || len(now.Uses) != 1 || now.Uses[0].Units != 1 {
		t.Errorf("%+v is owed", now.Uses)
	}
	s.Settled(now, nil)
	if n := s.Owed(); n != 0 {
		t.Errorf("%d keys owe", n)
	}
}
