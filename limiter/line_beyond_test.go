package limiter_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
)

// TestShapingKeepsItsOrder: in a line for a shaping limit the first to come is the first to start, also
// after a block, when the first of them has no delay.
func TestShapingKeepsItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := limiter.NewLocal(limiter.LeakyBucketShaping(limiter.PerSecond(10), 20))
		must(t, err)
		defer l.Close()
		must(t, l.Block(t.Context(), "k", 5*time.Second))
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 15 {
			wg.Go(func() {
				_, err := l.Wait(t.Context(), "k")
				must(t, err)
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
			})
			synctest.Wait()
		}
		wg.Wait()
		if !slices.IsSorted(order) {
			t.Error(order)
		}
	})
}

// TestCriticalCallersAheadTakeAll: critical callers who stand ahead are admitted from the whole limit, so
// one whose deadline they leave time for is not told that it is too late.
func TestCriticalCallersAheadTakeAll(t *testing.T) {
	for _, limit := range []limiter.Limit{
		limiter.SlidingWindowLog(limiter.PerSecond(100)), limiter.FixedWindow(limiter.PerSecond(100)),
		limiter.SlidingWindowCounter(limiter.PerSecond(100)), limiter.GCRA(limiter.PerSecond(100), 100),
	} {
		synctest.Test(t, func(t *testing.T) {
			l, err := limiter.NewLocal(limit, limiter.WithCriticalHeadroom(0.9))
			must(t, err)
			defer l.Close()
			critical := limiter.Critical(t.Context())
			_, err = l.AllowN(critical, "k", 100)
			must(t, err)
			for range 90 {
				go func() { _, _ = l.Wait(critical, "k") }()
			}
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			if _, err := l.Wait(ctx, "k"); err != nil {
				t.Errorf("%v: %v", limit, err)
			}
		})
	}
}

// TestReturnedUnitsEndAWait: units that are given back, and a reset, end the waits of those who stand in
// line, and of those who come.
func TestReturnedUnitsEndAWait(t *testing.T) {
	for name, change := range map[string]func(context.Context, *limiter.Limiter, *limiter.Reservation) error{
		"refund": func(ctx context.Context, l *limiter.Limiter, _ *limiter.Reservation) error {
			return l.Refund(ctx, "k", 10)
		},
		"cancel": func(ctx context.Context, _ *limiter.Limiter, r *limiter.Reservation) error { return r.Cancel(ctx) },
		"reset":  func(ctx context.Context, l *limiter.Limiter, _ *limiter.Reservation) error { return l.Reset(ctx, "k") },
	} {
		synctest.Test(t, func(t *testing.T) {
			l, err := limiter.NewLocal(limiter.FixedWindow(limiter.Per(10, 24*time.Hour)))
			must(t, err)
			defer l.Close()
			r, err := l.Reserve(t.Context(), "k", limiter.Cost(10))
			must(t, err)
			start := time.Now()
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := l.Wait(t.Context(), "k")
				must(t, err)
			})
			synctest.Wait()
			must(t, change(t.Context(), l, r))
			_, err = l.Wait(t.Context(), "k")
			must(t, err)
			wg.Wait()
			if d := time.Since(start); d != 0 {
				t.Errorf("%s: waited %v", name, d)
			}
		})
	}
}

// TestDenialsSayThatTheyAreBeyondTheClaim: those of a Multi too, whose parts are decided together, apart
// from those that the process may admit later.
func TestDenialsSayThatTheyAreBeyondTheClaim(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	one := newLimiter(t, rdb, limiter.GCRA(limiter.PerHour(10), 20), limiter.WithShare(0.5), limiter.WithPrefix("one"))
	two := newLimiter(t, rdb, limiter.GCRA(limiter.PerHour(10), 100), limiter.WithShare(0.5), limiter.WithPrefix("two"))
	multi := newMulti(t, limiter.Part{Name: "one", Limiter: one}, limiter.Part{Name: "two", Limiter: two})
	for name, lim := range map[string]limiter.Allower{"limiter": one, "multi": multi} {
		for _, c := range []struct {
			n               int
			allowed, beyond bool
		}{{11, false, true}, {10, true, false}, {10, false, false}} {
			res, err := lim.AllowN(t.Context(), name, c.n)
			must(t, err)
			if res.Allowed != c.allowed || res.BeyondClaim != c.beyond || res.Claim != 0.5 {
				t.Errorf("%s: %d units: %+v", name, c.n, res)
			}
		}
	}
}
