package limiter_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestWaitWithCostZeroWaitsForTheEndOfABlock: who waits with a cost of 0, for the end of a block, sleeps until then.
func TestWaitWithCostZeroWaitsForTheEndOfABlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, decisions := counted(t, limiter.TokenBucket(limiter.PerSecond(10), 10))
		must(t, lim.Block(t.Context(), "k", time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		go func() {
			time.Sleep(time.Millisecond)
			if n := decisions.Load(); n > 3 {
				t.Errorf("%d decisions within a millisecond", n)
				cancel()
			}
		}()
		if _, err := lim.Wait(ctx, "k", limiter.Cost(0)); err != nil {
			t.Error(err)
		}
	})
}

// TestMultiWaitsWithoutCost: a request that costs nothing of one of the parts sleeps until the other
// one admits it.
func TestMultiWaitsWithoutCost(t *testing.T) {
	onBoth(t, func(t *testing.T, client func() *redis.Client) {
		rdb := client()
		var n atomic.Int64
		parts := layers(t, []redis.UniversalClient{rdb}, []limiter.Limit{limiter.TokenBucket(limiter.PerSecond(2), 1), limiter.TokenBucket(limiter.PerSecond(10), 10)},
			limiter.WithHooks(limiter.Hooks{Decision: func(context.Context, limiter.DecisionInfo) { n.Add(1) }}))
		m := newMulti(t, parts...)
		for range 2 {
			if _, err := m.Wait(t.Context(), "k", limiter.Cost(1), limiter.Cost(0)); err != nil {
				t.Fatal(err)
			}
		}
		if n := n.Load(); n > 20 {
			t.Errorf("%d decisions for one wait", n)
		}
	})
}

// TestWaiterOfAMultiAsksAfterAnotherPartsDenial: who stood behind one that waited for a part of which it needs
// little asks at once when that one has left.
func TestWaiterOfAMultiAsksAfterAnotherPartsDenial(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := clients(t, r)()
		parts := layers(t, []redis.UniversalClient{rdb}, []limiter.Limit{limiter.TokenBucket(limiter.PerSecond(10), 10), limiter.TokenBucket(limiter.PerHour(60), 100)})
		m := newMulti(t, parts...)
		_, err := m.Allow(t.Context(), "k", limiter.Cost(1), limiter.Cost(50))
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		big := make(chan error, 1)
		go func() { _, err := m.Wait(ctx, "k", limiter.Cost(1), limiter.Cost(100)); big <- err }()
		time.Sleep(100 * time.Millisecond)
		little := make(chan error, 1)
		go func() { _, err := m.Wait(t.Context(), "k", limiter.Cost(1), limiter.Cost(1)); little <- err }()
		time.Sleep(100 * time.Millisecond)
		cancel()
		if err := <-big; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		select {
		case err := <-little:
			must(t, err)
		case <-time.After(2 * time.Second):
			t.Error("it waits, although there is room")
		}
	})
}

// TestResetWhileAsking: a Reset that falls between the answer to the first one of a line and its pause is not lost.
func TestResetWhileAsking(t *testing.T) {
	for _, standing := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var lim *limiter.Limiter
			asked := 0
			lim, err := limiter.NewLocal(limiter.TokenBucket(limiter.PerHour(1), 1), limiter.WithHooks(limiter.Hooks{Decision: func(ctx context.Context, d limiter.DecisionInfo) {
				if d.Result.Allowed {
					return
				}
				if asked++; asked == 1 && !standing || asked == 2 && standing {
					must(t, lim.Reset(ctx, "k"))
				}
			}}))
			must(t, err)
			_, err = lim.Allow(t.Context(), "k")
			must(t, err)
			start := time.Now()
			if standing {
				go func() {
					time.Sleep(time.Minute)
					must(t, lim.SetLimit(limiter.TokenBucket(limiter.PerHour(2), 1)))
				}()
			}
			_, err = lim.Wait(t.Context(), "k")
			must(t, err)
			if d := time.Since(start); d > 2*time.Minute {
				t.Errorf("standing: %v: waited for %v", standing, d)
			}
		})
	}
}

// TestResetWakesOwnLimits: those too who wait for the key with a limit of their own.
func TestResetWakesOwnLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, _ := counted(t, limiter.TokenBucket(limiter.PerHour(1), 1))
		own := limiter.TokenBucket(limiter.PerHour(1), 2)
		_, err := lim.Allow(t.Context(), "k", own, limiter.Cost(2))
		must(t, err)
		start := time.Now()
		go func() {
			time.Sleep(time.Second)
			must(t, lim.Reset(t.Context(), "k"))
		}()
		_, err = lim.Wait(t.Context(), "k", own)
		must(t, err)
		if d := time.Since(start); d > time.Minute {
			t.Errorf("waited for %v", d)
		}
	})
}

// TestCloseOfAnyPartEndsWaits: those of a Multi end, whichever of its limiters is closed.
func TestCloseOfAnyPartEndsWaits(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := clients(t, r)()
		parts := layers(t, []redis.UniversalClient{rdb}, []limiter.Limit{limiter.TokenBucket(limiter.PerHour(1), 1), limiter.TokenBucket(limiter.PerHour(1), 1)})
		m := newMulti(t, parts...)
		_, err := m.Allow(t.Context(), "k")
		must(t, err)
		ended := make(chan error, 1)
		go func() { _, err := m.Wait(t.Context(), "k"); ended <- err }()
		time.Sleep(100 * time.Millisecond)
		must(t, parts[1].Limiter.Close())
		select {
		case err := <-ended:
			if !errors.Is(err, limiter.ErrClosed) {
				t.Error(err)
			}
		case <-time.After(2 * time.Second):
			t.Error("it still waits")
		}
	})
}

// TestStartAfterTheDeadlineIsRejectedAtOnce: a start after the deadline is not waited for.
func TestStartAfterTheDeadlineIsRejectedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, _ := counted(t, limiter.LeakyBucketShaping(limiter.PerSecond(1), 10))
		_, err := lim.Allow(t.Context(), "k")
		must(t, err)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
		defer cancel()
		_, err = lim.Wait(ctx, "k")
		var late *limiter.WaitError
		if d := time.Since(start); d > 0 || !errors.As(err, &late) || late.RetryAfter != time.Second {
			t.Errorf("told after %v: %v", d, err)
		}
	})
}
