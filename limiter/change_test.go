package limiter_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// of returns limits of one algorithm: n units per 300 hours, or in a bucket of n.
func of(a string) func(n int) limiter.Limit {
	rate := limiter.Per(10, 300*time.Hour)
	return func(n int) limiter.Limit {
		switch a {
		case "fixed window":
			return limiter.FixedWindow(limiter.Per(n, 300*time.Hour))
		case "sliding window log":
			return limiter.SlidingWindowLog(limiter.Per(n, 300*time.Hour))
		case "sliding window counter":
			return limiter.SlidingWindowCounter(limiter.Per(n, 300*time.Hour))
		case "token bucket":
			return limiter.TokenBucket(rate, n)
		case "leaky bucket":
			return limiter.LeakyBucket(rate, n)
		case "leaky bucket shaping":
			return limiter.LeakyBucketShaping(rate, n)
		default:
			return limiter.GCRA(rate, n)
		}
	}
}

// TestChangedLimits: what a raise and a cut do to a key that is in use, in Redis,
// in process and in the fallback, for the limiter's own limit and for one of a
// call.
func TestChangedLimits(t *testing.T) {
	eachKind(t, 10, nil, func(t *testing.T, lim reserver, limit limiter.Limit) {
		limitOf := of(limit.Algorithm())
		key := "a tier"
		change := func(n int) []limiter.CallOption { return []limiter.CallOption{limitOf(n)} }
		for range 2 {
			ask := func(size, n int, admitted bool, remaining int) {
				t.Helper()
				opts := append(change(size), limiter.Cost(n))
				r, err := lim.Reserve(t.Context(), key, opts...)
				must(t, err)
				if r.Allowed != admitted || r.Remaining != remaining || r.Limit != limitOf(size) {
					t.Fatalf("%s, %d of %d: %+v, want %v with %d remaining", key, n, size, r.Result, admitted, remaining)
				}
			}
			ask(10, 6, true, 4)
			// A raise counts at once, and a cut leaves what is used.
			ask(20, 0, true, 14)
			ask(20, 10, true, 4)
			ask(3, 1, false, 0)
			key = "the limiter's own"
			change = func(n int) []limiter.CallOption {
				must(t, lim.(interface{ SetLimit(limiter.Limit) error }).SetLimit(limitOf(n)))
				return nil
			}
		}
		must(t, lim.(interface{ SetLimit(limiter.Limit) error }).SetLimit(limitOf(50)))
		if got := lim.(interface{ Limit() limiter.Limit }).Limit(); got != limitOf(50) {
			t.Errorf("the limit is %v", got)
		}
		if got := left(t, lim, "fresh"); got != 50 {
			t.Errorf("a fresh key has %d remaining of 50", got)
		}
		if err := lim.(interface{ SetLimit(limiter.Limit) error }).SetLimit(limiter.Limit{}); !errors.Is(err, limiter.ErrInvalidConfig) {
			t.Errorf("no limit at all: %v", err)
		}
		if got := left(t, lim, "fresh"); got != 50 {
			t.Errorf("after a bad change a fresh key has %d remaining of 50", got)
		}
	})
}

// TestRaisedRate: a caller that was told to wait waits less once the rate is
// raised.
func TestRaisedRate(t *testing.T) {
	eachKind(t, 10, nil, func(t *testing.T, lim reserver, limit limiter.Limit) {
		rates := map[string]func(limiter.Rate) limiter.Limit{
			"token bucket":         func(r limiter.Rate) limiter.Limit { return limiter.TokenBucket(r, 10) },
			"leaky bucket":         func(r limiter.Rate) limiter.Limit { return limiter.LeakyBucket(r, 10) },
			"leaky bucket shaping": func(r limiter.Rate) limiter.Limit { return limiter.LeakyBucketShaping(r, 10) },
			"gcra":                 func(r limiter.Rate) limiter.Limit { return limiter.GCRA(r, 10) },
		}
		newLimit := rates[limit.Algorithm()]
		if newLimit == nil {
			t.Skip("a window has no rate but its limit")
		}
		reserve(t, lim, "k", 10)
		before := reserve(t, lim, "k", 1)
		after, err := lim.Reserve(t.Context(), "k", newLimit(limiter.Per(1000, 300*time.Hour)))
		must(t, err)
		if before.Allowed || after.Allowed || after.RetryAfter > before.RetryAfter/99 {
			t.Errorf("told to wait %v, and %v at a hundred times the rate", before.RetryAfter, after.RetryAfter)
		}
	})
}
