package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limiter/limitertest"
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
				ofServer(t, name)
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
	limit := limiter.TokenBucket(limiter.PerHour(10), 10)
	lim := newLimiter(t, rdb, limit, limiter.WithShare(1))
	until(t, "the limiter knows the master, and its replica the key", func() bool {
		_, err := lim.Allow(t.Context(), "other")
		must(t, err)
		servers := lim.Health().Servers
		return len(servers) == 1 && strings.Contains(servers[0].Name, "@")
	})
	// By another one that waits: what is late on a busy machine, and was redirected meanwhile, may be charged nowhere.
	if res, err := newLimiter(t, rdb, limit, limiter.WithShare(1), limiter.WithBudget(5*time.Second)).AllowN(t.Context(), "k", 2); err != nil || !res.Allowed || res.Source != limiter.SourceRedis {
		t.Fatalf("%+v, %v", res, err)
	}
	until(t, "it knows what Redis has left", func() bool {
		res, err := lim.Peek(t.Context(), "k")
		must(t, err)
		return res.Source == limiter.SourceRedis && res.Remaining == 8
	})
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
	onBoth(t, func(t *testing.T, client func() *redis.Client) {
		rdb := client()
		whole := newLimiter(t, rdb, good, patient(), limiter.WithPrefix("whole"))
		split := newLimiter(t, rdb, good, patient(), limiter.WithPrefix("split"), limiter.WithKeyShards(2))
		m := newMulti(t, limiter.Part{Name: "whole", Limiter: whole}, limiter.Part{Name: "split", Limiter: split})
		r, err := m.Reserve(t.Context(), "k", limiter.Cost(3), limiter.Cost(0))
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
	})
}

// TestCancelAfterCloseSaysSo: units of a lease that cannot go back any more.
func TestCancelAfterCloseSaysSo(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	lim := newLimiter(t, rdb, limiter.FixedWindow(limiter.Per(100, 24*time.Hour)), patient(), limiter.WithLease(10, time.Minute))
	var last *limiter.Reservation
	for range 3 {
		r, err := lim.Reserve(t.Context(), "k")
		must(t, err)
		last = r
	}
	must(t, lim.Close())
	if err := last.Cancel(t.Context()); !errors.Is(err, limiter.ErrClosed) {
		t.Errorf("Cancel after Close: %v", err)
	}
}
