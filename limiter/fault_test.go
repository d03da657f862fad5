package limiter_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

// slack is what a busy machine under the race detector may add to a budget.
// The promise itself is measured by the benchmarks; here a wait of the client's
// own timeouts, from 1.3 s up, must show.
const slack = 500 * time.Millisecond

// fast makes recovery quick enough for a test.
func fast() limiter.RedisOption {
	return limiter.WithBreaker(breaker.Settings{OpenMin: 50 * time.Millisecond, OpenMax: 200 * time.Millisecond})
}

func newLimiter(t *testing.T, rdb redis.UniversalClient, limit limiter.Limit, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	lim, err := limiter.New(rdb, limit, append([]limiter.Option{quiet(), fast()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	return lim
}

// load asks from many goroutines until it is stopped, and keeps the score.
type load struct {
	decisions, admitted, errors atomic.Int64
	bySource                    [8]atomic.Int64
	slowest                     atomic.Int64
	stop                        chan struct{}
	stopping                    sync.Once
	wg                          sync.WaitGroup
}

// peeker is what can be asked without being charged, as users do in between.
type peeker interface {
	Peek(ctx context.Context, key string, opts ...limiter.CallOption) (limiter.Result, error)
}

func (l *load) halt() {
	l.stopping.Do(func() { close(l.stop) })
	l.wg.Wait()
}

func startLoad(t *testing.T, lim limiter.Allower, callers, keys int) *load {
	l := &load{stop: make(chan struct{})}
	t.Cleanup(l.halt)
	for i := range callers {
		l.wg.Go(func() {
			for n := i; ; n++ {
				select {
				case <-l.stop:
					return
				default:
				}
				start := time.Now()
				res, err := lim.AllowN(context.Background(), fmt.Sprint("k", n%keys), 1)
				took := int64(time.Since(start))
				for old := l.slowest.Load(); took > old && !l.slowest.CompareAndSwap(old, took); old = l.slowest.Load() {
				}
				l.decisions.Add(1)
				if err != nil {
					if l.errors.Add(1) == 1 {
						t.Errorf("a decision failed: %v", err)
					}
					continue
				}
				l.bySource[res.Source].Add(1)
				if res.Allowed {
					l.admitted.Add(1)
				}
				if p, ok := lim.(peeker); ok && n%2 == 0 {
					res, err := p.Peek(context.Background(), fmt.Sprint("k", n%keys))
					l.decisions.Add(1)
					if err == nil {
						l.bySource[res.Source].Add(1)
					} else if l.errors.Add(1) == 1 {
						t.Errorf("a peek failed: %v", err)
					}
				}
				time.Sleep(100 * time.Microsecond) // a rate, not a race
			}
		})
	}
	return l
}

func (l *load) end(t *testing.T, budget time.Duration) {
	l.halt()
	slowest := time.Duration(l.slowest.Load())
	t.Logf("%d decisions, %d admitted, %d by Redis, %d locally, slowest %v, %d errors", l.decisions.Load(), l.admitted.Load(),
		l.bySource[limiter.SourceRedis].Load(), l.bySource[limiter.SourceLocal].Load(), slowest, l.errors.Load())
	if slowest > budget+slack {
		t.Errorf("a decision took %v with a budget of %v", slowest, budget)
	}
}

// stateOf is the state of the only breaker, or of one that is not closed.
func stateOf(lim interface{ Health() limiter.Health }) func() breaker.State {
	return func() breaker.State {
		for _, sh := range lim.Health().Servers {
			if sh.State != breaker.Closed {
				return sh.State
			}
		}
		return breaker.Closed
	}
}

// until waits for a condition that other goroutines bring about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 15 s: %s", what)
		}
	}
}

func (l *load) more(s limiter.Source, n int64) func() bool {
	from := l.bySource[s].Load()
	return func() bool { return l.bySource[s].Load() >= from+n }
}

// TestFaultsUnderLoad: whatever happens to Redis, with a client of default
// options no caller sees an error or waits beyond the budget, decisions go on
// locally, and return to Redis afterwards.
func TestFaultsUnderLoad(t *testing.T) {
	for name, fault := range map[string]struct {
		begin, end func(*testing.T, *redisproc.Server)
	}{
		"kill and restart":  {(func(t *testing.T, s *redisproc.Server) { must(t, s.Kill()) }), func(t *testing.T, s *redisproc.Server) { must(t, s.Restart()) }},
		"freeze and thaw":   {(func(t *testing.T, s *redisproc.Server) { must(t, s.Freeze()) }), func(t *testing.T, s *redisproc.Server) { must(t, s.Thaw()) }},
		"stop and restart":  {(func(t *testing.T, s *redisproc.Server) { must(t, s.Terminate()) }), func(t *testing.T, s *redisproc.Server) { must(t, s.Restart()) }},
		"read only replica": {(func(t *testing.T, s *redisproc.Server) { replicaOf(t, s, "127.0.0.1", "1") }), func(t *testing.T, s *redisproc.Server) { replicaOf(t, s, "NO", "ONE") }},
	} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t)
			lim := newLimiter(t, redistest.Client(t, srv), limiter.GCRA(limiter.PerSecond(1000), 100))
			state := stateOf(lim)
			l := startLoad(t, lim, 50, 10)
			until(t, "decisions by Redis", l.more(limiter.SourceRedis, 200))
			fault.begin(t, srv)
			until(t, "the breaker opens", func() bool { return state() == breaker.Open })
			until(t, "decisions go on locally", l.more(limiter.SourceLocal, 500))
			fault.end(t, srv)
			until(t, "decisions return to Redis", func() bool { return state() == breaker.Closed })
			until(t, "decisions by Redis again", l.more(limiter.SourceRedis, 200))
			l.end(t, limiter.DefaultBudget)
		})
	}
}

// TestFlushesUnderLoad: losing the scripts costs nothing at all; losing the data
// refunds at most the burst each time.
func TestFlushesUnderLoad(t *testing.T) {
	for name, flush := range map[string]struct {
		run   func(context.Context, *redis.Client) error
		loses bool
	}{
		"script flush": {func(ctx context.Context, c *redis.Client) error { return c.ScriptFlush(ctx).Err() }, false},
		"flushall":     {func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t)
			admin := redistest.Admin(t, srv)
			const keys, burst, flushes = 4, 50, 20
			// A generous budget: no decision leaves Redis, however slow the machine.
			lim := newLimiter(t, redistest.Client(t, srv), limiter.TokenBucket(limiter.PerHour(1), burst), limiter.WithBudget(10*time.Second), limiter.WithoutDenialCache())
			l := startLoad(t, lim, 50, keys)
			for range flushes {
				until(t, "decisions by Redis", l.more(limiter.SourceRedis, 300))
				must(t, flush.run(t.Context(), admin))
			}
			until(t, "decisions after the last flush", l.more(limiter.SourceRedis, 300))
			l.end(t, 10*time.Second)
			want := int64(keys * burst)
			if flush.loses {
				want *= 1 + flushes
			}
			if got := l.admitted.Load(); got > want || l.bySource[limiter.SourceLocal].Load() > 0 {
				t.Errorf("%d admitted, at most %d; %d locally", got, want, l.bySource[limiter.SourceLocal].Load())
			}
		})
	}
}

// TestBudgetWithDefaultClient: a client made with an address alone takes 1.3 s
// for a refused connection and 10 s on a frozen server.
func TestBudgetWithDefaultClient(t *testing.T) {
	for _, state := range []string{"frozen", "refused", "frozen ring", "refused ring"} {
		t.Run(state, func(t *testing.T) {
			srv := redistest.Start(t)
			var rdb redis.UniversalClient = redistest.Client(t, srv)
			if strings.HasSuffix(state, "ring") {
				// Nothing of a ring's is tuned for the limiter.
				ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": srv.Addr()}, HeartbeatFrequency: time.Hour})
				t.Cleanup(func() { _ = ring.Close() })
				rdb = ring
			}
			lim := newLimiter(t, rdb, good, limiter.WithBreaker(breaker.Settings{MinRequests: 1000}))
			if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceRedis {
				t.Fatalf("%+v, %v", res, err)
			}
			if strings.HasPrefix(state, "frozen") {
				must(t, srv.Freeze())
				t.Cleanup(func() { _ = srv.Thaw() }) // lets the stuck calls end
			} else {
				must(t, srv.Kill())
			}
			// The breaker stays closed: the budget alone protects.
			for range 10 {
				start := time.Now()
				res, err := lim.Allow(t.Context(), "k")
				if took := time.Since(start); err != nil || res.Source != limiter.SourceLocal || took > limiter.DefaultBudget+slack {
					t.Errorf("%+v, %v after %v", res, err, took)
				}
			}
		})
	}
}

// TestOneCharge: a reply that comes too late was a charge; sending the decision
// again, as the client does by default, would be another.
func TestOneCharge(t *testing.T) {
	srv := redistest.Start(t)
	admin := redistest.Admin(t, srv)
	for name, opt := range map[string]*redis.Options{
		"defaults":              {Addr: srv.Addr()},
		"short read timeout":    {Addr: srv.Addr(), ReadTimeout: 100 * time.Millisecond, MaxRetries: 3},
		"context timeouts":      {Addr: srv.Addr(), ContextTimeoutEnabled: true, MaxRetries: 5},
		"many retries, no wait": {Addr: srv.Addr(), MaxRetries: 20, MinRetryBackoff: -1, MaxRetryBackoff: -1, ReadTimeout: 5 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := redis.NewClient(opt)
			defer rdb.Close()
			lim := newLimiter(t, rdb, limiter.FixedWindow(limiter.Per(1000, 24*time.Hour)),
				limiter.WithPrefix("charge-"+fmt.Sprint(len(name))), limiter.WithBreaker(breaker.Settings{MinRequests: 1000}))
			if _, err := lim.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			const decisions = 5
			for range decisions {
				warm(t, rdb)
				asleep := make(chan error, 1)
				go func() { asleep <- admin.Do(context.Background(), "debug", "sleep", "0.2").Err() }()
				until(t, "the server sleeps", func() bool {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
					defer cancel()
					probe := redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
					defer probe.Close()
					return probe.Ping(ctx).Err() != nil
				})
				res, err := lim.Allow(t.Context(), "k")
				if err != nil || res.Source != limiter.SourceLocal {
					t.Errorf("on a sleeping server: %+v, %v", res, err)
				}
				must(t, <-asleep)
			}
			// What was sent while the server slept has been executed by now:
			// replies come in order, and each decision had its own connection.
			until(t, "the server to answer", func() bool { return rdb.Ping(t.Context()).Err() == nil })
			res, err := lim.Peek(t.Context(), "k")
			if err != nil || res.Source != limiter.SourceRedis {
				t.Fatalf("%+v, %v", res, err)
			}
			if charged := 1000 - res.Remaining; charged > 1+decisions {
				t.Errorf("%d decisions were charged %d times", 1+decisions, charged)
			}
		})
	}
}

// warm gives the client several open connections: on one that must first shake
// hands with a sleeping server, a decision sent again would not get through.
func warm(t *testing.T, rdb *redis.Client) {
	t.Helper()
	slow := rdb.WithTimeout(10 * time.Second)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := slow.Do(context.Background(), "debug", "sleep", "0.01").Err(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func replicaOf(t *testing.T, s *redisproc.Server, host, port string) {
	t.Helper()
	must(t, redistest.Admin(t, s).Do(context.Background(), "replicaof", host, port).Err())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
