package inprocess

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// TestWarmStart: after Redis said that 4 of 10 are left, a process with half of
// the limit has 2 of 5, once; and all of it when what Redis said has passed.
func TestWarmStart(t *testing.T) {
	for _, kind := range algo.Kinds {
		home := mustParams(t, algo.Limit{Kind: kind, N: 10, Per: 10 * sec, Burst: 10})
		own := home.Scale(0.5)
		now := t0
		s := storeAt(t, 10, &now)
		s.Observe("k", home, algo.Decision{Allowed: true, Remaining: 4, ResetAfter: 6 * sec}, 1, 0)
		if d := s.Decide("k", own, 0); d.Remaining != 2 {
			t.Errorf("%v: %d left of a half of 4", kind, d.Remaining)
		}
		if !s.Decide("k", own, 2).Allowed || s.Decide("k", own, 1).Allowed {
			t.Errorf("%v: not exactly 2 were admitted", kind)
		}
		s.Observe("k", home, algo.Decision{Allowed: true, Remaining: 6, ResetAfter: 4 * sec}, 1, 0)
		if d := s.Decide("k", own, 0); d.Remaining != 3 {
			t.Errorf("%v: %d left of a half of 6, seen later", kind, d.Remaining)
		}
		s.Observe("k", home, algo.Decision{Allowed: true, Remaining: 0, ResetAfter: 10 * sec}, 1, 0)
		now += 10 * sec
		if d := s.Decide("k", own, 0); d.Remaining != 5 {
			t.Errorf("%v: %d left when all has passed", kind, d.Remaining)
		}
	}
}

// TestHealthyMemoryIsFixed: while Redis decides, a store has no keys, and what it notes of those
// that Redis has decided on takes less than 2 MB, however many they are.
func TestHealthyMemoryIsFixed(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 1, Per: sec, Burst: 1})
	for _, most := range []int{10, DefaultMaxKeys, 10 * DefaultMaxKeys} {
		now := t0
		s := storeAt(t, most, &now)
		s.Observe("k", p, algo.Decision{Allowed: true, Remaining: 1}, 1, 0)
		for i := range s.stripes {
			if s.stripes[i].seen != nil {
				t.Error("a key that is as if never used is remembered")
			}
		}
		for i := range 2 * maxSeen {
			s.Observe(fmt.Sprint("k", i), p, algo.Decision{Allowed: true, ResetAfter: sec}, 1, 0)
		}
		bytes, places := 0, 0
		for i := range s.stripes {
			bytes += len(s.stripes[i].seen) * int(unsafe.Sizeof(seen{}))
			for _, x := range s.stripes[i].seen {
				if x.hash != 0 {
					places++
				}
			}
		}
		if s.Len() != 0 || bytes >= 2_000_000 || places < min(most, maxSeen*9/10) || places > 2*most {
			t.Errorf("cap %d: %d keys, %d places of %d bytes", most, s.Len(), places, bytes)
		}
	}
}

// TestSeenMakesRoomByTime: where there is no place left, what matters for the shortest time makes
// room, and a key that Redis decides on again keeps its place.
func TestSeenMakesRoomByTime(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 1, Per: sec, Burst: 100})
	now := t0
	s := storeAt(t, ways, &now)
	for i := range 1000 {
		s.Observe("long", p, algo.Decision{Allowed: true, Remaining: 7, ResetAfter: 93 * sec}, 1, 0)
		s.Observe(fmt.Sprint("short", i), p, algo.Decision{Allowed: true, Remaining: 99, ResetAfter: sec}, 1, 0)
	}
	if d := s.Decide("long", p, 1); d.Remaining != 6 {
		t.Errorf("%d left of what Redis said were 7", d.Remaining)
	}
}

// TestForgottenKeysTakeNoPlaceInUse: what was granted of a key of an outage, which is idle, takes no
// place of a key of which what Redis said still matters.
func TestForgottenKeysTakeNoPlaceInUse(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 1, Per: sec, Burst: 100})
	now := t0
	s := storeAt(t, ways, &now)
	s.Observe("idle", p, algo.Decision{Allowed: true, Remaining: 99, ResetAfter: sec}, 1, 0)
	s.Decide("idle", p, 1) // Redis is lost
	said := func(i int) {
		s.Observe(fmt.Sprint("used", i), p, algo.Decision{Allowed: true, Remaining: 7, ResetAfter: 93 * sec}, 1, 0)
	}
	for i := range ways {
		said(i)
	}
	now += 10 * sec
	said(ways - 1) // which forgets what is idle
	if s.Len() != 0 {
		t.Fatalf("%d keys", s.Len())
	}
	for i := range ways {
		if d := s.Peek(fmt.Sprint("used", i), p, 1); d.Remaining > 7+10 {
			t.Errorf("key %d: %d left of 7", i, d.Remaining)
		}
	}
}

// TestPeekOfWhatRedisSaid: a peek of a key that has no state here begins with what Redis said of
// it, and leaves that; a key that was reset begins full.
func TestPeekOfWhatRedisSaid(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 1, Per: sec, Burst: 100})
	now := t0
	s := storeAt(t, 100, &now)
	s.Observe("k", p, algo.Decision{Allowed: true, Remaining: 7, ResetAfter: 93 * sec}, 1, 0)
	for range 2 {
		if d := s.Peek("k", p, 1); d.Remaining != 7 || s.Len() != 0 {
			t.Errorf("%d left of 7, %d keys", d.Remaining, s.Len())
		}
	}
	s.Reset("k")
	if d := s.Decide("k", p, 1); d.Remaining != 99 {
		t.Errorf("%d left of a key that was reset", d.Remaining)
	}
}

// TestKeysOfAnOutageAreForgotten: when Redis decides again, the keys of the outage that are idle
// go, one for each key that Redis decides on. What was granted of them stays.
func TestKeysOfAnOutageAreForgotten(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 1, Per: sec, Burst: 1})
	now := t0
	s := storeAt(t, 60, &now)
	s.Observe("k0", p, algo.Decision{Allowed: true, ResetAfter: sec}, 1, 0)
	had := s.Granted("k0", p, 0)
	for _, n := range []int{1, 50} {
		for i := range n {
			s.Decide(fmt.Sprint("k", i), p, 1)
		}
		now += 10 * sec
		for i := range n {
			s.Observe(fmt.Sprint("other", i), p, algo.Decision{Allowed: true, ResetAfter: sec}, 1, 0)
		}
		if s.Len() != 0 {
			t.Errorf("%d keys are left of %d", s.Len(), n)
		}
		if g := s.Granted("k0", p, 0); n == 1 && g != had {
			t.Errorf("%v was granted, %v before the outage", g, had)
		}
	}
}

// TestOnlyChargesRaise: an answer that charged nothing, and any answer while Redis is yet
// to be charged with local use, may lower what is left here and never raises it.
func TestOnlyChargesRaise(t *testing.T) {
	for _, kind := range algo.Kinds {
		home := mustParams(t, algo.Limit{Kind: kind, N: 10, Per: 3600 * sec, Burst: 10})
		for name, c := range map[string]struct {
			owing   bool
			left    int64
			charged bool
			want    int64
		}{
			"a peek that saw more":             {false, 10, false, 4},
			"a denial that saw less":           {false, 2, false, 2},
			"a charge":                         {false, 9, true, 9},
			"a charge while use is owed":       {true, 9, true, 4},
			"a charge, less left, use is owed": {true, 1, true, 1},
		} {
			now := t0
			s := storeAt(t, 10, &now)
			for range 6 {
				if c.owing {
					s.Take("k", &home, 1, &home, nil)
				} else {
					s.Decide("k", home, 1)
				}
			}
			granted := int64(0)
			if c.charged {
				granted = 1
			}
			s.Observe("k", home, algo.Decision{Allowed: c.charged, Remaining: c.left, ResetAfter: 3000 * sec}, granted, 0)
			if d := s.Decide("k", home, 0); d.Remaining != c.want {
				t.Errorf("%v, %s: %d left, want %d", kind, name, d.Remaining, c.want)
			}
		}
	}
}

// TestDebtOfARefill: a bucket that was used up when Redis was lost refills there, once. Local
// use does not drain as long as it does, or that refill would be used twice.
func TestDebtOfARefill(t *testing.T) {
	for _, kind := range algo.Kinds {
		if !kind.Bucket() {
			continue
		}
		home := mustParams(t, algo.Limit{Kind: kind, N: 10, Per: 10 * sec, Burst: 10})
		now := t0
		s := storeAt(t, 10, &now)
		s.Observe("k", home, algo.Decision{Allowed: true, ResetAfter: 10 * sec}, 1, 0)
		s.Take("k", &home, 1, &home, nil)
		for range 30 {
			if now += sec; !s.Take("k", &home, 1, &home, nil).Allowed {
				t.Fatalf("%v: a unit that was refilled is denied", kind)
			}
		}
		if d := takeDebts(s, 1); len(d) != 1 || units(d[0]) != 10 {
			t.Errorf("%v: %+v is owed of 30 units that were used as they were refilled", kind, d)
		}
	}
}

// TestDebtUnderWay: while a debt is being charged, Redis does not know of it, and what it
// says to a charge starts nothing anew.
func TestDebtUnderWay(t *testing.T) {
	home := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 10, Per: 3600 * sec, Burst: 10})
	now := t0
	s := storeAt(t, 10, &now)
	for range 6 {
		s.Take("k", &home, 1, &home, nil)
	}
	d, ok := s.TakeDebt(s.Debtors()[0])
	if !ok || units(d) != 6 || s.Owed() != 1 {
		t.Fatalf("%+v, %v; %d keys owe", d, ok, s.Owed())
	}
	told := algo.Decision{Allowed: true, Remaining: 9, ResetAfter: 360 * sec}
	s.Observe("k", home, told, 1, 0)
	if d := s.Decide("k", home, 0); d.Remaining != 4 {
		t.Errorf("%d left while the debt is under way", d.Remaining)
	}
	s.Settled(d, nil)
	s.Observe("k", home, told, 1, 0)
	if d := s.Decide("k", home, 0); d.Remaining != 9 || s.Owed() != 0 {
		t.Errorf("%d left after it, %d keys owe", d.Remaining, s.Owed())
	}
}

// TestStalePeekDoesNotRaiseTheAccount: a replica that is behind says more than the last charge did.
func TestStalePeekDoesNotRaiseTheAccount(t *testing.T) {
	home := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 10, Per: 3600 * sec, Burst: 10})
	now := t0
	s := storeAt(t, 10, &now)
	s.Observe("k", home, algo.Decision{Allowed: true, ResetAfter: 3600 * sec}, 1, 0)
	s.Observe("k", home, algo.Decision{Allowed: true, Remaining: 9, ResetAfter: 360 * sec}, 0, 0)
	if d := s.Decide("k", home, 0); d.Remaining != 0 {
		t.Errorf("%d left", d.Remaining)
	}
}

// TestBlockSentInPart: a shorter block that Redis knows of is not the longer one.
func TestBlockSentInPart(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 10, Per: sec, Burst: 10})
	now := t0
	s := storeAt(t, 10, &now)
	s.Block("k", p, 60*sec)
	s.Block("k", p, sec)
	s.Sent(algo.GCRA, "k", sec)
	if left := s.Unsent(algo.GCRA, "k"); left != 60*sec {
		t.Errorf("%d µs are to be sent", left)
	}
	s.Sent(algo.GCRA, "k", 60*sec)
	if s.Unsent(algo.GCRA, "k") != 0 || s.UnsentAny() {
		t.Error("sent again")
	}
}

// units are those of a debt.
func units(d Debt) (n int64) {
	for _, use := range d.Uses {
		n += use.Units
	}
	return n
}

// takeDebts takes all that still weigh. Of each some units are not charged.
func takeDebts(s *Store, failed int64) (out []Debt) {
	for _, k := range s.Debtors() {
		if d, ok := s.TakeDebt(k); ok {
			out = append(out, d)
			var back []algo.Use
			failed := failed
			for _, use := range d.Uses {
				if n := min(failed, use.Units); n > 0 {
					back, failed = append(back, algo.Use{Units: n, Age: use.Age}), failed-n
				}
			}
			s.Settled(d, back)
		}
	}
	return out
}

// TestDebts: what was admitted owing is taken once, less what has drained, and owed again
// when it could not be charged.
func TestDebts(t *testing.T) {
	for _, kind := range algo.Kinds {
		home := mustParams(t, algo.Limit{Kind: kind, N: 10, Per: 10 * sec, Burst: 10})
		now := t0
		s := storeAt(t, 100, &now)
		s.Decide("not owed", home, 3)
		s.Take("peek", &home, 0, &home, nil)
		for range 20 {
			s.Take("k", &home, 1, &home, nil)
		}
		s.Take("drained", &home, 1, &home, nil)
		if s.Owed() == 0 {
			t.Errorf("%v: nothing is owed", kind)
		}
		now += 2 * sec
		want, owed := 10, int64(0)
		if !kind.Windowed() {
			want = 8 // two have drained
		}
		for _, d := range takeDebts(s, 3) {
			switch {
			case d.ID == "k" && d.Limit == home:
				owed = units(d)
			case d.ID != "drained" || !kind.Windowed():
				t.Errorf("%v: %+v is owed", kind, d)
			}
		}
		if owed != int64(want) {
			t.Errorf("%v: %d units owed, want %d", kind, owed, want)
		}
		again := int64(0)
		for _, d := range takeDebts(s, 0) {
			if d.ID == "k" {
				again += units(d)
			}
		}
		if again != 3 {
			t.Errorf("%v: %d units are owed, want the 3 that were not charged", kind, again)
		}
		if again := takeDebts(s, 0); again != nil || s.Owed() > 0 {
			t.Errorf("%v: %v is owed twice", kind, again)
		}
		s.Take("reset", &home, 1, &home, nil)
		s.Reset("reset")
		if s.Owed() > 0 {
			t.Errorf("%v: a key that was reset owes", kind)
		}
	}
}

func TestDebtsAreBounded(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 1, Per: sec, Burst: 1})
	now := t0
	s := storeAt(t, 10, &now)
	for i := range 1000 {
		s.Take(fmt.Sprint("k", i), &p, 1, &p, nil)
		now += sec // so that earlier keys make room
	}
	if n := s.totals.owed.Load(); n > 10 {
		t.Errorf("%d debts with a cap of 10", n)
	}
}

// TestPartsBelowAUnit: of a limit of fewer units than there are processes, these admit together no more
// than P5 says in any time: one unit each, and their parts of the limit.
func TestPartsBelowAUnit(t *testing.T) {
	const processes, minutes = 100, 10
	for _, kind := range algo.Kinds {
		for _, share := range []float64{0.01, 0.005, 0.13} {
			p := mustParams(t, algo.Limit{Kind: kind, N: 5, Per: 60 * sec, Burst: 5})
			admitted, start := 0, int64(1_700_000_000)*sec
			for i := range int64(processes) {
				now := start
				s := newStore(10, func() int64 { return now })
				q := p.Scale(share)
				q.Phase = i * 7919
				retry := int64(0)
				for ; now < start+minutes*60*sec; now += sec {
					d := s.Decide("k", q, 1)
					if d.Allowed {
						admitted++
					}
					if d.Allowed && retry > now && kind != algo.TokenBucket {
						t.Errorf("%v: admitted %v before it was said to be", kind, retry-now)
					}
					if retry = now + d.RetryAfter; !d.Allowed && d.RetryAfter > 2*int64(60/share)*sec {
						t.Fatalf("%v: retry after %d", kind, d.RetryAfter)
					}
				}
			}
			part := processes * share * 5 * minutes
			if n := float64(admitted); n > part+processes || n < part*0.6 {
				t.Errorf("%v, a part of %v: %d were admitted, at most %v", kind, share*5, admitted, part+processes)
			}
		}
	}
}

// TestDebtsOutlastAWindowWithoutUnits: what was admitted is owed also when the part of the limit is less
// than a unit, and more is charged in a window in which the process has none.
func TestDebtsOutlastAWindowWithoutUnits(t *testing.T) {
	for _, kind := range []algo.Kind{algo.FixedWindow, algo.SlidingWindowCounter, algo.SlidingWindowLog} {
		now := int64(1_700_000_070) * sec // in the middle of a window
		s := newStore(10, func() int64 { return now })
		home := mustParams(t, algo.Limit{Kind: kind, N: 5, Per: 60 * sec, Burst: 5})
		own := home.Scale(0.01)
		if !s.Take("k", &own, 1, &home, nil).Allowed {
			t.Fatalf("%v: denied", kind)
		}
		now += 20 * sec
		if kind != algo.FixedWindow {
			now += 20 * sec // the next window
		}
		s.Charge("k", own, 2, &home)
		owed := int64(0)
		for _, of := range s.Debtors() {
			d, _ := s.TakeDebt(of)
			for _, use := range d.Uses {
				owed += use.Units
			}
		}
		if owed != 3 {
			t.Errorf("%v: %d are owed, want 3", kind, owed)
		}
	}
}

// TestPartsBelowAUnitOfForgottenKeys: a key that was forgotten because it is idle, or has no place, has
// no other unit before its part of the limit has produced one.
func TestPartsBelowAUnitOfForgottenKeys(t *testing.T) {
	const processes, minutes, share = 20, 30, 0.05
	other := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 5, Per: 86400 * sec, Burst: 500})
	for name, c := range map[string]struct {
		keys   int
		others func(s *Store, i int64)
	}{
		"Redis decides on other keys": {10, func(s *Store, i int64) {
			s.Observe(fmt.Sprint("other", i), other, algo.Decision{Allowed: true, Remaining: 4, ResetAfter: sec}, 1, 0)
		}},
		"another key needs its place": {1, func(s *Store, i int64) { s.Block(fmt.Sprint("other", i), other, sec/2) }},
		"another key keeps the place": {1, func(s *Store, _ int64) { s.Decide("other", other, 1) }},
	} {
		for _, kind := range []algo.Kind{algo.FixedWindow, algo.SlidingWindowCounter, algo.SlidingWindowLog} {
			p := mustParams(t, algo.Limit{Kind: kind, N: 5, Per: 60 * sec, Burst: 5})
			admitted, start := 0, int64(1_700_000_000)*sec
			for i := range int64(processes) {
				now := start
				s := newStore(c.keys, func() int64 { return now })
				q := p.Scale(share)
				q.Phase = i * 7919
				for ; now < start+minutes*60*sec; now += sec {
					c.others(s, now/sec)
					if s.Decide("k", q, 1).Allowed {
						admitted++
					}
				}
			}
			if most := 5*minutes + processes; admitted > most {
				t.Errorf("%s, %v: %d were admitted, at most %d", name, kind, admitted, most)
			}
		}
	}
}

// TestPartsOfKeysWithoutAPlace: of a part below a unit, a key that has no place has what it claims, however often it is asked
// for in a window.
func TestPartsOfKeysWithoutAPlace(t *testing.T) {
	const processes, minutes = 20, 3
	for _, kind := range []algo.Kind{algo.FixedWindow, algo.SlidingWindowCounter, algo.SlidingWindowLog} {
		p := mustParams(t, algo.Limit{Kind: kind, N: 2, Per: sec})
		admitted, claimed, start := 0, 0.0, int64(1_700_000_000)*sec
		for i := range int64(processes) {
			now := start
			s := storeAt(t, 1, &now)
			s.Observe("k", p, algo.Decision{Allowed: true, Remaining: 1, ResetAfter: sec}, 1, 0)
			s.Block("other", p, (minutes*60+1)*sec)
			for ; now < start+minutes*60*sec; now += sec / 20 {
				claim := 0.5/processes + 0.5*s.Granted("k", p, 0)
				claimed += claim * 2 / 20
				q := p.Scale(claim)
				q.Phase = i * 7919
				if s.Decide("k", q, 1).Allowed {
					admitted++
				}
			}
		}
		if most := claimed + processes; float64(admitted) > most {
			t.Errorf("%v: %d were admitted, %.0f claimed", kind, admitted, claimed)
		}
	}
}

// TestKeysHaveTwoAccounts: a key that has a place at times, and at others shares the state of those that have none, is
// admitted at most twice what its limit admits.
func TestKeysHaveTwoAccounts(t *testing.T) {
	const times = 100
	for i, kind := range algo.Kinds {
		p := mustParams(t, algo.Limit{Kind: kind, N: 5, Per: 60 * sec, Burst: 5})
		other := mustParams(t, algo.Limit{Kind: algo.Kinds[(i+1)%len(algo.Kinds)], N: 5, Per: 60 * sec, Burst: 5})
		start := int64(1_700_000_040) * sec
		now := start
		s := storeAt(t, 1, &now)
		admitted := 0
		for range times {
			for s.Decide("k", p, 1).Allowed {
				admitted++
			}
			now = s.get(kind, "k").idleAt
			s.Block("other", other, sec) // takes the place
			for s.Decide("k", p, 1).Allowed {
				admitted++
			}
			now += sec
		}
		per := (now - start) / sec * 5 / 60
		t.Logf("%v: %d were admitted, the limit is %d", kind, admitted, per)
		if least, most := int64(2*times*5), 2*(per+2*5); int64(admitted) < least || int64(admitted) > most {
			t.Errorf("%v: %d were admitted, %d to %d wanted", kind, admitted, least, most)
		}
	}
}

// TestKeysOfSeveralLimitsWithoutAPlace: keys that have no place do not share the state of a faster limit, in which what a
// slower one has admitted is soon over, nor that of a slower one.
func TestKeysOfSeveralLimitsWithoutAPlace(t *testing.T) {
	for _, kind := range algo.Kinds {
		slow := mustParams(t, algo.Limit{Kind: kind, N: 5, Per: 3600 * sec, Burst: 5})
		fast := mustParams(t, algo.Limit{Kind: kind, N: 1000, Per: sec, Burst: 1000})
		now := t0 - t0%(3600*sec)
		s := storeAt(t, 1, &now)
		s.Block("other", slow, 3600*sec) // takes the place
		var admitted [2]int
		for range 600 {
			for i, p := range []algo.Params{slow, fast} {
				if s.Decide(fmt.Sprint("k", i), p, 1).Allowed {
					admitted[i]++
				}
			}
			now += sec / 10
		}
		if admitted != [2]int{5, 600} {
			t.Errorf("%v: %d were admitted in a minute, of 5 an hour and of 600", kind, admitted)
		}
	}
}

// TestPartsOfALimitShareAState: keys that have no place go on in one state when the number of processes changes, and with it
// the part of the limit.
func TestPartsOfALimitShareAState(t *testing.T) {
	for _, kind := range algo.Kinds {
		p := mustParams(t, algo.Limit{Kind: kind, N: 60, Per: 3600 * sec, Burst: 60})
		now := t0 - t0%(3600*sec)
		s := storeAt(t, 1, &now)
		s.Block("other", p, 3600*sec) // takes the place
		admitted := 0
		for i := range 600 {
			part := p.Scale(1 / float64(2+i/60))
			if s.Decide("k", part, 1).Allowed {
				admitted++
			}
			now += sec
		}
		if admitted < 30 || admitted > 34 { // the half, and what a bucket regains: 600/3600 of the parts of 60
			t.Errorf("%v: %d were admitted", kind, admitted)
		}
	}
}

// TestSharedStatesAreBounded: however many limits keys without a place have.
func TestSharedStatesAreBounded(t *testing.T) {
	for _, kind := range algo.Kinds {
		now := t0
		s := storeAt(t, 1, &now)
		s.Block("other", mustParams(t, algo.Limit{Kind: kind, N: 5, Per: sec, Burst: 5}), 3600*sec)
		for round := range int64(2) {
			admitted := 0
			for i := range int64(3 * maxShared) {
				for s.Decide("k", mustParams(t, algo.Limit{Kind: kind, N: 5, Per: (100 + i + round*1000) * sec, Burst: 5}), 1).Allowed {
					admitted++
				}
			}
			if n := len(s.stripes[0].shared); n != maxShared || admitted < 5*maxShared {
				t.Errorf("%v, round %d: %d states, %d were admitted", kind, round, n, admitted)
			}
			now += 1800 * sec // what is fully reset makes room
		}
	}
}

// TestWhatHasPassedLowersNothing: what Redis said of a window that has ended does not count against the
// next one, of which it has only answered a peek.
func TestWhatHasPassedLowersNothing(t *testing.T) {
	for _, local := range []bool{false, true} {
		p := mustParams(t, algo.Limit{Kind: algo.FixedWindow, N: 10, Per: 3600 * sec})
		now := t0 - t0%(3600*sec)
		s := storeAt(t, 10, &now)
		if local {
			s.Decide("k", p, 1)
		}
		s.Observe("k", p, algo.Decision{Allowed: true, ResetAfter: 3600 * sec}, 10, 0)
		now += 3601 * sec
		s.Observe("k", p, algo.Decision{Allowed: true, Remaining: 9, ResetAfter: 3599 * sec}, 0, 0)
		if d := s.Decide("k", p, 0); d.Remaining != 9 {
			t.Errorf("local %v: %d left of 9", local, d.Remaining)
		}
	}
}

// TestBlockedTakesNoLock: that no key is blocked, or none any more, is known without the lock of a key's stripe, which each
// decision of an outage would take under the policy Open.
func TestBlockedTakesNoLock(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 10, Per: sec, Burst: 10})
	now := t0
	s := storeAt(t, 4, &now)
	unlocked := func(when string) {
		left := make(chan int64, 1)
		s.each(func(*stripe) {
			go func() { left <- s.Blocked(p.Kind, "k") }()
			select {
			case us := <-left:
				if us != 0 {
					t.Errorf("%s: blocked for %d", when, us)
				}
			case <-time.After(time.Minute):
				t.Errorf("%s: it waits for the lock", when)
			}
		})
	}
	unlocked("before")
	s.Block("k", p, 2*sec)
	s.Block("other", p, sec)
	if now += sec; s.Blocked(p.Kind, "k") != sec || s.Blocked(p.Kind, "other") != 0 {
		t.Error("the block has ended")
	}
	now += sec
	unlocked("after")
}
