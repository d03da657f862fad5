package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestFiveHundredCallersOnAFrozenServer: all are answered within the budget, and
// neither goroutines nor connections pile up beyond the calls allowed in flight.
func TestFiveHundredCallersOnAFrozenServer(t *testing.T) {
	const inFlight = 16
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		// Its sockets keep the client's timeouts, so that calls get stuck.
		rdb := r.Client("a", redis.Options{MaxRetries: -1, PoolSize: 3 * inFlight})
		t.Cleanup(func() { _ = rdb.Close() })
		lim := newLimiter(t, rdb, good, limiter.WithMaxInFlight(inFlight), limiter.WithBreaker(breaker.Settings{MinRequests: 1e6, ConsecutiveFailures: 1e6}))
		if _, err := lim.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		r.Set(func(h *sim.Health) { h.Frozen = true })
		// Each round leaves some calls behind, until as many are stuck as may be in flight.
		most := 0
		for round, full := 0, 0; round < 30 && full < 5; round++ {
			if most > inFlight/2 {
				full++
			}
			started := trace(t)
			start := time.Now()
			started.do(func() {
				for range 500 {
					go func() {
						res, err := lim.Allow(context.Background(), "k")
						if took := time.Since(start); err != nil || res.Source != limiter.SourceLocal || took > defaultBudget {
							t.Errorf("%+v, %v after %v", res, err, took)
						}
					}()
				}
			})
			for time.Since(start) <= defaultBudget {
				synctest.Wait()
				most = max(most, started.calls())
				time.Sleep(5 * time.Millisecond)
			}
			if n := rdb.PoolStats().TotalConns; n > inFlight+1 {
				t.Errorf("%d connections", n)
			}
		}
		if most <= inFlight/2 || most > inFlight {
			t.Errorf("up to %d calls ran with %d allowed", most, inFlight)
		}
		r.Set(func(h *sim.Health) { h.Frozen = false })
	})
}

// TestOneBudgetForAllCalls: what asks several parts of a key, or several servers, or gives
// back what some of them granted, has one budget for all of it.
func TestOneBudgetForAllCalls(t *testing.T) {
	t.Parallel()
	const budget = 2 * time.Second
	opts := []limiter.Option{limiter.WithBudget(budget), limiter.WithShare(1), limiter.WithoutDenialCache(),
		limiter.WithBreaker(breaker.Settings{MinRequests: 1e6, ConsecutiveFailures: 1e6})}
	within := func(t *testing.T, decide func() (limiter.Result, error)) limiter.Result {
		t.Helper()
		m := measured(t)
		start := time.Now()
		res, err := decide()
		must(t, err)
		if took := time.Since(start); took > m.within(budget) {
			t.Errorf("%v with a budget of %v: %+v", took, budget, res)
		}
		return res
	}
	t.Run("parts of a key", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Start(t)
		lim := newLimiter(t, redistest.Client(t, srv), limiter.FixedWindow(limiter.Per(2, 300*time.Hour)), append(opts, limiter.WithKeyShards(2))...)
		for range 2 {
			if res, err := lim.Allow(t.Context(), "k"); err != nil || !res.Allowed || res.Source != limiter.SourceRedis {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		must(t, srv.Freeze())
		t.Cleanup(func() { _ = srv.Thaw() }) // Close waits for the calls that it holds up
		if res := within(t, func() (limiter.Result, error) { return lim.Allow(t.Context(), "k") }); res.Allowed || res.Source != limiter.SourceLocal {
			t.Errorf("%+v", res)
		}
	})
	for name, back := range map[string]bool{"servers of a Multi": false, "what a Multi gives back": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var parts []limiter.Part
			var freeze []func() error
			var armed atomic.Bool
			all := func() {
				for _, f := range freeze {
					must(t, f())
				}
			}
			for i := range 3 {
				srv := redistest.Start(t)
				own := append(slices.Clone(opts), limiter.WithPrefix(string(rune('a'+i))))
				if i < 2 {
					freeze = append(freeze, srv.Freeze)
				} else if back { // the others stand still as soon as the last one has answered
					own = append(own, limiter.WithHooks(limiter.Hooks{Call: func(context.Context, limiter.CallInfo) {
						if armed.Swap(false) {
							all()
						}
					}}))
				}
				limit := limiter.FixedWindow(limiter.Per(2, 300*time.Hour))
				parts = append(parts, limiter.Part{Name: string(rune('a' + i)), Limiter: newLimiter(t, redistest.Client(t, srv), limit, own...)})
				t.Cleanup(func() { _ = srv.Thaw() }) // Close waits for the calls that it holds up
			}
			m := newMulti(t, parts...)
			if res, err := m.AllowN(t.Context(), "k", 1); err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
			if !back {
				all()
				within(t, func() (limiter.Result, error) { return m.AllowN(t.Context(), "k", 1) })
				return
			}
			if res, err := parts[2].Limiter.Allow(t.Context(), "k"); err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
			armed.Store(true)
			if res := within(t, func() (limiter.Result, error) { return m.AllowN(t.Context(), "k", 1) }); res.Allowed || res.Source != limiter.SourceRedis {
				t.Errorf("%+v", res)
			}
		})
	}
}

// TestOneBudgetForAllParts: what is told to each part of a Multi is told to all of them side by side.
func TestOneBudgetForAllParts(t *testing.T) {
	for name, tell := range map[string]func(ctx context.Context, m *limiter.Multi, r *limiter.Reservation) error{
		"Cancel": func(ctx context.Context, _ *limiter.Multi, r *limiter.Reservation) error { return r.Cancel(ctx) },
		"Settle": func(ctx context.Context, _ *limiter.Multi, r *limiter.Reservation) error {
			return r.Settle(ctx, 1, 2, 0)
		},
		"Block": func(ctx context.Context, m *limiter.Multi, _ *limiter.Reservation) error {
			return m.Block(ctx, "k", time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			sim.Test(t, func(t *testing.T, r *sim.Redis) {
				rdb := r.Client("a", redis.Options{MaxRetries: -1})
				t.Cleanup(func() { _ = rdb.Close() })
				var parts []limiter.Part
				for _, name := range []string{"x", "y", "z"} {
					parts = append(parts, limiter.Part{Name: name, Limiter: newLimiter(t, rdb, good, limiter.WithPrefix(name), limiter.WithShare(1))})
				}
				m := newMulti(t, parts...)
				rv, err := m.Reserve(t.Context(), "k", limiter.Cost(3))
				must(t, err)
				r.SetPath("a", func(p *sim.Path) { p.Lost = true })
				start := time.Now()
				err = tell(t.Context(), m, rv)
				if took := time.Since(start); took > defaultBudget {
					t.Errorf("%v, with a budget of %v", took, defaultBudget)
				}
				if !errors.Is(err, limiter.ErrUnavailable) {
					t.Error(err)
				}
			})
		})
	}
}

// TestPanicReachesTheCaller: that of a function of the user's, which is asked for each part.
func TestPanicReachesTheCaller(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := r.Client("a", redis.Options{})
		t.Cleanup(func() { _ = rdb.Close() })
		m := newMulti(t, limiter.Part{Name: "a", Limiter: newLimiter(t, rdb, good, limiter.WithLimitFor(func(context.Context, string) limiter.Limit { panic("of the user") }))})
		defer func() {
			if v := recover(); v != "of the user" {
				t.Errorf("%v", v)
			}
		}()
		t.Error(m.Block(t.Context(), "k", time.Hour))
	})
}

// TestOverloadDoesNotOpenTheBreaker: more callers than may be in flight wait for their turn,
// and callers that come too late do not count against a Redis that answers.
func TestOverloadDoesNotOpenTheBreaker(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := r.Client("a", redis.Options{MaxRetries: -1, PoolSize: 1})
		t.Cleanup(func() { _ = rdb.Close() })
		lim := newLimiter(t, rdb, good, limiter.WithShare(1), limiter.WithMaxInFlight(1), limiter.WithBudget(400*time.Millisecond))
		if _, err := lim.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		r.SetPath("a", func(p *sim.Path) { p.Delay = 30 * time.Millisecond })
		// One call after the other, each for as many keys as fit: some are late.
		for _, a := range together(1000, func(i int) (limiter.Result, error) { return lim.Allow(t.Context(), fmt.Sprint("k", i)) }) {
			if a.err != nil {
				t.Error(a.err)
			}
		}
		sh := lim.Health().Servers[0]
		if sh.State != breaker.Closed || sh.LastFailure != breaker.ClassOK || sh.Decisions[limiter.SourceLocal] < 10 {
			t.Errorf("after an overload: %+v", sh)
		}
	})
}

// TestSlowOpensTheBreaker: a Redis that answers within the budget, but slowly,
// is left alone before a single decision had to be made without it.
func TestSlowOpensTheBreaker(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := r.Client("a", redis.Options{MaxRetries: -1, PoolSize: 1})
		t.Cleanup(func() { _ = rdb.Close() })
		lim := newLimiter(t, rdb, good, limiter.WithShare(1),
			limiter.WithBreaker(breaker.Settings{MinRequests: 2, OpenMin: time.Hour, OpenMax: time.Hour, SlowCall: 0}))
		if _, err := lim.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		r.SetPath("a", func(p *sim.Path) { p.Delay = 13 * time.Millisecond })
		for i := 0; lim.Health().Servers[0].State == breaker.Closed; i++ {
			res, err := lim.Allow(t.Context(), "k")
			if err != nil || res.Source != limiter.SourceRedis || i > 20 {
				t.Fatalf("decision %d: %+v, %v", i, res, err)
			}
		}
		if sh := lim.Health().Servers[0]; sh.LastFailure != breaker.ClassSlow {
			t.Errorf("the breaker is open because of %v", sh.LastFailure)
		}
	})
}

// TestCloseWaitsForCalls: a call whose caller has left goes on until the client
// lets go of it; Close returns after that, so that nothing is left behind.
func TestCloseWaitsForCalls(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := r.Client("a", redis.Options{MaxRetries: -1})
		t.Cleanup(func() { _ = rdb.Close() })
		var over atomic.Int32
		lim := newLimiter(t, rdb, good, limiter.WithShare(1), limiter.WithHooks(limiter.Hooks{Call: func(context.Context, limiter.CallInfo) { over.Add(1) }}))
		if _, err := lim.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		r.Set(func(h *sim.Health) { h.Frozen = true })
		if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceLocal || over.Load() != 1 {
			t.Fatalf("%+v, %v, %d calls over", res, err, over.Load())
		}
		thawed := time.Now().Add(100 * time.Millisecond)
		time.AfterFunc(time.Until(thawed), func() { r.Set(func(h *sim.Health) { h.Frozen = false }) })
		must(t, lim.Close())
		if n := over.Load(); n != 2 || time.Now().Before(thawed) {
			t.Errorf("%d of 2 calls are over after Close", n)
		}
	})
}

// TestCallerWithLittleTime: a context that ends before the budget leaves time for an
// answer, and does not open the breaker.
func TestCallerWithLittleTime(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	lim := newLimiter(t, redistest.Client(t, srv), good, limiter.WithBudget(time.Minute))
	if _, err := lim.Allow(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	must(t, srv.Freeze())
	here := 0
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		res, err := lim.Allow(ctx, "k")
		cancel()
		switch {
		case err == nil && res.Source == limiter.SourceLocal:
			here++
		case !errors.Is(err, context.DeadlineExceeded): // on a machine that is too busy
			t.Errorf("%+v, %v", res, err)
		}
		if s := lim.Health().Servers[0].State; s != breaker.Closed {
			t.Fatalf("callers in a hurry made the breaker %v", s)
		}
		if here > 0 {
			break
		}
	}
	if here == 0 {
		t.Error("no caller in a hurry got an answer in time")
	}
	must(t, srv.Thaw())
}

func TestContradictions(t *testing.T) {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadTimeout: 100 * time.Millisecond})
	defer cluster.Close()
	for name, c := range map[string]struct {
		rdb  redis.UniversalClient
		opts []limiter.Option
		says []string
	}{
		"share with closed": {nowhere(t), []limiter.Option{limiter.WithShare(0.5), limiter.WithFallback(fallback.Closed)}, []string{"share", "Local", "closed"}},
		"share with open":   {nowhere(t), []limiter.Option{limiter.WithShare(0.5), limiter.WithFallback(fallback.Open)}, []string{"share", "open"}},
		"budget too long":   {cluster, []limiter.Option{limiter.WithBudget(time.Second)}, []string{"budget", "1s", "ReadTimeout", "100ms"}},
		"no process":        {nowhere(t), []limiter.Option{limiter.WithProcess("")}, []string{"process"}},
	} {
		_, err := limiter.New(c.rdb, good, c.opts...)
		if !errors.Is(err, limiter.ErrInvalidConfig) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, part := range c.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", name, err, part)
			}
		}
	}
}

// TestOpenBreakerAllocatesNothing.
func TestOpenBreakerAllocatesNothing(t *testing.T) {
	lim := down(t, good)
	ctx := context.Background()
	if n := testing.AllocsPerRun(500, func() {
		if _, err := lim.Allow(ctx, "customer:42"); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a decision", n)
	}
}

func BenchmarkOpenBreaker(b *testing.B) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	lim, err := limiter.New(rdb, limiter.GCRA(limiter.PerSecond(1000000), 1000), hasty(time.Hour), quiet())
	if err != nil {
		b.Fatal(err)
	}
	defer lim.Close()
	local, err := limiter.NewLocal(limiter.GCRA(limiter.PerSecond(1000000), 1000))
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	_, _ = lim.Allow(ctx, "k")
	for name, l := range map[string]limiter.Allower{"local": local, "open breaker": lim} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.AllowN(ctx, "k", 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
