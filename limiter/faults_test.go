package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/sampled"
	"github.com/holdfast-go/holdfast/semaphore"
)

// scene is one limiter in front of one server, with a proxy between them; or what else
// the setup of a fault puts up.
type scene struct {
	t       *testing.T
	srv     *redisproc.Server
	cluster *redisproc.Cluster
	admin   *redis.Client
	proxy   *faultproxy.Proxy // nil without
	rdb     redis.UniversalClient
	load    *load
}

// plain is a client with an address alone.
func plain(options redis.Options) func(*scene) {
	return func(s *scene) {
		s.srv = redistest.Start(s.t)
		s.proxy, s.rdb = behind(s.t, s.srv, options)
	}
}

// ofCluster is a cluster, and a client made of one for clusters, or else a plain one of
// its first node.
func ofCluster(masters int, wrap func(*redis.ClusterClient) redis.UniversalClient) func(*scene) {
	return func(s *scene) {
		s.cluster = redistest.StartCluster(s.t, masters, 0)
		s.srv = s.cluster.Masters[0]
		if wrap == nil {
			s.proxy, s.rdb = behind(s.t, s.srv, redis.Options{})
			return
		}
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.cluster.Addrs()})
		s.t.Cleanup(func() { _ = rdb.Close() })
		s.rdb = wrap(rdb)
	}
}

// fault is one row of the table: how it begins and ends, and how often Redis
// lost its state by it.
type fault struct {
	name       string
	begin, end func(*scene)
	loses      int64
	setup      func(*scene) // nil is plain
	// stays is for faults under which Redis goes on deciding.
	stays bool
}

func (s *scene) config(name, value string) {
	must(s.t, s.admin.ConfigSet(context.Background(), name, value).Err())
}

func network(m faultproxy.Mode) func(*scene) { return func(s *scene) { s.proxy.Set(m) } }

func pass(s *scene) { s.proxy.Pass() }

var faults = []fault{
	{name: "refused", begin: func(s *scene) { must(s.t, s.srv.Kill()) }, end: func(s *scene) { must(s.t, s.srv.Restart()) }, loses: 1},
	{name: "reset on connect", begin: func(s *scene) { s.proxy.Set(faultproxy.Mode{Refuse: true}); s.proxy.Reset() }, end: pass},
	{name: "black hole", begin: func(s *scene) { s.proxy.Set(faultproxy.Mode{BlackHole: true}); s.proxy.Reset() }, end: pass},
	{name: "half-open connections", begin: network(faultproxy.Mode{HalfOpen: true}), end: func(s *scene) { s.proxy.Pass(); s.proxy.Reset() }},
	{name: "replies cut", begin: network(faultproxy.Mode{CutAfter: 20}), end: pass},
	{name: "connections reset", begin: func(s *scene) { s.proxy.Reset() }, end: pass, stays: true},
	{name: "frozen", begin: func(s *scene) { must(s.t, s.srv.Freeze()) }, end: func(s *scene) { must(s.t, s.srv.Thaw()) }},
	{name: "slow by 100 ms", begin: network(faultproxy.Mode{ReplyDelay: 100 * time.Millisecond}), end: pass},
	{name: "slow by 1 s", begin: network(faultproxy.Mode{ReplyDelay: time.Second}), end: pass},
	{name: "throttled", begin: network(faultproxy.Mode{BytesPerSecond: 100}), end: func(s *scene) { s.proxy.Pass(); s.proxy.Reset() }},
	{name: "one connection, slow by 40 ms", setup: plain(redis.Options{PoolSize: 1}), begin: network(faultproxy.Mode{ReplyDelay: 40 * time.Millisecond}), end: pass},
	{name: "out of memory", begin: func(s *scene) { s.config("maxmemory", "1") }, end: func(s *scene) { s.config("maxmemory", "0") }},
	{name: "cannot persist (MISCONF)", begin: func(s *scene) { misconf(s) }, end: func(s *scene) { s.config("stop-writes-on-bgsave-error", "no") }},
	{name: "read-only replica", begin: func(s *scene) { replicaOf(s.t, s.srv, "127.0.0.1", "1") }, end: func(s *scene) { replicaOf(s.t, s.srv, "NO", "ONE") }},
	{name: "too few replicas", begin: func(s *scene) { s.config("min-replicas-to-write", "1") }, end: func(s *scene) { s.config("min-replicas-to-write", "0") }},
	{name: "too many clients", begin: func(s *scene) { s.config("maxclients", "1"); s.proxy.Reset() }, end: func(s *scene) { s.config("maxclients", "10000") }},
	{name: "password rotated", begin: func(s *scene) { s.config("requirepass", "new"); s.proxy.Reset() }, end: func(s *scene) {
		must(s.t, s.admin.Do(context.Background(), "auth", "new").Err())
		s.config("requirepass", "")
	}},
	{name: "busy script", begin: busy, end: func(s *scene) {
		_ = s.admin.ScriptKill(context.Background()).Err()
	}},
	{name: "loading", begin: func(s *scene) { loading(s) }, end: func(s *scene) { must(s.t, s.srv.Restart()) }, loses: 2},
	{name: "restarted without data", begin: func(s *scene) { must(s.t, s.srv.Restart()) }, end: pass, loses: 1, stays: true},
	{name: "FLUSHALL", begin: func(s *scene) { must(s.t, s.admin.FlushAll(context.Background()).Err()) }, end: pass, loses: 1, stays: true},
	{name: "writes paused", begin: func(s *scene) {
		must(s.t, s.admin.Do(context.Background(), "client", "pause", "600000", "write").Err())
	}, end: func(s *scene) { must(s.t, s.admin.Do(context.Background(), "client", "unpause").Err()) }},
	{name: "one-shard cluster behind a plain client, refused", setup: ofCluster(1, nil), begin: func(s *scene) { s.proxy.Set(faultproxy.Mode{Refuse: true}); s.proxy.Reset() }, end: pass},
	{name: "cluster client of the user's type, out of memory", setup: ofCluster(1, func(c *redis.ClusterClient) redis.UniversalClient { return ownType{c} }),
		begin: func(s *scene) { s.config("maxmemory", "1") }, end: func(s *scene) { s.config("maxmemory", "0") }},
	{name: "cluster client behind an interface, frozen", setup: ofCluster(1, func(c *redis.ClusterClient) redis.UniversalClient { return hidden{c} }),
		begin: func(s *scene) { must(s.t, s.srv.Freeze()) }, end: func(s *scene) { must(s.t, s.srv.Thaw()) }},
	{name: "migrating slots", setup: ofCluster(2, func(c *redis.ClusterClient) redis.UniversalClient { return c }), begin: migrating, end: func(*scene) {}, stays: true},
	{name: "SCRIPT FLUSH", begin: func(s *scene) { must(s.t, s.admin.ScriptFlush(context.Background()).Err()) }, end: pass, stays: true},
}

// needs7 are faults that cannot be made on servers before 7.0, and why.
var needs7 = map[string]string{
	"writes paused":    "CLIENT PAUSE for writes alone",
	"too few replicas": "min-replicas-to-write for scripts",
	"loading":          "LOADING within the first 2 MB",
}

// ofServer skips what cannot be made on a server as old as the one that is tested on.
func ofServer(t *testing.T, fault string) {
	t.Helper()
	if why := needs7[fault]; why != "" {
		redistest.Since(t, 7, 0, why)
	}
}

// misconf makes a snapshot fail, after which writes are refused: the folder it
// would be written to is taken away.
func misconf(s *scene) {
	s.config("stop-writes-on-bgsave-error", "yes")
	s.config("save", "3600 1")
	dir := s.t.TempDir()
	s.config("dir", dir)
	must(s.t, os.RemoveAll(dir))
	must(s.t, s.admin.BgSave(context.Background()).Err())
	until(s.t, "writes are refused", func() bool {
		err := s.admin.Set(context.Background(), "x", "y", time.Second).Err()
		return err != nil && strings.HasPrefix(err.Error(), "MISCONF")
	})
}

// busy keeps the server in a script until it is killed.
func busy(s *scene) {
	s.config("lua-time-limit", "1") // the name that every version knows
	go func() {
		c := redis.NewClient(&redis.Options{Addr: s.srv.Addr(), ReadTimeout: time.Minute, MaxRetries: -1})
		defer c.Close()
		_ = c.Eval(context.Background(), "while true do end", nil).Err()
	}()
	until(s.t, "the server is busy", func() bool {
		err := s.admin.Ping(context.Background()).Err()
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	})
}

// loading restarts the server with a snapshot that takes long to read.
func loading(s *scene) {
	s.config("key-load-delay", "10000")
	s.config("loading-process-events-interval-bytes", "1024")
	must(s.t, s.admin.Do(context.Background(), "debug", "populate", "1000").Err())
	go func() {
		c := redis.NewClient(&redis.Options{Addr: s.srv.Addr(), ReadTimeout: time.Minute, MaxRetries: -1})
		defer c.Close()
		_ = c.Do(context.Background(), "debug", "reload").Err()
	}()
	until(s.t, "the server is loading", func() bool {
		err := s.admin.Ping(context.Background()).Err()
		return err != nil && strings.HasPrefix(err.Error(), "LOADING")
	})
}

// migrating begins to move the slot of each key, and does not end that: what is there is
// decided by its old master, and what is not by the new one.
func migrating(s *scene) {
	for i := range faultKeys {
		slot := redislink.Slot(fmt.Sprint("k", i))
		from, err := s.cluster.MasterOf(slot)
		must(s.t, err)
		to := s.cluster.Masters[0]
		if to == from {
			to = s.cluster.Masters[1]
		}
		must(s.t, s.cluster.BeginMigration(slot, from, to))
	}
}

// TestFaultTable: one row per fault. No caller ever sees an error or waits
// beyond the budget, what is admitted stays within the published bound, nothing
// is charged twice, nothing is left behind, and decisions return to Redis.
func TestFaultTable(t *testing.T) {
	t.Parallel()
	faultTable(t)
}

// TestFaultTableLeases: the same of a limiter that holds leases.
func TestFaultTableLeases(t *testing.T) {
	t.Parallel()
	faultTable(t, limiter.WithLease(10, 20*time.Millisecond))
}

func faultTable(t *testing.T, opts ...limiter.Option) {
	faultRows(t, func(t *testing.T, s *scene) subject {
		const rate, burst = 100, 50
		var mu sync.Mutex
		transitions := int64(0)
		lim := newLimiter(t, s.rdb, limiter.TokenBucket(limiter.PerSecond(rate), burst), append(opts, limiter.WithHooks(limiter.Hooks{
			BreakerChange: func(context.Context, breaker.Change) { mu.Lock(); transitions++; mu.Unlock() },
		}))...)
		check := func(f fault, elapsed time.Duration) {
			// Each decision that timed out alone is a transition there and back.
			mu.Lock()
			changes := transitions + 2*s.load.bySource[limiter.SourceLocal].Load()
			mu.Unlock()
			bound := faultKeys * (rate*elapsed.Seconds() + burst*float64(1+f.loses+changes))
			if got := float64(s.load.admitted.Load()); got > bound {
				t.Errorf("%v admitted, at most %v", got, bound)
			}
			tight := faultKeys * (rate*elapsed.Seconds() + burst*float64(2+f.loses+transitions))
			t.Logf("%d admitted; bound by breaker transitions alone %.0f", s.load.admitted.Load(), tight)
			if got := float64(s.load.admitted.Load()); got > tight {
				t.Errorf("%v admitted, at most %v by the transitions of the breaker", got, tight)
			}
			// Every charge of a token bucket is one SET: of a decision that Redis
			// admitted, of one whose reply was lost, or of a debt.
			h := lim.Health()
			most := s.load.admitted.Load() + s.load.bySource[limiter.SourceLocal].Load() + int64(h.Reconciled)
			if got := redistest.Calls(t, s.srv, "set"); got > most {
				t.Errorf("%d charges, at most %d", got, most)
			}
			if decided := h.Decisions[limiter.SourceRedis] + h.Decisions[limiter.SourceCache] + h.Decisions[limiter.SourceLocal] + h.Decisions[limiter.SourceLease]; decided != uint64(s.load.decisions.Load()) {
				t.Errorf("%d decisions are counted of %d", decided, s.load.decisions.Load())
			}
		}
		return subject{Allower: lim, of: lim, close: []func() error{lim.Close}, check: check, budget: defaultBudget}
	})
}

// TestFaultTableMulti: the same of several limits at once.
func TestFaultTableMulti(t *testing.T) {
	t.Parallel()
	faultRows(t, func(t *testing.T, s *scene) subject {
		parts := layers(t, []redis.UniversalClient{s.rdb}, []limiter.Limit{
			limiter.GCRA(limiter.PerSecond(200), 100), limiter.FixedWindow(limiter.PerSecond(400)), limiter.SlidingWindowLog(limiter.PerSecond(400)),
		})
		sub := subject{Allower: newMulti(t, parts...), of: parts[0].Limiter, budget: defaultBudget}
		for _, p := range parts {
			sub.close = append(sub.close, p.Limiter.Close)
		}
		return sub
	})
}

// reserving takes reservations and settles them, up, down, or at nothing.
type reserving struct {
	*limiter.Limiter
	turn atomic.Int64
}

func (r *reserving) AllowN(ctx context.Context, key string, _ int) (limiter.Result, error) {
	res, err := r.Reserve(ctx, key, limiter.Cost(2))
	if err != nil || !res.Allowed {
		return result(res), err
	}
	// That a reply was lost is all that may be said.
	if err := res.Settle(ctx, int(r.turn.Add(1)%4)); err != nil && !errors.Is(err, limiter.ErrUnavailable) {
		return res.Result, err
	}
	return res.Result, nil
}

func result(r *limiter.Reservation) limiter.Result {
	if r == nil {
		return limiter.Result{}
	}
	return r.Result
}

// TestFaultTableReservations: the same of costs that are settled. Each turn is two
// calls.
func TestFaultTableReservations(t *testing.T) {
	t.Parallel()
	faultRows(t, func(t *testing.T, s *scene) subject {
		lim := newLimiter(t, s.rdb, limiter.TokenBucket(limiter.PerSecond(400), 100))
		return subject{Allower: &reserving{Limiter: lim}, of: lim, close: []func() error{lim.Close}, budget: 2 * defaultBudget}
	})
}

// TestFaultTablePermits: the same of permits, each acquired and released.
func TestFaultTablePermits(t *testing.T) {
	t.Parallel()
	faultRows(t, func(t *testing.T, s *scene) subject {
		c := newSemaphore(t, s.rdb, 10, semaphore.WithTTL(300*time.Millisecond))
		check := func(fault, time.Duration) {
			until(t, "nothing is held", func() bool {
				n, err := c.InFlight(t.Context(), "k0")
				return err == nil && n == 0
			})
		}
		return subject{Allower: permitAllower{c}, of: c, close: []func() error{c.Close}, check: check, budget: 2 * defaultBudget}
	})
}

// TestFaultTableSampled: the same of a process of a sampled fleet, whose decisions
// never wait. No caller waits for reports, so that a slow connection will do: TestFarSampled in virtual time.
func TestFaultTableSampled(t *testing.T) {
	t.Parallel()
	faultRows(t, func(t *testing.T, s *scene) subject {
		lim := newSampled(t, s.rdb, limiter.PerSecond(1000), sampled.WithInterval(100*time.Millisecond),
			limiter.WithBreaker(breaker.Settings{ConsecutiveFailures: 2, OpenMin: 50 * time.Millisecond, OpenMax: 200 * time.Millisecond}))
		return subject{Allower: sampledAsRedis{lim}, of: lim, close: []func() error{lim.Close}}
	}, "one connection, slow by 40 ms")
}

// subject is what the fault table is about.
type subject struct {
	limiter.Allower
	of     interface{ Health() limiter.Health }
	close  []func() error
	check  func(f fault, elapsed time.Duration)
	budget time.Duration
}

const faultKeys = 5

// servers are those that the row's client knows.
func (s *scene) servers() []*redisproc.Server {
	if s.cluster != nil {
		return s.cluster.Nodes()
	}
	return []*redisproc.Server{s.srv}
}

// faultRows runs every fault against a new subject, without some that it does not mind.
func faultRows(t *testing.T, made func(*testing.T, *scene) subject, without ...string) {
	for _, f := range faults {
		if slices.Contains(without, f.name) {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			ofServer(t, f.name)
			s := &scene{t: t}
			if f.setup == nil {
				f.setup = plain(redis.Options{})
			}
			f.setup(s)
			s.admin = redistest.Admin(t, s.srv)
			var sub subject
			started := trace(t)
			started.do(func() {
				sub = made(t, s)
				s.load = startLoad(t, sub, 20, faultKeys)
			})
			state := stateOf(sub.of)
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("%+v", sub.of.Health())
				}
			})
			until(t, "decisions by Redis", s.load.more(limiter.SourceRedis, 100))
			if n := started.running(""); n < 20 {
				t.Errorf("%d goroutines are counted where 20 callers run", n)
			}
			f.begin(s)
			if f.stays {
				until(t, "decisions go on", s.load.more(limiter.SourceRedis, 200))
			} else {
				until(t, "the breaker opens", func() bool { return state() != breaker.Closed })
				until(t, "decisions go on locally", s.load.more(limiter.SourceLocal, 300))
			}
			f.end(s)
			until(t, "the breaker closes", func() bool { return state() == breaker.Closed })
			until(t, "decisions by Redis again", s.load.more(limiter.SourceRedis, 200))
			s.load.end(t, sub.budget)
			if sub.check != nil {
				sub.check(f, time.Since(s.load.began))
			}
			must(t, s.admin.Close())
			must(t, s.rdb.Ping(t.Context()).Err()) // which connects where a decision that was late has just lost the only connection
			if n := clientsOf(t, s.servers()...); n == 0 {
				t.Error("the client's connections are not counted")
			}
			started.do(func() {
				for _, end := range sub.close {
					must(t, end())
				}
				must(t, s.rdb.Close())
			})
			rarely(t, "no goroutine is left running", func() bool { return started.running("") == 0 })
			rarely(t, "no connection is left open", func() bool {
				return clientsOf(t, s.servers()...) == 0 && (s.proxy == nil || s.proxy.Stats().Open == 0)
			})
		})
	}
}

// TestEvictionUnderLoad: a server that must evict forgets keys, and each key
// forgotten is a burst refunded, never an error.
func TestEvictionUnderLoad(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, []string{"maxmemory", "3mb"}, []string{"maxmemory-policy", "allkeys-lru"})
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ReadTimeout: patience, WriteTimeout: patience})
	t.Cleanup(func() { _ = rdb.Close() })
	lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerHour(10), 10), patient())
	ctx := context.Background()
	var wg sync.WaitGroup
	for caller := range 8 {
		wg.Go(func() {
			for i := range 1500 {
				if res, err := lim.Allow(ctx, fmt.Sprint(strings.Repeat("x", 100), caller, "-", i)); err != nil || res.Source != limiter.SourceRedis {
					t.Errorf("%+v, %v, %+v", res, err, lim.Health())
					return
				}
			}
		})
	}
	wg.Wait()
	info := redistest.Admin(t, srv).Info(ctx, "stats").Val()
	if strings.Contains(info, "evicted_keys:0\r") {
		t.Error("nothing was evicted")
	}
}

// TestDialBlackHole: an address from which nothing ever comes back, not even a
// refusal.
func TestDialBlackHole(t *testing.T) {
	t.Parallel()
	never := make(chan struct{})
	rdb := redis.NewClient(&redis.Options{Addr: "black.hole:6379", Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-never:
			return nil, net.ErrClosed
		}
	}})
	lim := newLimiter(t, rdb, good)
	m := measured(t)
	for range 15 {
		start := time.Now()
		res, err := lim.Allow(t.Context(), "k")
		if took := time.Since(start); err != nil || res.Source != limiter.SourceLocal || took > m.within(defaultBudget) {
			t.Errorf("%+v, %v after %v", res, err, took)
		}
	}
	if s := lim.Health().Servers[0].State; s != breaker.Open {
		t.Errorf("the breaker is %v", s)
	}
	close(never)
	must(t, lim.Close())
	must(t, rdb.Close())
}
