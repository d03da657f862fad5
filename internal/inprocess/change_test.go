package inprocess

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// changes are limits before and after a change.
var changes = [][2]algo.Limit{
	{{N: 10, Per: 86400 * sec, Burst: 10}, {N: 1000, Per: 3600 * sec, Burst: 10}},
	{{N: 1, Per: 5 * sec, Burst: 5}, {N: 7, Per: sec, Burst: 5}},
	{{N: 100, Per: 3600 * sec, Burst: 1000}, {N: 100, Per: sec, Burst: 100}},
	{{N: 1000, Per: sec, Burst: 1000}, {N: 10, Per: 86400 * sec, Burst: 10}},
	{{N: 10, Per: sec, Burst: 50}, {N: 10, Per: sec, Burst: 20}},
	{{N: 10, Per: sec, Burst: 20}, {N: 10, Per: sec, Burst: 50}},
}

// TestWaitsAfterAChange: a caller who is denied right after a change of the limit is admitted when RetryAfter says, and not
// before; also one who has peeked.
func TestWaitsAfterAChange(t *testing.T) {
	for _, kind := range []algo.Kind{algo.TokenBucket, algo.LeakyBucket, algo.LeakyBucketShaping, algo.GCRA} {
		for _, c := range changes {
			for _, cost := range []int64{1, 3} {
				c[0].Kind, c[1].Kind = kind, kind
				before, after := mustParams(t, c[0]), mustParams(t, c[1])
				for _, early := range []int64{2, 0} { // of a token bucket, times may be a microsecond off
					now := t0
					s := storeAt(t, 10, &now)
					for s.Decide("k", before, 1).Allowed {
					}
					if c[1].Burst > c[0].Burst {
						for s.Decide("k", after, 1).Allowed {
						}
					}
					peek := s.Peek("k", after, cost)
					if look := s.Peek("k", after, 0); look.Allowed != (c[1].Burst >= c[0].Burst) || look.Remaining != 0 {
						t.Errorf("%v, %+v to %+v: a peek of nothing: %+v", kind, c[0], c[1], look)
					}
					d := s.Decide("k", after, cost)
					if now += d.RetryAfter - early; d.Allowed || d.RetryAfter > 3600*sec || abs(d.RetryAfter-peek.RetryAfter) > 1 || s.Decide("k", after, cost).Allowed != (early == 0) {
						t.Errorf("%v, %+v to %+v, cost %d, %d early: %+v, a peek %+v", kind, c[0], c[1], cost, early, d, peek)
					}
				}
			}
		}
	}
}

// TestPeekUnderAnotherLimit changes nothing: neither what is left nor what can be given back.
func TestPeekUnderAnotherLimit(t *testing.T) {
	for _, kind := range []algo.Kind{algo.TokenBucket, algo.LeakyBucket, algo.GCRA} {
		for _, c := range changes {
			c[0].Kind, c[1].Kind = kind, kind
			p, other := mustParams(t, c[0]), mustParams(t, c[1])
			var left [2]algo.Decision
			for i := range left {
				now := t0
				s := storeAt(t, 10, &now)
				var rc Receipt
				s.Take("k", &p, 4, nil, &rc)
				now += sec / 4
				if i == 1 {
					s.Peek("k", other, 0)
					s.Decide("k", other, 0)
				}
				now += sec / 4
				s.GiveBack("k", &rc, 2)
				left[i] = s.Peek("k", p, 0)
			}
			if left[0] != left[1] {
				t.Errorf("%v, %+v and %+v: %+v, and %+v after peeks", kind, c[0], c[1], left[0], left[1])
			}
		}
	}
}
