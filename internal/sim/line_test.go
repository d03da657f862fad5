package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	rand1 "math/rand"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
)

// lines is a fleet whose processes wait for one key in Redis.
type lines struct {
	net       *network
	srv       *Server // the first of
	servers   []*Server
	limiters  []*limiter.Limiter
	clients   []redis.UniversalClient
	decisions []int
	mu        sync.Mutex
}

// quick reports whether make check runs the tests, which leaves out what lasts seconds.
func quick() bool { return os.Getenv("HOLDFAST_QUICK") != "" }

// whole reports whether tests run each combination of what they vary, and not only some in which each of
// it occurs.
func whole() bool { return os.Getenv("HOLDFAST_LONG") == "1" }

func long(t *testing.T) {
	t.Helper()
	if quick() {
		t.Skip("lasts seconds")
	}
}

// standing is standingOn one server.
func standing(t *testing.T, seed uint64, processes int, limit limiter.Limit, far func(i int) time.Duration, test func(*testing.T, *lines), opts ...limiter.Option) {
	standingOn(t, Single, seed, processes, limit, far, test, opts...)
}

// standingOn runs a test with a fleet of processes; the i-th is far(i) further away.
func standingOn(t *testing.T, shape Shape, seed uint64, processes int, limit limiter.Limit, far func(i int) time.Duration, test func(*testing.T, *lines), opts ...limiter.Option) {
	cryptotest.SetGlobalRandom(t, seed)
	rand1.Seed(int64(seed)) //nolint:staticcheck // go-redis draws from it
	emptyPools()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(2 * time.Second) // go-redis dials once more after its Close
		l := &lines{decisions: make([]int, processes)}
		l.net = newNetwork(seed, 200*time.Microsecond)
		ledger := newLedger(&Plan{}, map[string]*rule{}, false)
		for i := range shape.servers() {
			l.servers = append(l.servers, newServer(l.net, ledger, fmt.Sprintf("10.0.0.%d:6379", i+1), uint64(i+1)))
		}
		if l.srv = l.servers[0]; shape.isCluster() {
			newCluster(l.servers)
		}
		for i := range processes {
			name := "p" + strconv.Itoa(i)
			for _, srv := range l.servers {
				l.net.set(name, srv.address(), func(p *Path) { p.Delay = far(i) })
			}
			rdb := shape.client(l.servers, false, func(ctx context.Context, addr string) (net.Conn, error) { return l.net.dial(ctx, name, addr) })
			lim, err := limiter.New(rdb, limit, append([]limiter.Option{limiter.WithProcess(name), limiter.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))),
				limiter.WithHooks(limiter.Hooks{Decision: func(context.Context, limiter.DecisionInfo) {
					l.mu.Lock()
					l.decisions[i]++
					l.mu.Unlock()
				}})}, opts...)...)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = lim.Close(); _ = rdb.Close() }()
			l.limiters, l.clients = append(l.limiters, lim), append(l.clients, rdb)
		}
		// Each learns how many they are.
		for range 8 {
			for _, lim := range l.limiters {
				if _, err := lim.Allow(t.Context(), "other"); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
		}
		for i := range l.decisions {
			l.decisions[i] = 0
		}
		test(t, l)
	})
}

// wait lets goroutines of each process wait again and again, and returns how many were
// admitted in each process, and the slowest wait.
func (l *lines) wait(t *testing.T, goroutines int, life time.Duration) (admitted []int, slowest time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	admitted = make([]int, len(l.limiters))
	var wg sync.WaitGroup
	for i, lim := range l.limiters {
		for range goroutines {
			wg.Go(func() {
				for {
					start := time.Now()
					if _, err := lim.Wait(ctx, "k"); err != nil {
						return
					}
					l.mu.Lock()
					admitted[i]++
					slowest = max(slowest, time.Since(start))
					l.mu.Unlock()
				}
			})
		}
	}
	time.Sleep(life)
	cancel()
	wg.Wait()
	return admitted, slowest
}

func sum(n []int) (all int) {
	for _, v := range n {
		all += v
	}
	return all
}

// TestOneProcessOnRedis: a process that is alone waits as in TestWaitersAreServedInTurn of
// package limiter.
func TestOneProcessOnRedis(t *testing.T) {
	standing(t, 1, 1, limiter.GCRA(limiter.PerSecond(100), 10), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
		got, slowest := l.wait(t, 50, 6*time.Second)
		t.Logf("%v admitted, slowest %v, decisions %v", got, slowest, l.decisions)
		if got[0] < 600 || float64(l.decisions[0]) > 2.5*float64(got[0]) || slowest > 550*time.Millisecond {
			t.Errorf("%d admitted, the slowest after %v, by %d decisions", got[0], slowest, l.decisions[0])
		}
	})
}

// TestOnePartIsCharged: a caller with little time left, whose call to one part of a key may
// have been charged, is not charged on another one.
func TestOnePartIsCharged(t *testing.T) {
	standing(t, 1, 2, limiter.GCRA(limiter.PerSecond(100), 40), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
		charged := func() int {
			l.srv.ledger.mu.Lock()
			defer l.srv.ledger.mu.Unlock()
			return len(l.srv.ledger.nonces)
		}
		for range 3 {
			var wg sync.WaitGroup
			for range 3 { // connections
				wg.Go(func() { _, _ = l.limiters[0].Peek(t.Context(), "k") })
			}
			wg.Wait()
			l.net.set("p0", l.srv.address(), func(p *Path) { p.RepliesLost = true })
			before := charged()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			res, err := l.limiters[0].AllowN(ctx, "k", 10) // more than this process's share of a part
			cancel()
			time.Sleep(time.Second)
			if n := charged() - before; n > 1 || res.Allowed || err != nil {
				t.Errorf("%d commands were charged for one decision: %+v (%v), %d processes", n, res, err, l.limiters[0].Health().Processes)
			}
			l.net.set("p0", l.srv.address(), func(p *Path) { p.RepliesLost = false })
			time.Sleep(5 * time.Second)
			_, _ = l.limiters[0].Allow(t.Context(), "k")
		}
	}, limiter.WithKeyShards(4), limiter.WithShare(0.5))
}

// TestRedisFailsInAWait: the line goes on with the local limit, and with that of Redis soon
// after it is back, although the local one would let it wait for longer.
func TestRedisFailsInAWait(t *testing.T) {
	standing(t, 1, 2, limiter.GCRA(limiter.PerMinute(6), 2), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
		lim := l.limiters[0]
		for range 2 {
			if _, err := lim.Wait(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		var sources []limiter.Source
		var at []time.Duration
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				res, err := lim.Wait(t.Context(), "k")
				if err != nil {
					t.Error(err)
				}
				l.mu.Lock()
				sources, at = append(sources, res.Source), append(at, time.Since(start))
				l.mu.Unlock()
			})
		}
		time.Sleep(5 * time.Second)
		l.srv.set(func(h *Health) { h.Down = true })
		l.srv.crash()
		time.Sleep(12 * time.Second)
		l.srv.set(func(h *Health) { h.Down = false })
		wg.Wait()
		t.Log(sources, at)
		// Every 10 s by Redis, every 20 s by half of the limit.
		if last := at[2]; last > 45*time.Second || sources[2] != limiter.SourceRedis {
			t.Errorf("admitted after %v by %v", at, sources)
		}
		// The first asks each second, although it has to wait for 20 s by half of the limit.
		if at[0] > 18200*time.Millisecond || sources[0] != limiter.SourceRedis {
			t.Errorf("Redis is back after 17 s, and the first was admitted after %v by %v", at[0], sources[0])
		}
	})
}

// TestBurstIsToldAtOnce: where callers begin to wait together, so that each asks Redis before there is a
// line, the callers that the limit has no room for within their time hear that at once.
func TestBurstIsToldAtOnce(t *testing.T) {
	const callers, patience = 300, 2 * time.Second // of whom 10 + 100/s · 2 s are admitted
	for _, away := range []time.Duration{0, 5 * time.Millisecond} {
		standing(t, 1, 1, limiter.GCRA(limiter.PerSecond(100), 10), func(int) time.Duration { return away }, func(t *testing.T, l *lines) {
			var mu sync.Mutex
			var wg sync.WaitGroup
			admitted, told, late := 0, 0, 0
			start := time.Now()
			for range callers {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					_, err := l.limiters[0].Wait(ctx, "burst")
					took := time.Since(start)
					mu.Lock()
					defer mu.Unlock()
					var tooLate *limiter.WaitError
					switch {
					case err == nil:
						admitted++
					case errors.As(err, &tooLate) && took < patience/4:
						told++
					default:
						late++
					}
				})
			}
			wg.Wait()
			if admitted < 195 || told < 75 || late > 20 {
				t.Errorf("%v away: %d admitted, %d told at once, %d later", away, admitted, told, late)
			}
		}, limiter.WithBudget(time.Second))
	}
}
