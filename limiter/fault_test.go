package limiter_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
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

// Of the decisions of a load, 95 % keep to the budget and usual; none takes longer than the
// budget and slack, so that a wait of the client's own timeouts, from 1.3 s up, shows. Both
// get what timers of this machine are late by, which is measured meanwhile, also by each
// caller when it pauses: once for a timer and, at most, once more for the goroutine that it wakes.
const (
	usual = 20 * time.Millisecond
	slack = time.Second
)

// fast makes recovery quick enough for a test.
func fast() limiter.RedisOption {
	return limiter.WithBreaker(breaker.Settings{OpenMin: 50 * time.Millisecond, OpenMax: 200 * time.Millisecond})
}

// newLimiter returns a limiter that is alone until it learns of others.
func newLimiter(t *testing.T, rdb redis.UniversalClient, limit limiter.Limit, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	logged := limiter.WithLogger(slog.New(slog.NewTextHandler(t.Output(), nil))) // which stands beside a failure only
	lim, err := limiter.New(rdb, limit, append([]limiter.Option{logged, fast(), limiter.WithExpectedProcesses(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("health: %+v", lim.Health())
		}
		_ = lim.Close()
	})
	return lim
}

// pace is how often callers of a load ask: all at once, so that they share calls, and then
// not for a while, or tests that run at the same time would starve each other: on a busy
// machine a Redis that is never asked in time is, rightly, one that is down.
const pace = 50 * time.Millisecond

// load asks from many goroutines until it is stopped, and keeps the score.
type load struct {
	decisions, admitted, errors atomic.Int64
	byRedis                     atomic.Int64 // of those admitted
	bySource                    [8]atomic.Int64
	*timers
	mu       sync.Mutex
	took     []time.Duration
	began    time.Time
	stop     chan struct{}
	stopping sync.Once
	wg       sync.WaitGroup
}

// timers is by how much timers of this machine are late.
type timers struct {
	end   func()
	mu    sync.Mutex
	worst time.Duration
	due   time.Time // the one under way
}

// measured measures timers until its end, which is that of the test at the latest.
func measured(t *testing.T) *timers {
	m := &timers{due: time.Now().Add(pace)}
	stop, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for next := m.due; ; next = m.rang() {
			select {
			case <-stop:
				return
			case <-time.After(time.Until(next)):
			}
		}
	}()
	m.end = sync.OnceFunc(func() { close(stop); <-over })
	t.Cleanup(m.end)
	return m
}

// rang is for the timer that is due, and returns when the next one is.
func (m *timers) rang() time.Time {
	m.late(time.Since(m.due))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.due = time.Now().Add(pace)
	return m.due
}

func (m *timers) late(by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.worst = max(m.worst, by)
}

// most is by how much a timer was late, or is.
func (m *timers) most() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.worst, time.Since(m.due))
}

// within is how long what has a budget may take.
func (m *timers) within(budget time.Duration) time.Duration { return budget + slack + 2*m.most() }

// loads are those that run at once: a few, which two processors have time for that do something else, too,
// or no decision would be in time; and more as long as the processors have nothing to do now and then.
var loads struct {
	next sync.Mutex // of the one that begins next
	run  atomic.Int64
}

func takeTurn() {
	const few, many, moment = 4, 20, 50 * time.Millisecond
	loads.next.Lock()
	defer loads.next.Unlock()
	for n := loads.run.Load(); n >= few; n = loads.run.Load() {
		before := idled()
		time.Sleep(moment)
		if idled()-before > time.Duration(runtime.NumCPU())*moment/5 && n < many {
			break
		}
	}
	loads.run.Add(1)
}

// idled is for how long the processors had nothing to do, all together. It stays 0 where that cannot be read, or
// where there are more of them than this process may use.
func idled() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil || runtime.GOMAXPROCS(0) < runtime.NumCPU() {
		return 0
	}
	var user, nice, system, idle int64
	if _, err := fmt.Sscanf(string(text), "cpu %d %d %d %d", &user, &nice, &system, &idle); err != nil {
		return 0
	}
	return time.Duration(idle) * 10 * time.Millisecond
}

// peeker is what can be asked without being charged, as users do in between.
type peeker interface {
	Peek(ctx context.Context, key string, limit ...limiter.Limit) (limiter.Result, error)
}

func (l *load) halt() {
	l.stopping.Do(func() {
		close(l.stop)
		l.wg.Wait()
		l.timers.end()
		loads.run.Add(-1)
	})
}

func startLoad(t *testing.T, lim limiter.Allower, callers, keys int) *load {
	takeTurn()
	l := &load{timers: measured(t), stop: make(chan struct{}), began: time.Now()}
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
				took := time.Since(start)
				l.mu.Lock()
				l.took = append(l.took, took)
				l.mu.Unlock()
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
					if res.Source == limiter.SourceRedis {
						l.byRedis.Add(1)
					}
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
				rest := pace - time.Since(l.began)%pace
				start = time.Now()
				time.Sleep(rest)
				l.late(time.Since(start) - rest)
			}
		})
	}
	return l
}

func (l *load) end(t *testing.T, budget time.Duration) {
	t.Helper()
	l.halt()
	slices.Sort(l.took)
	at := func(all []time.Duration, percent int) time.Duration { return all[(len(all)-1)*percent/100] }
	t.Logf("%d decisions, %d admitted, %d by Redis, %d locally, 95 %% took up to %v and all up to %v, timers were up to %v late, %d errors",
		l.decisions.Load(), l.admitted.Load(), l.bySource[limiter.SourceRedis].Load(), l.bySource[limiter.SourceLocal].Load(),
		at(l.took, 95), at(l.took, 100), l.most(), l.errors.Load())
	if most := budget + usual + l.most(); at(l.took, 95) > most {
		t.Errorf("95 %% of the decisions took up to %v, of which %v are allowed", at(l.took, 95), most)
	}
	if most := l.within(budget); at(l.took, 100) > most {
		t.Errorf("a decision took %v, of which %v are allowed", at(l.took, 100), most)
	}
}

// stateOf is the state of the only breaker, or of one that is not closed. The one that a
// cluster has before its servers are known does not count afterwards: nobody uses it.
func stateOf(lim interface{ Health() limiter.Health }) func() breaker.State {
	return func() breaker.State {
		servers := lim.Health().Servers
		named := slices.ContainsFunc(servers, func(sh limiter.ServerHealth) bool { return strings.Contains(sh.Name, "@") })
		for _, sh := range servers {
			if sh.State != breaker.Closed && (!named || strings.Contains(sh.Name, "@")) {
				return sh.State
			}
		}
		return breaker.Closed
	}
}

// until waits for a condition that other goroutines bring about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	wait(t, what, time.Millisecond, ok)
}

// rarely is until for a condition that takes long to find out.
func rarely(t *testing.T, what string, ok func() bool) {
	t.Helper()
	wait(t, what, 200*time.Millisecond, ok)
}

func wait(t *testing.T, what string, every time.Duration, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(every) {
		if time.Now().After(deadline) {
			var goroutines strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&goroutines, 1)
			t.Fatalf("not within three minutes: %s\n%s", what, &goroutines)
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
	t.Parallel()
	for name, fault := range map[string]struct {
		begin, end func(*testing.T, *redisproc.Server)
	}{
		"kill and restart":  {(func(t *testing.T, s *redisproc.Server) { must(t, s.Kill()) }), func(t *testing.T, s *redisproc.Server) { must(t, s.Restart()) }},
		"freeze and thaw":   {(func(t *testing.T, s *redisproc.Server) { must(t, s.Freeze()) }), func(t *testing.T, s *redisproc.Server) { must(t, s.Thaw()) }},
		"stop and restart":  {(func(t *testing.T, s *redisproc.Server) { must(t, s.Terminate()) }), func(t *testing.T, s *redisproc.Server) { must(t, s.Restart()) }},
		"read only replica": {(func(t *testing.T, s *redisproc.Server) { replicaOf(t, s, "127.0.0.1", "1") }), func(t *testing.T, s *redisproc.Server) { replicaOf(t, s, "NO", "ONE") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
			l.end(t, defaultBudget)
		})
	}
}

// TestFlushesUnderLoad: losing the scripts costs nothing at all; losing the data
// refunds at most the burst each time.
func TestFlushesUnderLoad(t *testing.T) {
	t.Parallel()
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
			t.Parallel()
			srv := redistest.Start(t)
			var rdb redis.UniversalClient = redistest.Client(t, srv)
			if strings.HasSuffix(state, "ring") {
				// Nothing of a ring's is tuned for the limiter.
				ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": srv.Addr()}, HeartbeatFrequency: time.Hour})
				t.Cleanup(func() { _ = ring.Close() })
				rdb = ring
			}
			lim := newLimiter(t, rdb, good, limiter.WithBreaker(breaker.Settings{MinRequests: 1000}))
			until(t, "a connection", func() bool {
				res, err := lim.Allow(t.Context(), "k")
				must(t, err)
				return res.Source == limiter.SourceRedis
			})
			if strings.HasPrefix(state, "frozen") {
				must(t, srv.Freeze())
				t.Cleanup(func() { _ = srv.Thaw() }) // lets the stuck calls end
			} else {
				must(t, srv.Kill())
			}
			// The breaker stays closed: the budget alone protects.
			m := measured(t)
			for range 10 {
				start := time.Now()
				res, err := lim.Allow(t.Context(), "k")
				if took := time.Since(start); err != nil || res.Source != limiter.SourceLocal || took > m.within(defaultBudget) {
					t.Errorf("%+v, %v after %v", res, err, took)
				}
			}
		})
	}
}

// TestOneCharge: a reply that comes too late was a charge; sending the decision
// again, as the client does by default, would be another.
func TestOneCharge(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]redis.Options{
		"defaults":              {},
		"short read timeout":    {ReadTimeout: 100 * time.Millisecond, MaxRetries: 3},
		"context timeouts":      {ContextTimeoutEnabled: true, MaxRetries: 5},
		"many retries, no wait": {MaxRetries: 20, MinRetryBackoff: -1, MaxRetryBackoff: -1, ReadTimeout: 5 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			opt.Addr = srv.Addr()
			rdb := redis.NewClient(&opt)
			defer rdb.Close()
			lim := newLimiter(t, rdb, limiter.FixedWindow(limiter.Per(1000, 24*time.Hour)),
				limiter.WithBreaker(breaker.Settings{MinRequests: 1000}))
			if _, err := lim.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			const decisions = 5
			for range decisions {
				warm(t, rdb)
				must(t, srv.Freeze())
				res, err := lim.Allow(t.Context(), "k")
				if err != nil || res.Source != limiter.SourceLocal {
					t.Errorf("on a frozen server: %+v, %v", res, err)
				}
				time.Sleep(200 * time.Millisecond) // in which the client would send it again
				must(t, srv.Thaw())
			}
			// What was sent while the server was frozen has been executed by now:
			// replies come in order, and each decision had its own connection.
			until(t, "the server to answer", func() bool { return rdb.Ping(t.Context()).Err() == nil })
			var res limiter.Result
			until(t, "a peek by Redis", func() (byRedis bool) {
				var err error
				res, err = lim.Peek(t.Context(), "k")
				must(t, err)
				return res.Source == limiter.SourceRedis
			})
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
	admin := redistest.Admin(t, s)
	must(t, admin.Do(context.Background(), "replicaof", host, port).Err())
	must(t, admin.Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var keys = func() (all []string) {
	for i := range 1000 {
		all = append(all, fmt.Sprint("user:", i))
	}
	return all
}()
