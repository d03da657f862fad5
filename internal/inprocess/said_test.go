package inprocess

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// TestLastWordOfRedis: of what Redis says before this process decides, the last charge counts, a read
// may lower it, and what was said of a time that has passed counts no more; also where the key is
// blocked here meanwhile, and where it has a state here.
func TestLastWordOfRedis(t *testing.T) {
	type word struct{ left, granted int64 }
	p := mustParams(t, algo.Limit{Kind: algo.FixedWindow, N: 10, Per: 3600 * sec})
	for _, c := range []struct {
		words []word
		pause int64 // before the last
		want  int64
	}{
		{[]word{{2, 1}, {9, 1}}, sec, 9},
		{[]word{{9, 1}, {2, 1}}, sec, 2},
		{[]word{{2, 8}, {9, 0}}, sec, 2},
		{[]word{{9, 1}, {2, 0}}, sec, 2},
		{[]word{{0, 10}, {9, 0}}, 3600*sec - 1, 0},
		{[]word{{0, 10}, {9, 0}}, 3600 * sec, 9},
		{[]word{{0, 10}, {9, 0}}, 3601 * sec, 9},
	} {
		for name, use := range map[string]func(s *Store, first bool){
			"no state": func(*Store, bool) {},
			"a state": func(s *Store, first bool) {
				if first {
					s.Decide("k", p, 1)
				}
			},
			"a block": func(s *Store, first bool) {
				if !first {
					s.Block("k", p, sec/2)
				}
			},
		} {
			now := t0 - t0%(3600*sec)
			s := storeAt(t, 10, &now)
			use(s, true)
			for i, w := range c.words {
				if i == len(c.words)-1 {
					use(s, false)
					now += c.pause
				}
				end := 3600*sec - now%(3600*sec)
				s.Observe("k", p, algo.Decision{Allowed: true, Remaining: w.left, ResetAfter: end}, w.granted, 0)
			}
			if d := s.Decide("k", p, 0); d.Remaining != c.want {
				t.Errorf("%v, %s: %d left, want %d", c, name, d.Remaining, c.want)
			}
		}
	}
}

// TestChargesWhileUseIsOwed: a charge in Redis that does not hold what is owed yet lowers what is left
// here, but an earlier and lower one counts no more.
func TestChargesWhileUseIsOwed(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 10, Per: 3600 * sec, Burst: 10})
	now := t0
	s := storeAt(t, 10, &now)
	s.Take("k", &p, 3, &p, nil)
	for _, left := range []int64{2, 9} {
		s.Observe("k", p, algo.Decision{Allowed: true, Remaining: left, ResetAfter: 3600 * sec}, 1, 0)
	}
	if d := s.Decide("k", p, 0); d.Remaining != 7 {
		t.Errorf("%d left, want 7", d.Remaining)
	}
}

// TestGiveBackAfterAWarmStart: a state that began with what Redis said takes back what it admitted,
// also when Redis has said since that as much is left as there is.
func TestGiveBackAfterAWarmStart(t *testing.T) {
	for _, kind := range algo.Kinds {
		if kind == algo.LeakyBucketShaping {
			continue // takes nothing back
		}
		p := mustParams(t, algo.Limit{Kind: kind, N: 10, Per: 3600 * sec, Burst: 10})
		now := t0
		s := storeAt(t, 10, &now)
		s.Observe("k", p, algo.Decision{Allowed: true, Remaining: 8, ResetAfter: 3600 * sec}, 2, 0)
		var rc Receipt
		s.Take("k", &p, 5, nil, &rc)
		s.Observe("k", p, algo.Decision{Remaining: 3, ResetAfter: 3600 * sec}, 0, 0)
		s.Decide("k", p, 0)
		if back := s.GiveBack("k", &rc, 4); back != 4 || s.Decide("k", p, 0).Remaining != 7 {
			t.Errorf("%v: %d units are given back, want 4", kind, back)
		}
	}
}

// TestReceiptsOfWhatWasDenied give nothing back.
func TestReceiptsOfWhatWasDenied(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 10, Per: 3600 * sec, Burst: 10})
	now := t0
	s := storeAt(t, 10, &now)
	s.Decide("k", p, 5)
	var rc Receipt
	s.Take("k", &p, 8, nil, &rc)
	if back := s.GiveBack("k", &rc, 4); back != 0 || s.Decide("k", p, 0).Remaining != 5 {
		t.Errorf("%d units are given back of a cost that was denied", back)
	}
}

// TestGrantsFade while Redis decides, of a key with a state here and without, before an outage and
// after it; the outage itself does not count, nor does a read, also of another limit.
func TestGrantsFade(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 100, Per: sec, Burst: 100})
	other := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 1, Per: sec, Burst: 1})
	length, most := p.Grants()
	const granted = 1000
	said := algo.Decision{Allowed: true, ResetAfter: sec}
	for name, c := range map[string]struct {
		then func(s *Store, now *int64)
		want float64 // of what was granted, times e^-1 for each length
	}{
		"at once":  {func(*Store, *int64) {}, 1},
		"a length": {func(_ *Store, now *int64) { *now += int64(length) }, 0.3679},
		"another charge": {func(s *Store, now *int64) {
			*now += int64(length)
			s.Observe("k", p, said, 1, 0)
		}, 0.3679},
		"two charges after an outage": {func(s *Store, now *int64) {
			s.Decide("k", p, 1)
			s.Observe("k", p, said, 1, 0)
			*now += int64(length)
			s.Observe("k", p, said, 1, 0)
		}, 0.3679},
		"another limit": {func(s *Store, _ *int64) { s.Observe("k", other, said, 0, 0) }, 1},
		"an outage": {func(s *Store, now *int64) {
			*now += int64(length)
			s.Decide("k", p, 1)
			*now += 3600 * sec
		}, 0.3679},
		"and its end": {func(s *Store, now *int64) {
			*now += int64(length)
			s.Decide("k", p, 1)
			*now += 3600 * sec
			s.Observe("k", p, said, 1, 0)
		}, 0.3679},
		"and forgotten after it": {func(s *Store, now *int64) {
			*now += int64(length)
			s.Decide("k", p, 1)
			*now += 3600 * sec
			s.Observe("other", p, algo.Decision{}, 0, 0)
			if s.Len() != 0 {
				t.Error("not forgotten")
			}
		}, 0.3679},
		"and forgotten later": {func(s *Store, now *int64) {
			s.Decide("k", p, 1)
			*now += 3600 * sec
			s.Observe("k", p, said, 1, 0)
			*now += int64(length)
			s.Observe("other", p, algo.Decision{}, 0, 0)
			if s.Len() != 0 {
				t.Error("not forgotten")
			}
			*now += int64(length)
		}, 0.1353},
	} {
		now := t0
		s := storeAt(t, 10, &now)
		s.Observe("k", p, said, granted, 0)
		c.then(s, &now)
		if got, want := s.Granted("k", p, 0), c.want*granted/most; got < 0.99*want || got > 1.01*want {
			t.Errorf("%s: %v of the limit, want %v", name, got, want)
		}
	}
}

// TestGrantsAreAPart of the limit: never more than all of it, and none of a key that only this process
// has decided on, or of which Redis has only been asked.
func TestGrantsAreAPart(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 1, Per: sec, Burst: 1})
	now := t0
	s := storeAt(t, 10, &now)
	s.Decide("local", p, 1)
	s.Decide("asked", p, 1)
	s.Observe("asked", p, algo.Decision{ResetAfter: sec}, 0, 0)
	s.Observe("hot", p, algo.Decision{ResetAfter: sec}, 1_000_000, 0)
	for id, want := range map[string]float64{"local": 0, "asked": 0, "hot": 1, "unknown": 0} {
		if got := s.Granted(id, p, 0); got != want {
			t.Errorf("%s: %v of the limit, want %v", id, got, want)
		}
	}
}

// TestGrantsOfForgottenKeys: each key of an outage that is forgotten keeps what it was granted where there
// is a place for each, and one of them where what Redis said of others has just passed.
func TestGrantsOfForgottenKeys(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 1, Per: sec, Burst: 10})
	said := algo.Decision{Allowed: true, Remaining: 9, ResetAfter: sec}
	for _, taken := range []bool{false, true} {
		now := t0
		s := storeAt(t, ways, &now)
		for i := range ways {
			s.Observe(fmt.Sprint(i), p, said, 1, 0)
			s.Decide(fmt.Sprint(i), p, 1)
		}
		if taken {
			for i := range ways {
				s.Observe(fmt.Sprint("other", i), p, algo.Decision{Allowed: true, ResetAfter: 10 * sec}, 1, 0)
			}
		}
		for now += 10 * sec; s.Len() > 0; {
			s.Observe("new", p, algo.Decision{Allowed: true, Remaining: 10}, 0, 0)
		}
		kept, want := 0, ways
		if taken {
			want = 1
		}
		for i := range ways {
			if s.Granted(fmt.Sprint(i), p, 0) > 0 {
				kept++
			}
		}
		if kept != want {
			t.Errorf("taken %v: what was granted of %d keys is kept, want %d", taken, kept, want)
		}
	}
}

// TestClockOfAStore begins with the time of day and goes on with it.
func TestClockOfAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := newClock()
		for range 3 {
			if got, want := now(), time.Now().UnixMicro(); got != want {
				t.Errorf("%d, want %d", got, want)
			}
			time.Sleep(1234567 * time.Microsecond)
		}
	})
}

// TestReadsOfAnotherLimitRaiseNothing: what Redis has left of a larger limit of the same key does not raise what this process has left of
// the limit that it charged, whether or not the key has a state here.
func TestReadsOfAnotherLimitRaiseNothing(t *testing.T) {
	small := mustParams(t, algo.Limit{Kind: algo.FixedWindow, N: 100, Per: 3600 * sec})
	large := mustParams(t, algo.Limit{Kind: algo.FixedWindow, N: 1000, Per: 3600 * sec})
	for _, known := range []bool{false, true} {
		now := t0
		s := storeAt(t, 4, &now)
		if known {
			s.Decide("k", small, 1)
		}
		s.Observe("k", small, algo.Decision{Allowed: true, Remaining: 10, ResetAfter: 60 * sec}, 90, 0)
		now += sec
		s.Observe("k", large, algo.Decision{Allowed: true, Remaining: 910, ResetAfter: 59 * sec}, 0, 0)
		now += sec
		if d := s.Decide("k", small, 0); d.Remaining != 10 {
			t.Errorf("known %t: %d remaining", known, d.Remaining)
		}
	}
}
