package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

// oneShard is a cluster of one master behind a plain client, with a proxy in between.
func oneShard(t *testing.T) (*faultproxy.Proxy, *redis.Client, *redisproc.Server) {
	t.Helper()
	c := redistest.StartCluster(t, 1, 0)
	proxy, rdb := behind(t, c.Masters[0], redis.Options{MaxRetries: -1, DialerRetries: 1})
	return proxy, rdb, c.Masters[0]
}

// cutOff makes Redis unavailable, and waits until the breaker is open: of what was sent
// before, it is not known whether it was charged.
func cutOff(t *testing.T, proxy *faultproxy.Proxy, lim *limiter.Limiter) {
	t.Helper()
	proxy.Set(faultproxy.Mode{Refuse: true})
	proxy.Reset()
	untilOpen(t, lim)
}

// untilOpen asks until the breaker is open.
func untilOpen(t *testing.T, lim *limiter.Limiter) {
	t.Helper()
	until(t, "the breaker opens", func() bool {
		_, err := lim.Allow(t.Context(), "first")
		must(t, err)
		return stateOf(lim)() == breaker.Open
	})
}

// owe decides locally on so many new keys, and returns those that are owed. Of what a probe was for, it is not known
// whether it was charged.
func owe(t *testing.T, lim *limiter.Limiter, keys, units int) (owed []string) {
	t.Helper()
	began, probes := time.Now(), 0
	for i := 0; len(owed) < keys; i++ {
		key, before := fmt.Sprint("k", i), lim.Health().Owed
		if res, err := lim.AllowN(t.Context(), key, units); err != nil || !res.Allowed || res.Source != limiter.SourceLocal {
			t.Fatalf("%+v, %v", res, err)
		}
		if lim.Health().Owed > before {
			owed = append(owed, key)
		} else {
			probes++
		}
	}
	if most := 1 + int(time.Since(began)/(500*time.Millisecond)); probes > most {
		t.Errorf("%d are not owed, of which at most %d were probes", probes, most)
	}
	return owed
}

// untilCharged waits until Redis knows of all local use. Only what is charged shows that
// it can be told.
func untilCharged(t *testing.T, lim *limiter.Limiter) {
	t.Helper()
	n := 0
	until(t, "all are charged", func() bool {
		n++
		_, err := lim.Allow(t.Context(), fmt.Sprint("other", n))
		must(t, err)
		return lim.Health().Owed == 0
	})
}

// TestAllDebtsAreCharged: what was admitted locally is charged for every key, however
// many they are and whatever stands before Redis.
func TestAllDebtsAreCharged(t *testing.T) {
	t.Parallel()
	plain := func(t *testing.T) (*faultproxy.Proxy, redis.UniversalClient) {
		proxy, rdb := behind(t, redistest.Start(t), redis.Options{MaxRetries: -1, DialerRetries: 1})
		return proxy, rdb
	}
	for name, c := range map[string]struct {
		keys int
		make func(t *testing.T) (*faultproxy.Proxy, redis.UniversalClient)
	}{
		"plain": {5000, plain},
		"ring": {5000, func(t *testing.T) (*faultproxy.Proxy, redis.UniversalClient) {
			proxy, _ := plain(t)
			ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": proxy.Addr()}, HeartbeatFrequency: time.Hour, MaxRetries: -1, ReadTimeout: patience, WriteTimeout: patience})
			t.Cleanup(func() { _ = ring.Close() })
			return proxy, ring
		}},
		"one-shard cluster": {500, func(t *testing.T) (*faultproxy.Proxy, redis.UniversalClient) {
			proxy, rdb, _ := oneShard(t)
			return proxy, rdb
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, rdb := c.make(t)
			lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerHour(10), 10), unhurried(), limiter.WithShare(1), hasty(time.Second))
			cutOff(t, proxy, lim)
			owed := owe(t, lim, c.keys, 3)
			proxy.Pass()
			untilCharged(t, lim)
			if got := lim.Health().Reconciled; got < uint64(c.keys) {
				t.Errorf("%d of %d keys are reconciled", got, c.keys)
			}
			for _, key := range owed {
				if res, err := lim.Peek(t.Context(), key); err != nil || res.Remaining != 7 || res.Source != limiter.SourceRedis {
					t.Fatalf("%s: %+v, %v", key, res, err)
				}
			}
		})
	}
}

// TestReconciledLogIsChargedInPieces: no script has more units to add than others should
// wait for.
func TestReconciledLogIsChargedInPieces(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy, rdb := behind(t, srv, redis.Options{MaxRetries: -1, DialerRetries: 1})
	const keys, each = 10, 4000
	lim := newLimiter(t, rdb, limiter.SlidingWindowLog(limiter.PerHour(each)), unhurried(), limiter.WithShare(1), hasty(time.Second))
	cutOff(t, proxy, lim)
	owed := owe(t, lim, keys, each-1)
	proxy.Pass()
	untilCharged(t, lim)
	scripts := redistest.Calls(t, srv, "evalsha") - int64(lim.Health().Decisions[limiter.SourceRedis])
	for _, key := range owed {
		if res, err := lim.Peek(t.Context(), key); err != nil || res.Remaining != 1 {
			t.Errorf("%+v, %v", res, err)
		}
	}
	if scripts < keys*each/1000 {
		t.Errorf("%d units were charged by %d scripts", keys*each, scripts)
	}
}

// TestOneShardClusterKeepsPermits: the heartbeat of permits of several keys, and leases that
// go back, also learn that there is a cluster behind a plain client.
func TestOneShardClusterKeepsPermits(t *testing.T) {
	t.Parallel()
	_, rdb, srv := oneShard(t)
	admin := redistest.Admin(t, srv)
	c := newSemaphore(t, rdb, 1, patient(), semaphore.WithTTL(600*time.Millisecond))
	end := map[string]float64{}
	for i := range 5 {
		s, err := c.TryAcquire(t.Context(), fmt.Sprint("k", i))
		if err != nil || !s.Allowed {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	ends := func() map[string]float64 {
		now := map[string]float64{}
		for i := range 5 {
			key := fmt.Sprintf("holdfast:v1:permits:{k%d}", i)
			for _, z := range admin.ZRangeWithScores(context.Background(), key, 0, -1).Val() {
				now[key] = z.Score
			}
		}
		return now
	}
	end = ends()
	until(t, "all permits are kept", func() bool {
		for key, at := range ends() {
			if at <= end[key] {
				return false
			}
		}
		return true
	})

	lim := newLimiter(t, rdb, limiter.FixedWindow(limiter.Per(100, 24*time.Hour)), patient(), limiter.WithLease(10, time.Minute))
	for i := range 5 {
		if res, err := lim.Allow(t.Context(), fmt.Sprint("l", i)); err != nil || !res.Allowed {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	must(t, lim.Close())
	look := newLimiter(t, rdb, limiter.FixedWindow(limiter.Per(100, 24*time.Hour)), patient())
	for i := range 5 {
		if res, err := look.Peek(t.Context(), fmt.Sprint("l", i)); err != nil || res.Remaining != 99 {
			t.Errorf("after the lease went back: %+v, %v", res, err)
		}
	}
}

// TestBreakerClosesWithoutCharges: when writes are accepted again, traffic of nothing but
// denials or peeks shows it, under every policy: a probe writes a key of its own.
func TestBreakerClosesWithoutCharges(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(context.Context, *limiter.Limiter) error{
		"denials": func(ctx context.Context, lim *limiter.Limiter) error { _, err := lim.Allow(ctx, "k"); return err },
		"peeks":   func(ctx context.Context, lim *limiter.Limiter) error { _, err := lim.Peek(ctx, "k"); return err },
	} {
		for _, policy := range []fallback.Policy{fallback.Local, fallback.Open, fallback.Closed} {
			t.Run(fmt.Sprint(name, ", ", policy), func(t *testing.T) {
				srv := redistest.Start(t)
				admin := redistest.Admin(t, srv)
				lim := newLimiter(t, redistest.Client(t, srv), limiter.FixedWindow(limiter.Per(10, 24*time.Hour)), unhurried(), limiter.WithFallback(policy), limiter.WithoutDenialCache())
				if res, err := lim.AllowN(t.Context(), "k", 10); err != nil || !res.Allowed {
					t.Fatalf("%+v, %v", res, err)
				}
				must(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
				n := 0
				until(t, "the breaker opens", func() bool {
					n++
					_, _ = lim.Allow(t.Context(), fmt.Sprint("other", n))
					return stateOf(lim)() != breaker.Closed
				})
				must(t, admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
				until(t, "the breaker closes", func() bool {
					for _, a := range together(8, func(int) (limiter.Result, error) { return limiter.Result{}, ask(t.Context(), lim) }) {
						if a.err != nil && !errors.Is(a.err, limiter.ErrUnavailable) {
							t.Fatal(a.err)
						}
					}
					return stateOf(lim)() == breaker.Closed
				})
			})
		}
	}
}

// TestCancelledUnitsComeBackToAFullKey: what waits to be given back may be what denies
// everything else.
func TestCancelledUnitsComeBackToAFullKey(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim, _ := simulatedLimiter(t, r, "a", limiter.FixedWindow(limiter.Per(10, 24*time.Hour)), hasty(time.Second), limiter.WithShare(1), limiter.WithoutDenialCache())
		taken, err := lim.Reserve(t.Context(), "k", limiter.Cost(10))
		if err != nil || !taken.Allowed || taken.Source != limiter.SourceRedis {
			t.Fatalf("%+v, %v", taken, err)
		}
		r.SetPath("a", func(p *sim.Path) { p.Refused = true })
		untilOpen(t, lim)
		must(t, taken.Cancel(t.Context()))
		r.SetPath("a", func(p *sim.Path) { p.Refused = false })
		until(t, "the units are back", func() bool {
			res, err := lim.Allow(t.Context(), "k")
			must(t, err)
			return res.Allowed && res.Source == limiter.SourceRedis
		})
	})
}
