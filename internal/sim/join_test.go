//go:build !race

package sim

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	rand1 "math/rand"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
)

func near(int) time.Duration { return 0 }

// processes returns 0 to n−1.
func processes(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// starting runs a test in which processes start at times of its own: start makes a limiter of the
// i-th process on a server.
func starting(t *testing.T, servers int, test func(t *testing.T, l *lines, start func(i, srv int, limit limiter.Limit, opts ...limiter.Option) *limiter.Limiter)) {
	cryptotest.SetGlobalRandom(t, 1)
	rand1.Seed(1) //nolint:staticcheck // go-redis draws from it
	emptyPools()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(2 * time.Second) // go-redis dials once more after its Close
		l := &lines{net: newNetwork(1, 200*time.Microsecond)}
		ledger := newLedger(&Plan{}, map[string]*rule{}, false)
		for i := range servers {
			l.servers = append(l.servers, newServer(l.net, ledger, fmt.Sprintf("10.0.0.%d:6379", i+1), uint64(i+1)))
		}
		l.srv = l.servers[0]
		clients := map[[2]int]redis.UniversalClient{}
		var all []*limiter.Limiter
		defer func() {
			for _, lim := range all {
				_ = lim.Close()
			}
			for _, c := range clients {
				_ = c.Close()
			}
		}()
		test(t, l, func(i, srv int, limit limiter.Limit, opts ...limiter.Option) *limiter.Limiter {
			name := "p" + strconv.Itoa(i)
			rdb := clients[[2]int{i, srv}]
			if rdb == nil {
				rdb = Single.client(l.servers[srv:srv+1], false, func(ctx context.Context, addr string) (net.Conn, error) { return l.net.dial(ctx, name, addr) })
				clients[[2]int{i, srv}] = rdb
			}
			lim, err := limiter.New(rdb, limit, append([]limiter.Option{limiter.WithProcess(name), limiter.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))}, opts...)...)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, lim)
			return lim
		})
	})
}

// gentle checks the ten seconds after an outage. Until one of those who saw it has reached Redis and said
// so, which go-redis allows after a second, no process that did not see it can know. From the third second on the
// limit holds.
func gentle(t *testing.T, what string, limit limiter.Limit, got []int) {
	t.Helper()
	t.Logf("%s: %v", what, got)
	rate := limit.Rate().N
	if n := slices.Max(got[2:]); n > rate*105/100 {
		t.Errorf("%s: %d of %d in one of the seconds %v", what, n, rate, got[2:])
	}
	if got[1] > rate*6/5 {
		t.Errorf("%s: %d of %d in the second second", what, got[1], rate)
	}
}

// TestIdleProcessesReturnWithTheOthers: processes that asked for nothing in the outage, and so did not
// see it, decide within their claims, too, until those who saw it are back. Half of them is the most;
// HOLDFAST_LONG=1 tries each other number with each limit.
func TestIdleProcessesReturnWithTheOthers(t *testing.T) {
	long(t)
	for i, limit := range []limiter.Limit{limiter.GCRA(limiter.PerSecond(400), 40), limiter.FixedWindow(limiter.PerSecond(400))} {
		for _, idle := range []int{1, 2, 4} {
			if !whole() && idle == 2-i {
				continue
			}
			standing(t, 1, 8, limit, near, func(t *testing.T, l *lines) {
				all := processes(8)
				l.ask(t, 400, time.Minute, all...)
				l.lose(true)
				l.ask(t, 400, 20*time.Second, all[:8-idle]...)
				l.lose(false)
				gentle(t, fmt.Sprintf("%v, %d of 8 idle", limit, idle), limit, perSecond(l.ask(t, 400, 10*time.Second, all...)))
			})
		}
	}
}

// TestReturnEndsForProcessesThatAskRarely: processes that come one after the other, each after a pause, follow
// those who saw an outage, of whom the last is back in the eighth second, and not one another, also when
// the clock of Redis steps back.
func TestReturnEndsForProcessesThatAskRarely(t *testing.T) {
	standing(t, 1, 8, limiter.GCRA(limiter.PerSecond(400), 40), near, func(t *testing.T, l *lines) {
		all := processes(8)
		l.ask(t, 400, 10*time.Second, all...)
		l.lose(true)
		l.ask(t, 400, 20*time.Second, all...)
		l.lose(false)
		l.ask(t, 400, 3*time.Second, all[:4]...)
		for second := range 60 {
			if second == 9 {
				l.srv.step(-time.Hour)
			}
			for range 10 {
				time.Sleep(100 * time.Millisecond)
				if res, err := l.limiters[second%8].Allow(t.Context(), "k"); err != nil || second >= 20 && res.Source == limiter.SourceLocal {
					t.Fatalf("%d s after the return: %v, %+v", second, err, res)
				}
			}
		}
	})
}

// TestFollowersLetNoReturnLast: processes that did not see an outage, and come one after the other, each for longer than
// until the next one, follow those who saw it for as long as these return, and are not followed themselves. The last that saw
// it is back after 5 s and a little more, and the others know of that for 6 s, which is the patience.
func TestFollowersLetNoReturnLast(t *testing.T) {
	const fleet, saw, every, busy = 16, 4, 3 * time.Second, 8 * time.Second
	for _, seed := range []uint64{0, 2, 4} {
		standing(t, seed, fleet, limiter.GCRA(limiter.PerSecond(400), 40), near, func(t *testing.T, l *lines) {
			all := processes(fleet)
			l.ask(t, 400, 10*time.Second, all...)
			l.lose(true)
			l.ask(t, 400, 20*time.Second, all[:saw]...)
			l.lose(false)
			began := time.Now()
			var wg sync.WaitGroup
			for i := range fleet {
				wg.Go(func() {
					busy := busy
					if i >= saw {
						time.Sleep(time.Duration(i-saw)*every + time.Duration(i)*time.Millisecond)
					} else {
						busy *= 2
					}
					for end := time.Now().Add(busy); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
						res, err := l.limiters[i].Allow(t.Context(), "k")
						if err != nil || res.Source == limiter.SourceLocal && time.Since(began) > 12*time.Second {
							t.Errorf("seed %d: process %d, %v after the return: %v, %+v", seed, i, time.Since(began), err, res)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// TestNewProcessesReturnWithTheOthers: so do those that start when Redis is back.
func TestNewProcessesReturnWithTheOthers(t *testing.T) {
	long(t)
	for _, limit := range []limiter.Limit{limiter.GCRA(limiter.PerSecond(400), 40), limiter.FixedWindow(limiter.PerSecond(400))} {
		starting(t, 1, func(t *testing.T, l *lines, start func(int, int, limiter.Limit, ...limiter.Option) *limiter.Limiter) {
			for i := range 4 {
				l.limiters = append(l.limiters, start(i, 0, limit))
			}
			l.ask(t, 400, time.Minute, processes(4)...)
			l.lose(true)
			l.ask(t, 400, 20*time.Second, processes(4)...)
			l.lose(false)
			for i := 4; i < 6; i++ {
				l.limiters = append(l.limiters, start(i, 0, limit))
			}
			gentle(t, fmt.Sprintf("%v, 2 join 4", limit), limit, perSecond(l.ask(t, 400, 10*time.Second, processes(6)...)))
			for i, lim := range l.limiters {
				if n := lim.Health().Processes; n != 6 {
					t.Errorf("process %d counts %d", i, n)
				}
			}
		})
	}
}

// TestLimitersReturnEachForItself: another limiter of each process, with the same prefix, that asks for nothing
// in the outage or asks all the time does not make the first one return before the others are back.
func TestLimitersReturnEachForItself(t *testing.T) {
	long(t)
	for _, asks := range []bool{false, true} {
		starting(t, 1, func(t *testing.T, l *lines, start func(int, int, limiter.Limit, ...limiter.Option) *limiter.Limiter) {
			var others []*limiter.Limiter
			for i := range 4 {
				l.limiters = append(l.limiters, start(i, 0, limiter.GCRA(limiter.PerSecond(400), 40)))
				others = append(others, start(i, 0, limiter.FixedWindow(limiter.PerHour(1_000_000))))
			}
			run := func(d time.Duration, beside bool) []int {
				ctx, cancel := context.WithTimeout(t.Context(), d)
				defer cancel()
				var wg sync.WaitGroup
				for _, o := range others {
					wg.Go(func() {
						for beside && ctx.Err() == nil {
							_, _ = o.Allow(t.Context(), "page")
							time.Sleep(50 * time.Millisecond)
						}
					})
				}
				got := perSecond(l.ask(t, 400, d, processes(4)...))
				wg.Wait()
				return got
			}
			run(time.Minute, true)
			l.lose(true)
			run(20*time.Second, asks)
			l.lose(false)
			if got := run(10*time.Second, true); slices.Max(got) > 420 || slices.Min(got) < 360 {
				t.Errorf("the other limiter asks in the outage: %v: %v of 400", asks, got)
			}
		})
	}
}

// TestReturnAfterTheClockSteppedBack: heartbeats of before the outage, later than now by Redis' clock, are
// not those of processes that are back.
func TestReturnAfterTheClockSteppedBack(t *testing.T) {
	long(t)
	for _, step := range []time.Duration{-3 * time.Second, -30 * time.Second, 90 * time.Second} {
		standing(t, 1, 4, limiter.GCRA(limiter.PerSecond(400), 40), near, func(t *testing.T, l *lines) {
			l.ask(t, 400, time.Minute, processes(4)...)
			l.lose(true)
			l.ask(t, 400, 20*time.Second, processes(4)...)
			l.srv.step(step)
			l.lose(false)
			if got := perSecond(l.ask(t, 400, 10*time.Second, processes(4)...)); slices.Max(got) > 420 || slices.Min(got) < 360 {
				t.Errorf("the clock steps by %v: %v of 400", step, got)
			}
		})
	}
}

// TestPeersThatSendNoHeartbeatDelayNobody: a function of WithPeerCount that says more than there are makes
// claims smaller, and the return after a hiccup no later.
func TestPeersThatSendNoHeartbeatDelayNobody(t *testing.T) {
	local := func(peers int) uint64 {
		var n uint64
		standing(t, 1, 4, limiter.GCRA(limiter.PerSecond(400), 40), near, func(t *testing.T, l *lines) {
			l.ask(t, 400, 30*time.Second, processes(4)...)
			l.lose(true)
			l.ask(t, 400, time.Second, processes(4)...)
			l.lose(false)
			before := l.limiters[0].Health().Decisions[limiter.SourceLocal]
			l.ask(t, 400, 10*time.Second, processes(4)...)
			n = l.limiters[0].Health().Decisions[limiter.SourceLocal] - before
		}, limiter.WithPeerCount(func(context.Context) (int, error) { return peers, nil }))
		return n
	}
	for _, peers := range []int{8, 40} {
		if n := local(peers); n > 3*200 { // a process asks 200 times a second
			t.Errorf("%d decisions were local where %d peers are counted", n, peers)
		}
	}
}

// TestProcessLeavesEachRedis: a process whose limiters have one prefix on two Redis servers leaves the list of each
// when its limiter there is closed, and not before the last one is.
func TestProcessLeavesEachRedis(t *testing.T) {
	starting(t, 2, func(t *testing.T, l *lines, start func(int, int, limiter.Limit, ...limiter.Option) *limiter.Limiter) {
		limit := limiter.GCRA(limiter.PerSecond(400), 40)
		all := []*limiter.Limiter{start(0, 0, limit), start(0, 0, limit), start(0, 1, limit)}
		for range 5 {
			for _, lim := range all {
				if _, err := lim.Allow(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
		}
		listed := func(srv int) bool {
			s := l.servers[srv]
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.get("holdfast:v1:peers") != nil
		}
		for i, want := range [][2]bool{{true, true}, {false, true}, {false, false}} {
			_ = all[i].Close()
			if got := [2]bool{listed(0), listed(1)}; got != want {
				t.Errorf("listed on each server after %d of 3 limiters were closed: %v", i+1, got)
			}
		}
	})
}
