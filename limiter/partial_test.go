package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limiter/limitertest"
	"github.com/holdfast-go/holdfast/semaphore"
)

// rejectWrites are ways in which Redis answers reads and rejects writes, or does not
// answer them.
var rejectWrites = map[string]func(t *testing.T, srv *redisproc.Server){
	"out of memory": func(t *testing.T, srv *redisproc.Server) {
		must(t, redistest.Admin(t, srv).ConfigSet(t.Context(), "maxmemory", "1").Err())
	},
	"read-only replica": func(t *testing.T, srv *redisproc.Server) { replicaOf(t, srv, "127.0.0.1", "1") },
	"too few replicas": func(t *testing.T, srv *redisproc.Server) {
		must(t, redistest.Admin(t, srv).ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	},
	"writes paused": func(t *testing.T, srv *redisproc.Server) {
		must(t, redistest.Admin(t, srv).Do(t.Context(), "client", "pause", "600000", "write").Err())
		t.Cleanup(func() { _ = redistest.Admin(t, srv).Do(context.Background(), "client", "unpause").Err() })
	},
}

// traffic is what is asked in turn; each returns how much was admitted.
var traffic = map[string]func(ctx context.Context, lim *limiter.Limiter) (int, error){
	"peeks": func(ctx context.Context, lim *limiter.Limiter) (int, error) {
		for range 2 {
			if _, err := lim.Peek(ctx, "k"); err != nil {
				return 0, err
			}
		}
		return admitted(lim.Allow(ctx, "k"))
	},
	"costs that are denied": func(ctx context.Context, lim *limiter.Limiter) (int, error) {
		if n, err := admitted(lim.AllowN(ctx, "k", 9)); err != nil || n > 0 {
			return n, err
		}
		return admitted(lim.Allow(ctx, "k"))
	},
}

func admitted(res limiter.Result, err error) (int, error) {
	if err != nil || !res.Allowed {
		return 0, err
	}
	return 1, nil
}

// TestReadsAnswerWritesAreRejected: answers that charged nothing do not make the limit
// new again, and do not hide that nothing can be charged.
func TestReadsAnswerWritesAreRejected(t *testing.T) {
	t.Parallel()
	for name, begin := range rejectWrites {
		for asked, ask := range traffic {
			t.Run(name+", "+asked, func(t *testing.T) {
				t.Parallel()
				srv := redistest.Start(t)
				var lims []*limiter.Limiter
				for _, limit := range limitertest.Limits(limiter.PerHour(10)) {
					lim := newLimiter(t, redistest.Client(t, srv), limit, limiter.WithShare(1), limiter.WithoutDenialCache())
					if res, err := lim.AllowN(t.Context(), "k", 2); err != nil || !res.Allowed {
						t.Fatalf("%+v, %v", res, err)
					}
					lims = append(lims, lim)
				}
				begin(t, srv)
				for _, lim := range lims {
					all := 0
					for range 60 {
						n, err := ask(t.Context(), lim)
						must(t, err)
						all += n
					}
					local := lim.Health().Decisions[limiter.SourceLocal]
					// Of the bucket a unit may come back within the test; 8 were left.
					if all > 9 {
						t.Errorf("%v: %d admitted where 8 were left", lim.Limit(), all)
					}
					// A log makes room before it adds, so that Redis 7.0 lets it write without
					// memory.
					if sh := lim.Health().Servers[0]; sh.State == breaker.Closed && (local > 0 || lim.Limit().Algorithm() != "sliding window log") {
						t.Errorf("%v: the breaker is closed, after %v", lim.Limit(), sh.LastFailure)
					}
				}
			})
		}
	}
}

// TestFrozenMasterBehindReadOnlyClient: a replica that answers peeks does not hide that
// its master answers nothing.
func TestFrozenMasterBehindReadOnlyClient(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1, 1)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ReadOnly: true})
	t.Cleanup(func() { _ = rdb.Close() })
	lim := newLimiter(t, rdb, limiter.TokenBucket(limiter.PerHour(10), 10), limiter.WithShare(1))
	until(t, "the limiter knows the master, and its replica the key", func() bool {
		_, err := lim.Allow(t.Context(), "other")
		must(t, err)
		servers := lim.Health().Servers
		return len(servers) == 1 && strings.Contains(servers[0].Name, "@")
	})
	if res, err := lim.AllowN(t.Context(), "k", 2); err != nil || !res.Allowed || res.Source != limiter.SourceRedis {
		t.Fatalf("%+v, %v", res, err)
	}
	// Frozen for less than a failover takes.
	must(t, c.Masters[0].Freeze())
	t.Cleanup(func() { _ = c.Masters[0].Thaw() })
	all := 0
	for range 60 {
		n, err := traffic["peeks"](t.Context(), lim)
		must(t, err)
		all += n
	}
	if all > 9 {
		t.Errorf("%d admitted where 8 were left", all)
	}
}

// ownType is a client of the user's, and hidden one that shows nothing but its interface.
type (
	ownType struct{ *redis.ClusterClient }
	hidden  struct{ redis.UniversalClient }
)

// TestSlotsShareCalls: in a cluster, keys of many slots that are asked for together
// leave in a few calls per master, whatever the client's type.
func TestSlotsShareCalls(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() { _ = cluster.Close() })
	for _, row := range []struct {
		name string
		rdb  redis.UniversalClient
	}{{"cluster", cluster}, {"embedded", ownType{cluster}}, {"hidden", hidden{cluster}}} {
		name, rdb := row.name, row.rdb
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerHour(10), 10), limiter.WithBudget(4*time.Second), limiter.WithShare(1), limiter.WithPrefix(name),
				limiter.WithHooks(limiter.Hooks{Call: func(context.Context, limiter.CallInfo) { calls.Add(1) }}))
			servers := 3
			if name == "hidden" {
				servers = 1
			}
			until(t, "the limiter knows the masters", func() bool {
				sources(t, lim, 50)
				return len(lim.Health().Servers) == servers
			})
			calls.Store(0)
			const keys = 600
			var slow atomic.Int64
			for _, a := range together(keys, func(i int) (limiter.Result, error) { return lim.Allow(t.Context(), fmt.Sprint("slot", i)) }) {
				must(t, a.err)
				if a.res.Source != limiter.SourceRedis {
					slow.Add(1)
				}
			}
			if n := calls.Load(); n > keys/4 || slow.Load() > 0 {
				t.Errorf("%d calls for %d keys, %d not decided by Redis", n, keys, slow.Load())
			}
			if name == "hidden" {
				return // which learns it by being told once
			}
			for _, srv := range c.Masters {
				if stats := redistest.Admin(t, srv).Info(t.Context(), "errorstats").Val(); strings.Contains(stats, "errorstat_CROSSSLOT") {
					t.Errorf("a command had keys of several slots: %s", stats)
				}
			}
		})
	}
}

// TestMultiReservationSettlesSplitPart: a part with key shards that was asked for
// nothing can be settled all the same.
func TestMultiReservationSettlesSplitPart(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	whole := newLimiter(t, rdb, good, patient(), limiter.WithPrefix("whole"))
	split := newLimiter(t, rdb, good, patient(), limiter.WithPrefix("split"), limiter.WithKeyShards(2))
	m := newMulti(t, limiter.Part{Name: "whole", Limiter: whole}, limiter.Part{Name: "split", Limiter: split})
	r, err := m.Reserve(t.Context(), "k", 3, 0)
	if err != nil || !r.Allowed {
		t.Fatalf("%+v, %v", r, err)
	}
	must(t, r.Settle(t.Context(), 2))
	if res, err := whole.Peek(t.Context(), "k"); err != nil || res.Remaining != 8 {
		t.Errorf("whole: %+v, %v", res, err)
	}
	if res, err := split.Peek(t.Context(), "k"); err != nil || res.Remaining != 5 {
		t.Errorf("split: %+v, %v", res, err)
	}
}

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
	until(t, "the breaker opens", func() bool {
		_, err := lim.Allow(t.Context(), "first")
		must(t, err)
		return stateOf(lim)() == breaker.Open
	})
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
			ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": proxy.Addr()}, HeartbeatFrequency: time.Hour, MaxRetries: -1})
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
			for i := range c.keys {
				if res, err := lim.AllowN(t.Context(), fmt.Sprint("k", i), 3); err != nil || !res.Allowed || res.Source != limiter.SourceLocal {
					t.Fatalf("%+v, %v", res, err)
				}
			}
			proxy.Pass()
			untilCharged(t, lim)
			if got := lim.Health().Reconciled; got < uint64(c.keys) {
				t.Errorf("%d of %d keys are reconciled", got, c.keys)
			}
			for i := range c.keys {
				if res, err := lim.Peek(t.Context(), fmt.Sprint("k", i)); err != nil || res.Remaining != 7 || res.Source != limiter.SourceRedis {
					t.Fatalf("key %d: %+v, %v", i, res, err)
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
	for i := range keys {
		if res, err := lim.AllowN(t.Context(), fmt.Sprint("k", i), each-1); err != nil || !res.Allowed {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	proxy.Pass()
	untilCharged(t, lim)
	scripts := redistest.Calls(t, srv, "evalsha") - int64(lim.Health().Decisions[limiter.SourceRedis])
	for i := range keys {
		if res, err := lim.Peek(t.Context(), fmt.Sprint("k", i)); err != nil || res.Remaining != 1 {
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

// TestBlockIsHeededUntilRedisKnows: a block that Redis could not be told of is heeded by
// the process that asked for it, and told when Redis is back.
func TestBlockIsHeededUntilRedisKnows(t *testing.T) {
	proxy, rdb := behind(t, redistest.Start(t), redis.Options{MaxRetries: -1, DialerRetries: 1})
	// The breaker never opens: Redis is back before it could.
	never := limiter.WithBreaker(breaker.Settings{MinRequests: 1000, ConsecutiveFailures: 1000})
	lim := newLimiter(t, rdb, good, unhurried(), limiter.WithShare(1), never)
	other := newLimiter(t, rdb, good, unhurried(), limiter.WithShare(1))
	proxy.Set(faultproxy.Mode{Refuse: true})
	proxy.Reset()
	if err := lim.Block(t.Context(), "k", time.Hour); !errors.Is(err, limiter.ErrUnavailable) {
		t.Fatal(err)
	}
	proxy.Pass()
	for range 3 {
		if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Allowed || res.RetryAfter < 50*time.Minute {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	m := newMulti(t, limiter.Part{Name: "blocked", Limiter: lim}, limiter.Part{Name: "other", Limiter: newLimiter(t, rdb, good, unhurried(), limiter.WithPrefix("other"))})
	if res, err := m.Allow(t.Context(), "k"); err != nil || res.Allowed || res.Denied != "blocked" {
		t.Errorf("in a Multi: %+v, %v", res, err)
	}
	n := 0
	until(t, "the others know", func() bool {
		n++
		_, err := lim.Allow(t.Context(), fmt.Sprint("charged", n))
		must(t, err)
		res, err := other.Peek(t.Context(), "k")
		return err == nil && !res.Allowed && res.Source == limiter.SourceRedis
	})
	// The others can know before the answer of Redis has arrived here.
	until(t, "Redis is asked", func() bool {
		res, err := lim.Allow(t.Context(), "k")
		if err != nil || res.Allowed {
			t.Fatalf("when Redis knows: %+v, %v", res, err)
		}
		return res.Source != limiter.SourceLocal
	})
	must(t, lim.Reset(t.Context(), "k"))
	if res, err := lim.Allow(t.Context(), "k"); err != nil || !res.Allowed {
		t.Errorf("after a reset: %+v, %v", res, err)
	}
}

// TestBlockReachesRedisFromAProcessThatUsesNothingElse: a process whose only key is
// blocked tells Redis of the block all the same, and its breaker closes by that.
func TestBlockReachesRedisFromAProcessThatUsesNothingElse(t *testing.T) {
	proxy, rdb := behind(t, redistest.Start(t), redis.Options{MaxRetries: -1, DialerRetries: 1})
	lim := newLimiter(t, rdb, good, unhurried(), limiter.WithShare(1))
	other := newLimiter(t, rdb, good, unhurried(), limiter.WithShare(1))
	cutOff(t, proxy, lim)
	if err := lim.Block(t.Context(), "k", time.Hour); !errors.Is(err, limiter.ErrUnavailable) {
		t.Fatal(err)
	}
	proxy.Pass()
	until(t, "the others know", func() bool {
		if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Allowed {
			t.Fatalf("%+v, %v", res, err)
		}
		res, err := other.Peek(t.Context(), "k")
		return err == nil && !res.Allowed && res.Source == limiter.SourceRedis
	})
	// The probe that brought the block is not over when others see it.
	until(t, "the breaker closes", func() bool { return stateOf(lim)() == breaker.Closed })
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
	t.Parallel()
	proxy, rdb := behind(t, redistest.Start(t), redis.Options{MaxRetries: -1, DialerRetries: 1})
	lim := newLimiter(t, rdb, limiter.FixedWindow(limiter.Per(10, 24*time.Hour)), unhurried(), limiter.WithShare(1), limiter.WithoutDenialCache())
	r, err := lim.Reserve(t.Context(), "k", 10)
	if err != nil || !r.Allowed || r.Source != limiter.SourceRedis {
		t.Fatalf("%+v, %v", r, err)
	}
	cutOff(t, proxy, lim)
	must(t, r.Cancel(t.Context()))
	proxy.Pass()
	until(t, "the units are back", func() bool {
		res, err := lim.Allow(t.Context(), "k")
		must(t, err)
		return res.Allowed && res.Source == limiter.SourceRedis
	})
}

// panics is a hook of the user's client with a defect.
type panics struct{ seen }

func (*panics) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { panic("defect") }
}

// TestPanicOfAClientsHook does not end the program, which no caller could prevent: calls
// are made by goroutines of the limiter.
func TestPanicOfAClientsHook(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t))
	lim := newLimiter(t, rdb, good, limiter.WithShare(1))
	rdb.AddHook(new(panics))
	for range 20 {
		if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceLocal {
			t.Fatalf("%+v, %v", res, err)
		}
	}
}

// seen is a hook of the user's client.
type seen struct{ commands atomic.Int64 }

func (s *seen) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (s *seen) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			s.commands.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (s *seen) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestHooksOfTheClientSeeDecisions: what the user has added to the client, before or
// after New.
func TestHooksOfTheClientSeeDecisions(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	before, after := new(seen), new(seen)
	rdb.AddHook(before)
	lim := newLimiter(t, rdb, good, patient())
	rdb.AddHook(after)
	for range 3 {
		if _, err := lim.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	if b, a := before.commands.Load(), after.commands.Load(); b < 3 || a < 3 {
		t.Errorf("the hooks have seen %d and %d decisions of 3", b, a)
	}
}

// TestCancelAfterCloseSaysSo: units of a lease that cannot go back any more.
func TestCancelAfterCloseSaysSo(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	lim := newLimiter(t, rdb, limiter.FixedWindow(limiter.Per(100, 24*time.Hour)), patient(), limiter.WithLease(10, time.Minute))
	var last *limiter.Reservation
	for range 3 {
		r, err := lim.Reserve(t.Context(), "k", 1)
		must(t, err)
		last = r
	}
	must(t, lim.Close())
	if err := last.Cancel(t.Context()); !errors.Is(err, limiter.ErrClosed) {
		t.Errorf("Cancel after Close: %v", err)
	}
}

// TestLibraryIsLoadedLater: a library that could not be loaded, for want of memory, is
// loaded when it can be.
func TestLibraryIsLoadedLater(t *testing.T) {
	srv := redistest.Start(t)
	admin := redistest.Admin(t, srv)
	must(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	lim := newLimiter(t, redistest.Client(t, srv), good, unhurried(), limiter.WithShare(1), limiter.WithFunctions())
	if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceLocal {
		t.Fatalf("without memory: %+v, %v", res, err)
	}
	must(t, admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
	until(t, "functions decide", func() bool {
		res, err := lim.Allow(t.Context(), "k")
		must(t, err)
		return res.Source == limiter.SourceRedis && redistest.Calls(t, srv, "fcall") > 0
	})
	if n := redistest.Calls(t, srv, "evalsha"); n > 0 || lim.Health().FunctionsError != nil {
		t.Errorf("%d scripts, %v", n, lim.Health().FunctionsError)
	}
}
