package inprocess

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// TestGrantsOfAFleet: whatever processes ask for, what Redis granted each of them lately adds
// up to at most one limit when they lose it together, and to at most 1 + d/length of it when
// they lose it one after the other within d. Units that were given back do not count.
func TestGrantsOfAFleet(t *testing.T) {
	for _, kind := range algo.Kinds {
		for seed := range uint64(40) {
			rng := rand.New(rand.NewPCG(seed, uint64(kind)))
			per := sec * (1 + rng.Int64N(60))
			p := mustParams(t, algo.Limit{Kind: kind, N: 1 + rng.Int64N(200), Per: per, Burst: 1 + rng.Int64N(300)})
			length, _ := p.Grants()
			now := t0 + rng.Int64N(per)
			var redis algo.State
			fleet := make([]*Store, 1+rng.IntN(6))
			for i := range fleet {
				fleet[i] = storeAt(t, 10, &now)
			}
			skew := 1 + rng.Float64()*3
			ask := func(fleet []*Store) {
				now += rng.Int64N(int64(length) / 500)
				s := fleet[int(float64(len(fleet))*math.Pow(rng.Float64(), skew))]
				n := 1 + rng.Int64N(min(p.Cap, p.Cap/8+1))
				d := algo.Decide(p, &redis, now, n)
				if !d.Allowed {
					s.Observe("k", p, d, 0, 0)
					return
				}
				s.Observe("k", p, d, n, 0)
				if back := rng.Int64N(3 * n); back < n && kind != algo.LeakyBucketShaping {
					s.Returned(kind, "k", algo.GiveBack(p, &redis, now, now, n, back))
				}
			}
			sum := func() (sum float64) {
				for _, s := range fleet {
					sum += s.Granted("k", p, 0)
				}
				return sum
			}
			most := 0.0
			for range 3000 {
				ask(fleet)
				if got := sum(); got > 1 {
					t.Fatalf("%v, seed %d: %d processes have %.4f of %+v", kind, seed, len(fleet), got, p)
				} else {
					most = max(most, got)
				}
			}
			if most < 0.5 {
				t.Errorf("%v, seed %d: %d processes have at most %.2f of %+v, of which all was used", kind, seed, len(fleet), most, p)
			}
			began := now
			for i, s := range fleet {
				s.Decide("k", p, 0)
				for range rng.IntN(300) {
					if rest := fleet[i+1:]; len(rest) > 0 {
						ask(rest)
					}
				}
				if got, bound := sum(), 1+float64(now-began)/length; got > bound {
					t.Fatalf("%v, seed %d: %d processes that lose Redis within %d µs have %.4f of %+v, at most %.4f", kind, seed, len(fleet), now-began, got, p, bound)
				}
			}
			now += sec + rng.Int64N(100*per)
			if before := sum(); len(fleet) == 1 && before == 0 {
				t.Errorf("%v, seed %d: the grants are forgotten in an outage", kind, seed)
			}
		}
	}
}

// TestGrantsAreOfOneLimit: what was granted under one limit says nothing of another. A key
// that was reset has none.
func TestGrantsAreOfOneLimit(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 100, Per: sec, Burst: 100})
	small := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 1, Per: sec, Burst: 1})
	now := t0
	s := storeAt(t, 10, &now)
	s.Observe("k", p, algo.Decision{Allowed: true, ResetAfter: sec}, 100, 0)
	if g := s.Granted("k", small, 0); g != 0 {
		t.Errorf("%v of a limit of which nothing was granted", g)
	}
	if g := s.Granted("k", p, 0); g < 0.03 {
		t.Errorf("%v", g)
	}
	s.Reset("k")
	if g := s.Granted("k", p, 0); g != 0 {
		t.Errorf("%v of a key that was reset", g)
	}
}

// TestGrantsInAnOutage: while a process decides alone, what it was granted stays, also when
// Redis answers without charging, and when it comes back for a moment only. Then it is
// forgotten by and by.
func TestGrantsInAnOutage(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 100, Per: sec, Burst: 100})
	now := t0
	s := storeAt(t, 10, &now)
	told := algo.Decision{Allowed: true, ResetAfter: sec}
	s.Observe("k", p, told, 1000, 0)
	had := s.Granted("k", p, 0)
	s.Decide("k", p, 1)
	now += 3600 * sec
	for _, units := range []int64{0, 1} {
		s.Observe("k", p, told, units, 0)
		if g := s.Granted("k", p, 0); g < had || g > had+0.01 {
			t.Errorf("%v of the limit before the outage, %v after it", had, g)
		}
		s.Decide("k", p, 1)
		now += 3600 * sec
	}
	s.Observe("k", p, told, 1, 0)
	now += 120 * sec
	if g := s.Granted("k", p, 0); g > had/10 {
		t.Errorf("%v of the limit before the outage, %v two minutes after it", had, g)
	}
}

// TestGrantsOfCallersWithLittleTime: callers that leave before Redis has answered do not stop the time of what it granted,
// which it goes on granting to others.
func TestGrantsOfCallersWithLittleTime(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 100, Per: sec, Burst: 100})
	for _, ago := range []int64{0, 3601 * sec, math.MaxInt64} {
		now := t0
		s := storeAt(t, 10, &now)
		told := algo.Decision{Allowed: true, ResetAfter: sec}
		s.Observe("k", p, told, 1000, ago)
		had := s.Granted("k", p, ago)
		s.Decide("k", p, 1)
		now += 3600 * sec
		alone := s.Granted("k", p, ago)
		s.Observe("k", p, told, 1, ago)
		if after := s.Granted("k", p, ago); (alone >= had && after >= had) != (ago == 0) || ago != 0 && (alone > 0.01 || after > 0.01) {
			t.Errorf("away %d µs ago: %v before, %v alone, %v after", ago, had, alone, after)
		}
	}
}
