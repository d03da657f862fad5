package inprocess

import (
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// TestBlocksThatRedisDoesNotKnow: each is listed with its limit until it is sent, over or reset,
// and a block that is no longer than the one there is changes nothing.
func TestBlocksThatRedisDoesNotKnow(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 10, Per: sec, Burst: 10})
	now := t0
	s := storeAt(t, 10, &now)
	if s.UnsentAny() || s.UnsentBlocks() != nil || s.Unsent(algo.GCRA, "a") != 0 {
		t.Fatal("a block of no key")
	}
	for _, id := range []string{"a", "b", "c"} {
		s.Block(id, p, 60*sec)
	}
	s.Decide("d", p, 1)
	var ids []string
	for _, b := range s.UnsentBlocks() {
		if ids = append(ids, b.ID); b.Limit != p {
			t.Errorf("%+v", b)
		}
	}
	slices.Sort(ids)
	if fmt.Sprint(ids) != "[a b c]" {
		t.Errorf("blocks of %v", ids)
	}
	if s.Unsent(algo.GCRA, "d") != 0 || s.Unsent(algo.GCRA, "e") != 0 {
		t.Error("a block of a key without one")
	}
	s.Sent(algo.GCRA, "a", 60*sec)
	if left := s.Block("a", p, 60*sec); left != 60*sec || s.Unsent(algo.GCRA, "a") != 0 {
		t.Errorf("a block of the same length is to be sent, %d left", left)
	}
	s.Reset("b")
	if s.Unsent(algo.GCRA, "b") != 0 || len(s.UnsentBlocks()) != 1 {
		t.Error("a block that was reset is to be sent")
	}
	now += 60*sec - 1
	for range 2 {
		if s.Unsent(algo.GCRA, "c") != 1 {
			t.Error("a block is over too early")
		}
	}
	now++
	if s.Unsent(algo.GCRA, "c") != 0 || s.UnsentAny() {
		t.Error("a block that is over is to be sent")
	}
}

// TestBlockedKeysAreKept: a full store has no room for a block of another key, and the block of
// a key keeps its place until it is over.
func TestBlockedKeysAreKept(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 10, Per: sec, Burst: 10})
	now := t0
	s := storeAt(t, 1, &now)
	s.Block("a", p, 60*sec)
	now += 60*sec - 1
	if left := s.Block("b", p, sec); left != 0 {
		t.Errorf("a second block in a store of one key, of %d µs", left)
	}
	now++
	if left := s.Block("b", p, sec); left != sec {
		t.Errorf("a block of %d µs when there is room again", left)
	}
	if got := s.UnsentBlocks(); len(got) != 1 || got[0].ID != "b" {
		t.Errorf("%v are to be sent", got)
	}
	now += sec
	s.Decide("c", p, 1)
	if s.UnsentAny() {
		t.Error("the block of a key that is forgotten is to be sent")
	}
}

// TestBucketTakesANewLimit: what is used of a token bucket whose limit changes stays used, also where that is
// more than the new burst, and it refills at the new rate once that has charged or denied something.
func TestBucketTakesANewLimit(t *testing.T) {
	for _, c := range []struct {
		n, per, burst, now, later int64
	}{
		{1, sec, 4, 0, 2},       // a smaller burst
		{1, sec, 3, 0, 1},       // less than what is used
		{1, sec, 1, 0, 0},       // much less
		{1, sec, 20, 15, 17},    // a larger one
		{3, sec, 10, 5, 10},     // another rate
		{1, 2 * sec, 10, 5, 6},  // a longer period
		{2, 2 * sec, 10, 5, 7},  // the same rate
		{1, 10 * sec, 10, 5, 5}, // much slower
	} {
		now := t0
		s := storeAt(t, 10, &now)
		s.Decide("k", mustParams(t, algo.Limit{Kind: algo.TokenBucket, N: 1, Per: sec, Burst: 10}), 4)
		p := mustParams(t, algo.Limit{Kind: algo.TokenBucket, N: c.n, Per: c.per, Burst: c.burst})
		s.Decide("k", p, 1)
		if d := s.Decide("k", p, 0); d.Remaining != c.now {
			t.Errorf("%+v: %d left", c, d.Remaining)
		}
		now += 2 * sec
		if d := s.Decide("k", p, 0); d.Remaining != c.later {
			t.Errorf("%+v: %d left after 2 s", c, d.Remaining)
		}
		now += 3600 * sec
		if d := s.Decide("k", p, 0); d.Remaining != c.burst {
			t.Errorf("%+v: %d left after an hour", c, d.Remaining)
		}
	}
}

// TestHeadroomOfTheBucket: who must leave some units is denied when fewer would remain, and is
// admitted after exactly the time said; who must leave none is not.
func TestHeadroomOfTheBucket(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.TokenBucket, N: 1, Per: sec, Burst: 10})
	kept := p
	kept.Keep = 2
	now := t0
	s := storeAt(t, 10, &now)
	if d := s.Decide("k", kept, 8); !d.Allowed || d.Remaining != 2 {
		t.Fatalf("%+v", d)
	}
	if d := s.Decide("k", kept, 0); !d.Allowed {
		t.Errorf("a peek: %+v", d)
	}
	d := s.Decide("k", kept, 1)
	if d.Allowed || d.RetryAfter != sec || d.Remaining != 2 {
		t.Errorf("%+v", d)
	}
	now += d.RetryAfter
	if d := s.Decide("k", kept, 1); !d.Allowed {
		t.Errorf("%+v", d)
	}
	if d := s.Decide("k", p, 2); !d.Allowed || d.Remaining != 0 {
		t.Errorf("%+v", d)
	}
}

// TestRefundsOfAKey: as many units come back as were refunded, under every algorithm, to a key
// that is known and to no other; Redis decides anew on a key that begins again.
func TestRefundsOfAKey(t *testing.T) {
	for _, kind := range algo.Kinds {
		if kind == algo.LeakyBucketShaping {
			continue // takes nothing back
		}
		p := mustParams(t, algo.Limit{Kind: kind, N: 10, Per: 3600 * sec, Burst: 10})
		now := t0
		s := storeAt(t, 10, &now)
		s.Refund("k", p, 3, 3)
		if s.Len() != 0 {
			t.Errorf("%v: a refund makes a key", kind)
		}
		s.Decide("k", p, 7)
		s.Refund("k", p, 3, 3)
		if d := s.Decide("k", p, 0); d.Remaining != 6 {
			t.Errorf("%v: %d left", kind, d.Remaining)
		}
		s.Observe("k", p, algo.Decision{Allowed: true, Remaining: 5, ResetAfter: 1800 * sec}, 1, 0)
		s.Refund("k", p, 3, 3)
		if d := s.Decide("k", p, 0); d.Remaining != 5 {
			t.Errorf("%v: %d left after Redis said 5", kind, d.Remaining)
		}
	}
}

// TestGiveBackForgivesADebt: what its receipt gives back is not owed any more, unless the debt
// has been settled since.
func TestGiveBackForgivesADebt(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 10, Per: 3600 * sec, Burst: 10})
	for _, settled := range []bool{false, true} {
		now := t0
		s := storeAt(t, 10, &now)
		var rc, none Receipt
		s.Take("k", &p, 7, &p, &rc)
		if settled {
			takeDebts(s, 0)
			s.Take("k", &p, 2, &p, nil)
		}
		if back := s.GiveBack("k", &none, 3); back != 0 {
			t.Errorf("%d units of no receipt", back)
		}
		if back := s.GiveBack("k", &rc, 3); back != 3 {
			t.Errorf("settled %v: %d units are given back", settled, back)
		}
		want := int64(4)
		if settled {
			want = 2
		}
		if d, ok := s.TakeDebt(s.Debtors()[0]); !ok || units(d) != want {
			t.Errorf("settled %v: %d units are owed, want %d", settled, units(d), want)
		}
	}
}

// TestReceiptsOfAnEarlierState: a state that has begun again takes nothing back.
func TestReceiptsOfAnEarlierState(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.TokenBucket, N: 10, Per: 3600 * sec, Burst: 10})
	now := t0
	s := storeAt(t, 10, &now)
	var rc Receipt
	s.Take("k", &p, 7, nil, &rc)
	s.Reset("k")
	s.Decide("k", p, 5)
	if back := s.GiveBack("k", &rc, 7); back != 0 || s.Decide("k", p, 0).Remaining != 5 {
		t.Errorf("%d units are given back to a key that was reset", back)
	}
}

// TestChargesOfAKey: a charge takes as many units as there is room for, also those that must
// remain and those of a key that is blocked, and all of them are owed.
func TestChargesOfAKey(t *testing.T) {
	for _, kind := range algo.Kinds {
		p := mustParams(t, algo.Limit{Kind: kind, N: 10, Per: 3600 * sec, Burst: 10})
		p.Keep = 2
		home := p
		now := t0
		s := storeAt(t, 10, &now)
		s.Charge("k", p, 9, &home)
		open := p
		open.Keep = 0
		if d := s.Decide("k", open, 0); d.Remaining != 1 {
			t.Errorf("%v: %d left after 9 of 10 were charged", kind, d.Remaining)
		}
		s.Charge("k", p, 3, &home)
		if d := s.Decide("k", open, 0); d.Remaining != 0 {
			t.Errorf("%v: %d left after 12 of 10 were charged", kind, d.Remaining)
		}
		if s.Owed() != 1 || s.Len() != 1 {
			t.Errorf("%v: %d debts of %d keys", kind, s.Owed(), s.Len())
		}
	}
}

// TestReturnedGrants: units that were given back were not granted, of a key with a state in this
// process and of one without.
func TestReturnedGrants(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 10, Per: 3600 * sec, Burst: 10})
	now := t0
	s := storeAt(t, 10, &now)
	said := algo.Decision{Allowed: true, Remaining: 2, ResetAfter: 1800 * sec}
	s.Decide("with", p, 1)
	for _, id := range []string{"with", "without"} {
		s.Observe(id, p, said, 8, 0)
		all := s.Granted(id, p, 0)
		s.Returned(p.Kind, id, 4)
		if half := s.Granted(id, p, 0); half < 0.49*all || half > 0.51*all {
			t.Errorf("%s a state: %g of %g after half was returned", id, half, all)
		}
		s.Returned(p.Kind, id, 5)
		if none := s.Granted(id, p, 0); none != 0 {
			t.Errorf("%s a state: %g after all was returned", id, none)
		}
	}
	s.Returned(p.Kind, "unknown", 4)
	if s.Granted("unknown", p, 0) != 0 || s.Len() != 1 {
		t.Error("a key that is not known")
	}
}

// TestLateReadsLowerOnly: an answer that charged nothing lowers what Redis said before of a key
// with a state here, and never raises it, under the same limit.
func TestLateReadsLowerOnly(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 10, Per: 3600 * sec, Burst: 10})
	for _, c := range []struct{ read, want int64 }{{9, 4}, {4, 4}, {1, 1}} {
		now := t0
		s := storeAt(t, 10, &now)
		s.Decide("k", p, 1)
		s.Observe("k", p, algo.Decision{Allowed: true, Remaining: 4, ResetAfter: 1800 * sec}, 1, 0)
		s.Observe("k", p, algo.Decision{Allowed: true, Remaining: c.read, ResetAfter: 1800 * sec}, 0, 0)
		if d := s.Decide("k", p, 0); d.Remaining != c.want {
			t.Errorf("%d left after a read of %d, want %d", d.Remaining, c.read, c.want)
		}
	}
}

// TestDebtorsAreSorted: by key and algorithm, so that they are charged in the same order in each
// run.
func TestDebtorsAreSorted(t *testing.T) {
	now := t0
	s := storeAt(t, 1000, &now)
	for i := range 50 {
		for _, kind := range []algo.Kind{algo.GCRA, algo.FixedWindow} {
			p := mustParams(t, algo.Limit{Kind: kind, N: 10, Per: 3600 * sec, Burst: 10})
			s.Take(fmt.Sprint(i), &p, 1, &p, nil)
		}
	}
	debtors := s.Debtors()
	for i, d := range debtors[1:] {
		if before := debtors[i]; before.ID() > d.ID() || before.ID() == d.ID() && before.Kind() >= d.Kind() {
			t.Errorf("%s, %v comes before %s, %v", before.ID(), before.Kind(), d.ID(), d.Kind())
		}
	}
	if len(debtors) != 100 || s.Owed() != 100 {
		t.Errorf("%d debtors", len(debtors))
	}
	s.Reset("7")
	if s.Owed() != 98 || len(s.Debtors()) != 98 {
		t.Error("what is owed of a key that was reset")
	}
}
