//go:build !race

package sim

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestTenThousandCallers: of many callers of as many keys, who ask again as soon as they have
// a decision, Redis decides for 99 % where it can do so within the budget. Where it cannot, it decides
// for as many as it can, of all algorithms alike, the others have a decision within the budget, and Health says
// that it is overloaded, not that it failed. Not with the race detector, which takes many times as long.
func TestTenThousandCallers(t *testing.T) {
	long(t)
	const rounds, budget = 5, 50 * time.Millisecond
	gcra, log := limiter.GCRA(limiter.PerSecond(100), 100), limiter.SlidingWindowLog(limiter.PerSecond(100))
	for name, c := range map[string]struct {
		shape   Shape
		callers int
		each    time.Duration // of a key
		logs    int           // of so many callers one asks for a log
		byRedis float64       // at least
		within  bool          // nobody is too many
	}{
		"quick":            {Single, 10_000, 3 * time.Microsecond, 0, 0.99, true}, // 30 ms for all
		"too slow for all": {Single, 10_000, 6 * time.Microsecond, 0, 0.7, false},
		"slow":             {Single, 10_000, 16 * time.Microsecond, 0, 0.25, false},
		"slower":           {Single, 3_000, 30 * time.Microsecond, 0, 0.5, false},
		"logs":             {Single, 10_000, 6 * time.Microsecond, 2, 0.7, false},
		"cluster":          {Cluster, 3_000, 20 * time.Microsecond, 0, 0.99, true},
		"cluster, slow":    {Cluster, 10_000, 0, 0, 0.6, false},
	} {
		t.Run(name, func(t *testing.T) {
			standingOn(t, c.shape, 1, 1, gcra, func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
				for i := range 200 { // all servers are known
					if _, err := l.limiters[0].Allow(t.Context(), fmt.Sprint("first", i)); err != nil {
						t.Fatal(err)
					}
				}
				for _, s := range l.servers {
					s.mu.Lock()
					s.health.Each = c.each
					s.mu.Unlock()
				}
				before := l.limiters[0].Health()
				took, sources := make([][]time.Duration, c.callers), make([]map[limiter.Source]uint64, c.callers)
				var wg sync.WaitGroup
				for i := range c.callers {
					sources[i] = map[limiter.Source]uint64{}
					limit := gcra
					if c.logs > 0 && i%c.logs == 0 {
						limit = log
					}
					wg.Go(func() {
						for range rounds {
							start := time.Now()
							res, err := l.limiters[0].Allow(t.Context(), fmt.Sprint("user:", i), limit)
							took[i] = append(took[i], time.Since(start))
							if err != nil || !res.Allowed {
								t.Errorf("%+v, %v", res, err)
							}
							sources[i][res.Source]++
						}
					})
				}
				wg.Wait()
				all, ofLogs := map[limiter.Source]uint64{}, map[limiter.Source]uint64{}
				for i := range sources {
					for s, n := range sources[i] {
						all[s] += n
						if c.logs > 0 && i%c.logs == 0 {
							ofLogs[s] += n
						}
					}
				}
				longest := slices.Max(slices.Concat(took...))
				overloaded := uint64(0)
				for i, srv := range l.limiters[0].Health().Servers {
					overloaded += srv.Overloaded - before.Servers[i].Overloaded
					if srv.State != breaker.Closed || srv.LastFailure != breaker.ClassOK {
						t.Errorf("Health says %+v", srv)
					}
				}
				t.Logf("%v, of logs %v, longest %v, overloaded %d", all, ofLogs, longest, overloaded)
				part := func(of map[limiter.Source]uint64) float64 {
					return float64(of[limiter.SourceRedis]) / float64(of[limiter.SourceRedis]+of[limiter.SourceLocal])
				}
				if part(all) < c.byRedis || c.logs > 0 && part(ofLogs) < part(all)-0.02 {
					t.Errorf("Redis decided %.1f %%, of logs %.1f %%", 100*part(all), 100*part(ofLogs))
				}
				if longest > budget {
					t.Errorf("one took %v", longest)
				}
				// A call that charges Redis later, of up to 64 keys, may find no turn either.
				if local := all[limiter.SourceLocal]; overloaded > local+64 || overloaded*100 < local*99 || local == 0 != c.within {
					t.Errorf("%d were decided here, %d of them because of overload", local, overloaded)
				}
			})
		})
	}
}

// TestFullCallsAreInTime: where a server of a cluster needs longer for each command, and a full call of 64 would be slow,
// calls are smaller: the breakers stay closed under more callers than it can answer, and Redis decides for as many as it can.
func TestFullCallsAreInTime(t *testing.T) {
	long(t)
	standingOn(t, Cluster, 1, 1, limiter.GCRA(limiter.PerSecond(100), 100), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
		for i := range 200 { // all servers are known
			if _, err := l.limiters[0].Allow(t.Context(), fmt.Sprint("first", i)); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range l.servers {
			s.set(func(h *Health) { h.Slow = 500 * time.Microsecond })
		}
		before := l.limiters[0].Health()
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 2000 {
			wg.Go(func() {
				for time.Since(start) < 2*time.Second {
					began := time.Now()
					if res, err := l.limiters[0].Allow(t.Context(), fmt.Sprint("user:", i)); err != nil || !res.Allowed || time.Since(began) > 50*time.Millisecond {
						t.Errorf("%+v, %v, after %v", res, err, time.Since(began))
					}
					time.Sleep(20 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		h := l.limiters[0].Health()
		for i, srv := range h.Servers {
			if srv.State != breaker.Closed || srv.Since != before.Servers[i].Since || srv.Overloaded == before.Servers[i].Overloaded {
				t.Errorf("Health says %+v", srv)
			}
		}
		if n := h.Decisions[limiter.SourceRedis] - before.Decisions[limiter.SourceRedis]; n < 6000 { // each server answers about 1,900 in a second, debts among them
			t.Errorf("Redis made %d decisions", n)
		}
	})
}

// TestManyCallsToAFarServer: to a server that is far, three quarters of a pool of 100 fly, and when callers come all at once, the
// answers to that many full calls are slow one after the other. They count once, calls become smaller when those are back,
// and the breaker stays closed.
func TestManyCallsToAFarServer(t *testing.T) {
	long(t)
	const lasts = time.Second / 2
	for _, c := range []struct {
		away, each time.Duration
		byRedis    float64 // of what it can decide, at least
	}{
		{2 * time.Millisecond, 5 * time.Microsecond, 0.8},
		{2 * time.Millisecond, 10 * time.Microsecond, 0.7},
		{6 * time.Millisecond, 20 * time.Microsecond, 0.6},
		{10 * time.Millisecond, 5 * time.Microsecond, 0.7}, // more than half of the budget goes by before a new connection is there
	} {
		standingOn(t, Single, 1, 1, limiter.GCRA(limiter.PerSecond(100), 100), func(int) time.Duration { return c.away / 2 }, func(t *testing.T, l *lines) {
			rdb := largePool(l, func(c net.Conn) net.Conn { return c })
			defer rdb.Close()
			lim, err := limiter.New(rdb, limiter.GCRA(limiter.PerSecond(100), 100), limiter.WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				t.Fatal(err)
			}
			defer lim.Close()
			for i := range 200 { // how far it is, is known
				if _, err := lim.Allow(t.Context(), fmt.Sprint("first", i)); err != nil {
					t.Fatal(err)
				}
			}
			l.srv.set(func(h *Health) { h.Each = c.each })
			before, start := lim.Health(), time.Now()
			var wg sync.WaitGroup
			for i := range 10_000 {
				wg.Go(func() {
					for time.Since(start) < lasts {
						if res, err := lim.Allow(t.Context(), fmt.Sprint("user:", i)); err != nil || !res.Allowed {
							t.Errorf("%+v, %v", res, err)
						}
						time.Sleep(20 * time.Millisecond)
					}
				})
			}
			wg.Wait()
			h := lim.Health()
			if srv := h.Servers[0]; srv.State != breaker.Closed || srv.Since != before.Servers[0].Since {
				t.Errorf("%+v: Health says %+v", c, srv)
			}
			most := float64(lasts / c.each)
			if n := h.Decisions[limiter.SourceRedis] - before.Decisions[limiter.SourceRedis]; float64(n) < c.byRedis*most {
				t.Errorf("%+v: Redis made %d decisions, and could make %.0f", c, n, most)
			}
		})
	}
}

// TestCallsWithoutRoomAreInTime: a call may have no room for one more although it has fewer keys than a full one: requests for
// several limits do not divide it, or logs have as much work as a call may have. Those become smaller and larger as others do.
func TestCallsWithoutRoomAreInTime(t *testing.T) {
	long(t)
	const lasts = time.Second
	gcra, log := limiter.GCRA(limiter.PerSecond(100), 100), limiter.SlidingWindowLog(limiter.PerSecond(10_000))
	for _, c := range []struct {
		shape  Shape
		limit  limiter.Limit
		limits int // of a request, each of which is a key
		cost   limiter.Cost
		each   time.Duration
		most   int // requests that the servers can decide
	}{
		{Single, gcra, 3, 1, 500 * time.Microsecond, 660},
		{Single, log, 1, 400, 2500 * time.Microsecond, 400},  // 10 fill a call
		{Cluster, gcra, 5, 1, 20 * time.Microsecond, 25_000}, // with a command for each
	} {
		standingOn(t, c.shape, 1, 1, c.limit, func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
			var parts []limiter.Part
			for i := range c.limits {
				lim, err := limiter.New(l.clients[0], c.limit, limiter.WithPrefix(fmt.Sprint("limit", i)), limiter.WithLogger(slog.New(slog.DiscardHandler)))
				if err != nil {
					t.Fatal(err)
				}
				defer lim.Close()
				parts = append(parts, limiter.Part{Name: fmt.Sprint(i), Limiter: lim})
			}
			several, err := limiter.NewMulti(parts...)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 200 { // all servers are known
				if _, err := several.Allow(t.Context(), fmt.Sprint("first", i)); err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range l.servers {
				s.set(func(h *Health) { h.Each = c.each })
			}
			first := parts[0].Limiter
			before, start := first.Health(), time.Now()
			var wg sync.WaitGroup
			for i := range 2000 {
				wg.Go(func() {
					for time.Since(start) < lasts {
						began := time.Now()
						if res, err := several.Allow(t.Context(), fmt.Sprint("user:", i), c.cost); err != nil || !res.Allowed || time.Since(began) > 50*time.Millisecond {
							t.Errorf("%+v, %v, after %v", res, err, time.Since(began))
						}
						time.Sleep(20 * time.Millisecond)
					}
				})
			}
			wg.Wait()
			h := first.Health()
			for i, srv := range h.Servers {
				if srv.State != breaker.Closed || srv.Since != before.Servers[i].Since {
					t.Errorf("%+v: Health says %+v", c, srv)
				}
			}
			if n := h.Decisions[limiter.SourceRedis] - before.Decisions[limiter.SourceRedis]; n < uint64(c.most)*7/10 {
				t.Errorf("%+v: Redis made %d decisions", c, n)
			}
		})
	}
}

// TestCallsLateByChance: where single calls to a server that is far are late and those sent after them are not, it is not because of their
// size. They do not become smaller, and as many fly as before.
func TestCallsLateByChance(t *testing.T) {
	long(t)
	const lasts, each = time.Second, 5 * time.Microsecond
	standingOn(t, Single, 1, 1, limiter.GCRA(limiter.PerSecond(100), 100), func(int) time.Duration { return 3 * time.Millisecond }, func(t *testing.T, l *lines) {
		var writes atomic.Int64
		rdb := largePool(l, func(c net.Conn) net.Conn { return &late{c, &writes} })
		defer rdb.Close()
		lim, err := limiter.New(rdb, limiter.GCRA(limiter.PerSecond(100), 100), limiter.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		defer lim.Close()
		for i := range 200 { // how far it is, is known
			if _, err := lim.Allow(t.Context(), fmt.Sprint("first", i)); err != nil {
				t.Fatal(err)
			}
		}
		l.srv.set(func(h *Health) { h.Each = each })
		before, start := lim.Health().Decisions[limiter.SourceRedis], time.Now()
		var wg sync.WaitGroup
		for i := range 5000 {
			wg.Go(func() {
				for time.Since(start) < lasts {
					if _, err := lim.Allow(t.Context(), fmt.Sprint("user:", i)); err != nil {
						t.Error(err)
					}
					time.Sleep(20 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		h := lim.Health()
		if n := h.Decisions[limiter.SourceRedis] - before; h.Servers[0].State != breaker.Closed || n < 120_000 {
			t.Errorf("Redis made %d decisions: %+v", n, h.Servers[0])
		}
	})
}

// TestCallsThatWaitBeforeTheyAreWritten: where each call waits in a hook of the user's, as it would for a connection, and the
// server answers at once, the calls stay full: the fewer there are, the more keys each must have.
func TestCallsThatWaitBeforeTheyAreWritten(t *testing.T) {
	long(t)
	for _, c := range []struct {
		waits time.Duration
		least uint64 // decisions that Redis makes
	}{
		{5 * time.Millisecond, 90_000},
		{30 * time.Millisecond, 14_000}, // longer than an answer may take
	} {
		standingOn(t, Single, 1, 1, limiter.GCRA(limiter.PerSecond(100), 100), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
			for i := range 200 {
				if _, err := l.limiters[0].Allow(t.Context(), fmt.Sprint("first", i)); err != nil {
					t.Fatal(err)
				}
			}
			l.srv.set(func(h *Health) { h.Each = 5 * time.Microsecond })
			l.clients[0].(*redis.Client).AddHook(waits(c.waits))
			before, start := l.limiters[0].Health().Decisions[limiter.SourceRedis], time.Now()
			var wg sync.WaitGroup
			for i := range 5000 {
				wg.Go(func() {
					for time.Since(start) < time.Second {
						if _, err := l.limiters[0].Allow(t.Context(), fmt.Sprint("user:", i)); err != nil {
							t.Error(err)
						}
						time.Sleep(20 * time.Millisecond)
					}
				})
			}
			wg.Wait()
			h := l.limiters[0].Health()
			if n := h.Decisions[limiter.SourceRedis] - before; h.Servers[0].State != breaker.Closed || n < c.least {
				t.Errorf("after %v each: Redis made %d decisions: %+v", c.waits, n, h.Servers[0])
			}
		})
	}
}

// waits is a hook that waits before each command and pipeline.
type waits time.Duration

func (w waits) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w waits) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(time.Duration(w))
		return next(ctx, cmd)
	}
}

func (w waits) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		time.Sleep(time.Duration(w))
		return next(ctx, cmds)
	}
}

// largePool is a client of the server with as many connections as go-redis has on ten cores, each as it is made of one of the network.
func largePool(l *lines, made func(net.Conn) net.Conn) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: l.srv.address(), Protocol: 2, DisableIdentity: true, MaxRetries: -1, PoolSize: 100, ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
			c, err := l.net.dial(ctx, "p0", addr)
			if err != nil {
				return nil, err
			}
			return made(c), nil
		},
	})
}

// late makes every thirtieth write 200 ms late.
type late struct {
	net.Conn
	writes *atomic.Int64
}

func (c *late) Write(b []byte) (int, error) {
	if c.writes.Add(1)%30 == 0 {
		time.Sleep(200 * time.Millisecond)
	}
	return c.Conn.Write(b)
}
