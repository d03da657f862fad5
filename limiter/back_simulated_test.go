package limiter_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestWhatGoesBackIsNotDeniedAnyMore: what was denied before units went back is asked for again, and units go back also for
// a caller who has left.
func TestWhatGoesBackIsNotDeniedAnyMore(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim := newLimiter(t, clients(t, r)(), daily(10), patient())
		res := reserve(t, lim, "k", 8)
		if res, err := lim.AllowN(t.Context(), "k", 3); err != nil || res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
		must(t, res.Cancel(t.Context()))
		if res, err := lim.AllowN(t.Context(), "k", 3); err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}

		gone, end := context.WithCancel(t.Context())
		end()
		for _, cost := range []int{0, 2} { // of one unit
			res := reserve(t, lim, "gone", 1)
			slowCalls(t, r, "p1", lim)
			time.Sleep(10 * time.Millisecond)
			must(t, res.Settle(gone, cost))
			r.SetPath("p1", func(p *sim.Path) { p.Delay = 0 })
			time.Sleep(10 * time.Second)
		}
		if n := left(t, lim, "gone"); n != 8 {
			t.Errorf("%d are left", n)
		}
	})
}

// TestSecondTryOfFewer: what a part took of Redis for the first try is not given back with what it held for the second one.
func TestSecondTryOfFewer(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		make := clients(t, r)
		rdb := make()
		leased := newLimiter(t, rdb, daily(100), patient(), limiter.WithPrefix("leased"), limiter.WithLease(4, time.Hour))
		small := newLimiter(t, rdb, daily(9), patient(), limiter.WithPrefix("small"))
		there := newLimiter(t, make(), daily(100), patient(), limiter.WithPrefix("leased"), limiter.WithLease(4, time.Hour))
		m := newMulti(t, limiter.Part{Name: "leased", Limiter: leased}, limiter.Part{Name: "small", Limiter: small})
		_, err := small.AllowN(t.Context(), "k", 7)
		must(t, err)
		_, err = leased.Allow(t.Context(), "k")
		must(t, err)
		if n := left(t, there, "k"); n != 96 {
			t.Errorf("%d are left beside a lease", n)
		}
		res, err := m.Reserve(t.Context(), "k", limiter.AtMost(5)) // three are held; there is room for two
		if err != nil || res.Admitted != 2 {
			t.Errorf("%+v, %v", res, err)
		}
		time.Sleep(10 * time.Millisecond) // more is fetched
		before := left(t, there, "k")
		must(t, res.Cancel(t.Context()))
		time.Sleep(10 * time.Millisecond)
		if n := left(t, there, "k"); n != before || left(t, small, "k") != 2 {
			t.Errorf("%d are left, and were %d", n, before)
		}
	})
}

// TestOneGroupApart: parts that Redis does not take together are given back also when nobody asked for a receipt.
func TestOneGroupApart(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := clients(t, r)()
		rdb.AddHook(new(slotted))
		first := newLimiter(t, rdb, daily(9), patient(), limiter.WithPrefix("first"))
		second := newLimiter(t, rdb, daily(3), patient(), limiter.WithPrefix("second"))
		m := newMulti(t, limiter.Part{Name: "first", Limiter: first}, limiter.Part{Name: "second", Limiter: second})
		for i, want := range []bool{true, false} {
			if res, err := m.AllowN(t.Context(), "k", 2); err != nil || res.Allowed != want {
				t.Errorf("%d: %+v, %v", i, res, err)
			}
		}
		if n := left(t, first, "k"); n != 7 {
			t.Errorf("%d are left", n)
		}
	})
}

// TestOpenPartHasNoClaim: in an outage a part that admits everything does so beyond what its claim would be.
func TestOpenPartHasNoClaim(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := clients(t, r)()
		open := newLimiter(t, rdb, daily(100), limiter.WithFallback(fallback.Open), limiter.WithExpectedProcesses(10), limiter.WithPrefix("open"), hasty(time.Hour))
		alone := newLimiter(t, rdb, daily(100), limiter.WithShare(1), limiter.WithPrefix("alone"), hasty(time.Hour))
		m := newMulti(t, limiter.Part{Name: "open", Limiter: open}, limiter.Part{Name: "alone", Limiter: alone})
		cut(t, r, "p1", open, alone)
		if res, err := m.AllowN(t.Context(), "k", 50); err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// TestBlockThatRedisDoesNotKnow denies by itself when Redis answers again, until Redis was told.
func TestBlockThatRedisDoesNotKnow(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim, _ := simulatedLimiter(t, r, "a", daily(10), limiter.WithShare(1))
		_, err := lim.Allow(t.Context(), "k")
		must(t, err)
		r.SetPath("a", func(p *sim.Path) { p.Refused = true })
		if err := lim.Block(t.Context(), "k", time.Hour); !errors.Is(err, limiter.ErrUnavailable) {
			t.Error(err)
		}
		r.SetPath("a", func(p *sim.Path) { p.Refused = false })
		before, commands := decisionsOf(lim), r.Commands()
		if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Allowed || res.Source != limiter.SourceLocal {
			t.Errorf("%+v, %v", res, err)
		}
		if n := decisionsOf(lim) - before; n != 1 || r.Commands() != commands {
			t.Errorf("counted %d times, after %d commands", n, r.Commands()-commands)
		}
		time.Sleep(time.Second)
		_, err = lim.Allow(t.Context(), "another")
		must(t, err)
		time.Sleep(time.Second)
		if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Allowed || res.Source != limiter.SourceRedis {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// TestCallerWhoLeavesSaysNothingOfTheKey: what was last known to be left stays known.
func TestCallerWhoLeavesSaysNothingOfTheKey(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim, _ := simulatedLimiter(t, r, "a", daily(100), patient(), limiter.WithLease(40, time.Hour))
		_, err := lim.Allow(t.Context(), "k")
		must(t, err)
		slowCalls(t, r, "a", lim)
		time.Sleep(10 * time.Millisecond)
		ctx, end := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, end)
		if res, err := lim.AllowN(ctx, "k", 45); !errors.Is(err, context.Canceled) {
			t.Errorf("%+v, %v", res, err)
		}
		if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceLease || res.Remaining != 98 {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// TestLocalSaysSo: each decision without Redis has its source, and of at most so many units the last one is taken, too.
func TestLocalSaysSo(t *testing.T) {
	lim, err := limiter.NewLocal(daily(3))
	must(t, err)
	defer lim.Close()
	for i, opt := range []limiter.CallOption{limiter.Cost(2), limiter.AtMost(2), limiter.AtMost(2), limiter.Cost(1)} {
		res, err := lim.Allow(t.Context(), "k", opt)
		if err != nil || res.Source != limiter.SourceLocal || res.Admitted != []int{2, 1, 0, 0}[i] {
			t.Errorf("%d: %+v, %v", i, res, err)
		}
	}
}

// TestPlacesInTheLineOfAMulti: who needs one unit of what is to come stands behind those who need more, which is how long it
// waits at least; whoever came first is served first.
func TestPlacesInTheLineOfAMulti(t *testing.T) {
	for name, c := range map[string]struct {
		first, second limiter.CallOption
		burst         int
		left          time.Duration // of the second one
		after         time.Duration
	}{
		"of at most two, one":      {limiter.Cost(5), limiter.AtMost(2), 5, 6500 * time.Millisecond, 6 * time.Second},
		"of at most many, one":     {limiter.Cost(5), limiter.AtMost(5), 5, 6500 * time.Millisecond, 6 * time.Second},
		"at most more than it has": {limiter.Cost(1), limiter.AtMost(3), 1, 2500 * time.Millisecond, 2 * time.Second},
		"a small one":              {limiter.Cost(5), limiter.Cost(1), 5, time.Minute, 6 * time.Second},
	} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			lim := newLimiter(t, clients(t, r)(), limiter.GCRA(limiter.PerSecond(1), c.burst), patient())
			m := newMulti(t, limiter.Part{Name: "one", Limiter: lim})
			_, err := m.Allow(t.Context(), "k", limiter.Cost(c.burst))
			must(t, err)
			began := time.Now()
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := m.Wait(t.Context(), "k", c.first); err != nil || time.Since(began) >= c.after-500*time.Millisecond {
					t.Errorf("%s: the first one: %v, after %v", name, err, time.Since(began))
				}
			})
			time.Sleep(10 * time.Millisecond)
			ctx, end := context.WithTimeout(t.Context(), c.left)
			defer end()
			res, err := m.Wait(ctx, "k", c.second)
			if took := time.Since(began); err != nil || res.Admitted != 1 || took < c.after-100*time.Millisecond || took > c.after+100*time.Millisecond {
				t.Errorf("%s: %+v, %v, after %v", name, res, err, took)
			}
			wg.Wait()
		})
	}
}

// TestLineByTheLimitOfTheKey: who stands in the line of a key with a limit of its own learns at once that it comes too late.
func TestLineByTheLimitOfTheKey(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim := newLimiter(t, r.Client("p1", redis.Options{MaxRetries: -1}), limiter.GCRA(limiter.PerSecond(100), 100), patient(),
			limiter.WithLimitFor(func(context.Context, string) limiter.Limit { return limiter.GCRA(limiter.Per(1, 10*time.Second), 1) }))
		_, err := lim.Allow(t.Context(), "k")
		must(t, err)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := lim.Wait(t.Context(), "k"); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Second)
		ctx, end := context.WithTimeout(t.Context(), 15*time.Second)
		defer end()
		began := time.Now()
		var late *limiter.WaitError
		if _, err := lim.Wait(ctx, "k"); !errors.As(err, &late) || time.Since(began) > time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		wg.Wait()
	})
}
