package inprocess

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/internal/algo"
)

const (
	second = 1_000_000
	start  = 1_760_000_000_000_000
)

// TestGiveBackAfterwards: what has begun anew takes nothing back.
func TestGiveBackAfterwards(t *testing.T) {
	for _, kind := range algo.Kinds {
		if kind == algo.LeakyBucketShaping {
			continue
		}
		p := mustParams(t, algo.Limit{Kind: kind, N: 10, Per: 3600 * second, Burst: 10})
		for name, c := range map[string]struct {
			between func(s *Store)
			left    int64
		}{
			"nothing": {func(*Store) {}, 10},
			"Redis decides": {func(s *Store) {
				s.Observe("k", p, algo.Decision{Allowed: true, Remaining: 3, ResetAfter: 3600 * second}, 1, 0)
			}, 3},
			"and is lost again": {func(s *Store) {
				s.Observe("k", p, algo.Decision{Allowed: true, Remaining: 3, ResetAfter: 3600 * second}, 1, 0)
				s.Decide("k", p, 0)
			}, 3},
			"reset, then used":     {func(s *Store) { s.Reset("k"); s.Decide("k", p, 4) }, 6},
			"all given back":       {func(s *Store) { s.Refund("k", p, 10, 10) }, 10},
			"charged beyond limit": {func(s *Store) { s.Charge("k", p, 50, nil) }, 5},
		} {
			now := int64(start)
			s := storeAt(t, 100, &now)
			var rc Receipt
			if d := s.Take("k", &p, 5, nil, &rc); !d.Allowed {
				t.Fatalf("%v: %+v", kind, d)
			}
			c.between(s)
			now++
			s.GiveBack("k", &rc, 5)
			if d := s.Decide("k", p, 0); d.Remaining < c.left-1 || d.Remaining > c.left {
				t.Errorf("%v, %s: %d remaining, want %d", kind, name, d.Remaining, c.left)
			}
		}
	}
}

// TestLocalGiveBackStaysWithinTheLimit: whatever a token bucket takes back, what is used stays
// within the limit in any stretch of time.
func TestLocalGiveBackStaysWithinTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		burst := rapid.Int64Range(1, 20).Draw(t, "burst")
		perSecond := rapid.Int64Range(1, 20).Draw(t, "rate")
		p, err := algo.Limit{Kind: algo.TokenBucket, N: perSecond, Per: second, Burst: burst}.Params()
		if err != nil {
			t.Fatal(err)
		}
		now := int64(start)
		s := newStore(100, func() int64 { return now })
		type use struct {
			at, n int64
			rc    Receipt
			given bool
		}
		var uses []use
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.Int64Range(0, second).Draw(t, "pause")
			if len(uses) > 0 && rapid.IntRange(0, 2).Draw(t, "what") == 0 {
				u := &uses[rapid.IntRange(0, len(uses)-1).Draw(t, "which")]
				if !u.given {
					n := rapid.Int64Range(1, u.n).Draw(t, "unused")
					s.GiveBack("k", &u.rc, n)
					u.n, u.given = u.n-n, true
				}
				continue
			}
			u := use{at: now, n: rapid.Int64Range(1, burst).Draw(t, "cost")}
			if s.Take("k", &p, u.n, nil, &u.rc).Allowed {
				uses = append(uses, u)
			}
		}
		// What a float64 tells of a time of this size is a microsecond's part.
		const float = 1e-3
		for i := range uses {
			var sum int64
			for j := i; j < len(uses); j++ {
				sum += uses[j].n
				if most := float64(burst) + float64(perSecond)*float64(uses[j].at-uses[i].at)/second; float64(sum) > most+float {
					t.Fatalf("%d used from %d to %d µs, at most %v", sum, uses[i].at-start, uses[j].at-start, most)
				}
			}
		}
	})
}

// TestResetDropsTheDebtOfAKeyWithoutAPlace: a key that was reset owes nothing, also where another one,
// of which nothing is owed, has its place.
func TestResetDropsTheDebtOfAKeyWithoutAPlace(t *testing.T) {
	now := t0
	s := storeAt(t, 1, &now)
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 1, Per: sec, Burst: 10})
	if !s.Take("k", &p, 5, nil, nil).Allowed || !s.Take("other", &p, 5, &p, nil).Allowed || s.Owed() != 1 {
		t.Fatalf("%d debts", s.Owed())
	}
	s.Reset("other")
	if s.Owed() != 0 || len(s.Debtors()) != 0 {
		t.Errorf("%d debts after the reset: %v", s.Owed(), s.Debtors())
	}
}
