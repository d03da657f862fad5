package limiter_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestReserveForCritical: the last part is for critical calls, in Redis, in
// process and in the fallback.
func TestReserveForCritical(t *testing.T) {
	t.Parallel()
	eachKind(t, 10, []limiter.LocalOption{limiter.WithCriticalHeadroom(0.2)}, func(t *testing.T, lim reserver, limit limiter.Limit) {
		ctx := t.Context()
		critical := limiter.Critical(ctx)
		allow := func(ctx context.Context, n int, admitted bool, remaining int) {
			t.Helper()
			res, err := lim.AllowN(ctx, "k", n)
			must(t, err)
			if res.Allowed != admitted || res.Remaining != remaining || admitted == (res.RetryAfter > 0) {
				t.Fatalf("%+v, want %v with %d remaining", res, admitted, remaining)
			}
		}
		if _, err := lim.AllowN(ctx, "k", 9); !errors.Is(err, limiter.ErrCostExceedsLimit) {
			t.Errorf("a cost of 9 of 10 with 2 in reserve: %v", err)
		}
		if got := left(t, lim, "k"); got != 8 {
			t.Errorf("a fresh key has %d remaining", got)
		}
		allow(ctx, 5, true, 3)
		allow(ctx, 4, false, 3)
		allow(critical, 1, true, 4)
		allow(ctx, 2, true, 0)
		allow(ctx, 1, false, 0)
		allow(critical, 1, true, 1)
		allow(ctx, 1, false, 0)
		allow(critical, 2, false, 1)
		allow(critical, 1, true, 0)
		allow(critical, 1, false, 0)
		if err := lim.Block(ctx, "b", time.Hour); err != nil && !errors.Is(err, limiter.ErrUnavailable) {
			t.Fatal(err)
		}
		if res, err := lim.AllowN(critical, "b", 1); err != nil && !errors.Is(err, limiter.ErrUnavailable) || res.Allowed {
			t.Errorf("a block does not hold for critical calls: %+v, %v", res, err)
		}
	})
}

// TestReserveUnderLoad: of many callers of both kinds at once, exactly the
// reserve is left to the critical ones.
func TestReserveUnderLoad(t *testing.T) {
	t.Parallel()
	for _, limit := range slow(100) {
		t.Run(limit.Algorithm(), func(t *testing.T) {
			lim := newLimiter(t, redistest.Client(t, redistest.Start(t)), limit, patient(), limiter.WithCriticalHeadroom(0.25))
			var normal, critical atomic.Int64
			together(300, func(int) (limiter.Result, error) {
				res, err := lim.Allow(t.Context(), "k")
				if res.Allowed {
					normal.Add(1)
				}
				return res, err
			})
			together(300, func(int) (limiter.Result, error) {
				res, err := lim.Allow(limiter.Critical(t.Context()), "k")
				if res.Allowed {
					critical.Add(1)
				}
				return res, err
			})
			if normal.Load() != 75 || critical.Load() != 25 {
				t.Errorf("%d and %d admitted, want 75 and 25", normal.Load(), critical.Load())
			}
		})
	}
}

// TestBadReserves: what is no part, or leaves nothing to one side.
func TestBadReserves(t *testing.T) {
	for _, f := range []float64{0, 1, -0.5, 1.5, nan()} {
		if _, err := limiter.NewLocal(limiter.GCRA(limiter.PerSecond(10), 10), limiter.WithCriticalHeadroom(f)); !errors.Is(err, limiter.ErrInvalidConfig) {
			t.Errorf("a reserve of %v: %v", f, err)
		}
	}
	if _, err := limiter.NewLocal(limiter.GCRA(limiter.PerSecond(10), 1), limiter.WithCriticalHeadroom(0.5)); !errors.Is(err, limiter.ErrInvalidConfig) {
		t.Errorf("a reserve of a burst of 1: %v", err)
	}
	lim, err := limiter.NewLocal(limiter.GCRA(limiter.PerSecond(10), 10), limiter.WithCriticalHeadroom(0.5))
	must(t, err)
	defer lim.Close()
	if _, err := lim.Allow(t.Context(), "k", limiter.GCRA(limiter.PerSecond(1), 1)); !errors.Is(err, limiter.ErrInvalidConfig) {
		t.Errorf("a tier without room for the reserve: %v", err)
	}
}

func nan() float64 { var z float64; return z / z }
