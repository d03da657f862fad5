package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

// process is a semaphore of a process of its own.
func process(t *testing.T, r *sim.Redis, name string, n int, opts ...semaphore.Option) *semaphore.Semaphore {
	t.Helper()
	rdb := r.Client(name, redis.Options{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return newSemaphore(t, rdb, n, append([]semaphore.Option{limiter.WithProcess(name), limiter.WithShare(0.5)}, opts...)...)
}

func deny(t *testing.T, c *semaphore.Semaphore, key string) *semaphore.Permit {
	t.Helper()
	p, err := c.TryAcquire(t.Context(), key)
	must(t, err)
	if p.Allowed {
		t.Fatalf("a permit: %+v", p.Result)
	}
	return p
}

// isLost reports whether a permit is known to be lost.
func isLost(p *semaphore.Permit) bool {
	select {
	case <-p.Lost():
		return true
	default:
		return false
	}
}

// TestDenialSaysWhenOneEnds: within a second, or when the next permit ends, if that is sooner.
func TestDenialSaysWhenOneEnds(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		c := process(t, r, "a", 1, semaphore.WithTTL(2*time.Second))
		acquire(t, c, "k")
		if p := deny(t, c, "k"); p.RetryAfter != time.Second || p.Source != limiter.SourceRedis {
			t.Errorf("%+v", p.Result)
		}
		r.SetPath("a", func(p *sim.Path) { p.Lost = true }) // no heartbeat any more
		time.Sleep(1500 * time.Millisecond)
		other := process(t, r, "b", 1, semaphore.WithTTL(2*time.Second))
		if p := deny(t, other, "k"); p.RetryAfter <= 400*time.Millisecond || p.RetryAfter > 500*time.Millisecond {
			t.Errorf("%+v", p.Result)
		}
		time.Sleep(510 * time.Millisecond)
		acquire(t, other, "k")
	})
}

// TestPermitsEndWithTheirProcess: after their time to live, by default 15 s, and not before; those of a process
// that lives stay, with three heartbeats in that time as long as permits are held, and none after.
func TestPermitsEndWithTheirProcess(t *testing.T) {
	for _, ttl := range []time.Duration{0, 3 * time.Second} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			var opts []semaphore.Option
			if ttl > 0 {
				opts = append(opts, semaphore.WithTTL(ttl))
			}
			life := ttl
			if ttl == 0 {
				life = 15 * time.Second
			}
			dies, lives := process(t, r, "dies", 2, opts...), process(t, r, "lives", 2, opts...)
			lost, kept := acquire(t, dies, "k"), acquire(t, lives, "k")
			r.SetPath("dies", func(p *sim.Path) { p.Lost = true })
			time.Sleep(life - 10*time.Millisecond)
			deny(t, lives, "k")
			time.Sleep(20 * time.Millisecond)
			acquire(t, lives, "k")
			before := r.Commands()
			time.Sleep(10 * life)
			if n := r.Commands() - before; n < 28 || n > 32 {
				t.Errorf("%d heartbeats in ten times the time to live", n)
			}
			if n := inFlight(t, lives, "k"); n != 2 || isLost(kept) || isLost(lost) {
				t.Errorf("%d in flight; lost %v and %v", n, isLost(kept), isLost(lost))
			}
			r.SetPath("dies", func(p *sim.Path) { p.Lost = false })
			time.Sleep(2 * life)
			if !isLost(lost) || isLost(kept) {
				t.Errorf("whose process was cut off: %v, whose was not: %v", isLost(lost), isLost(kept))
			}
		})
	}
}

// TestNoHeartbeatWithoutPermits: it ends when the last one is released, and begins again with the next.
func TestNoHeartbeatWithoutPermits(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		c := process(t, r, "a", 2)
		for range 2 {
			a, b := acquire(t, c, "k"), acquire(t, c, "j")
			before := r.Commands()
			must(t, a.Release())
			time.Sleep(time.Minute)
			if n := r.Commands() - before; n < 13 || n > 14 { // the release, one in five seconds, and a connection
				t.Errorf("%d commands while one is held", n)
			}
			must(t, b.Release())
			time.Sleep(20 * time.Second)
			before = r.Commands()
			time.Sleep(time.Hour)
			if n := r.Commands() - before; n != 0 {
				t.Errorf("%d commands while none is held", n)
			}
		}
	})
}

// TestAcquireInTurn: each gets a permit when one is released, in the order in which they came, critical
// ones first, whatever process they are of; and within 200 ms.
func TestAcquireInTurn(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		a, b := process(t, r, "a", 1), process(t, r, "b", 1)
		held := acquire(t, a, "k")
		var mu sync.Mutex
		var order []string
		var came []time.Time
		var wg sync.WaitGroup
		for i := range 12 {
			of, name, ctx := a, "a", t.Context()
			if i%2 == 1 {
				of, name = b, "b"
			}
			if i >= 8 {
				ctx, name = limiter.Critical(ctx), "critical "+name
			}
			wg.Go(func() {
				p, err := of.Acquire(ctx, "k")
				if err != nil || !p.Allowed || p.Remaining != 0 || p.Source != limiter.SourceRedis {
					t.Errorf("%+v, %v", p, err)
					return
				}
				mu.Lock()
				order, came = append(order, fmt.Sprint(name, i)), append(came, time.Now())
				mu.Unlock()
				time.Sleep(time.Second)
				must(t, p.Release())
			})
			time.Sleep(300 * time.Millisecond)
		}
		mu.Lock()
		if len(order) != 0 {
			t.Errorf("%v before one was released", order)
		}
		mu.Unlock()
		if deny(t, a, "k"); inFlight(t, b, "k") != 1 {
			t.Error("those who wait are in flight")
		}
		must(t, held.Release())
		began := time.Now()
		wg.Wait()
		want := []string{"critical a8", "critical b9", "critical a10", "critical b11", "a0", "b1", "a2", "b3", "a4", "b5", "a6", "b7"}
		if !slices.Equal(order, want) {
			t.Errorf("%v, want %v", order, want)
		}
		for i, at := range came {
			if late := at.Sub(began) - time.Duration(i)*time.Second; late < 0 || late > time.Duration(i+1)*210*time.Millisecond {
				t.Errorf("the permit %d was there %v after the release", i, late)
			}
		}
	})
}

// TestWhoLeavesTheQueueIsGone: its place is free at once, whether it leaves by itself, or its process closes.
func TestWhoLeavesTheQueueIsGone(t *testing.T) {
	for _, closes := range []bool{false, true} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			a, b := process(t, r, "a", 1), process(t, r, "b", 1)
			held := acquire(t, b, "k")
			ctx, leave := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					_, err := a.Acquire(ctx, "k")
					if !closes && !errors.Is(err, context.Canceled) || closes && !errors.Is(err, limiter.ErrClosed) {
						t.Error(err)
					}
				})
				time.Sleep(time.Second)
			}
			const key = "holdfast:v1:permits:{k}"
			if n := len(r.Members(key)); n != 7 { // a permit, and two for each place
				t.Errorf("%d members: %v", n, r.Members(key))
			}
			defer leave()
			if closes {
				must(t, a.Close())
			} else {
				leave()
			}
			wg.Wait()
			time.Sleep(20 * time.Millisecond)
			if n := len(r.Members(key)); n != 1 {
				t.Errorf("left are %v", r.Members(key))
			}
			must(t, held.Release())
			acquire(t, b, "k")
		})
	}
}

// TestPermitsOfEachPolicy: by the policy. What a process grants in an outage counts in Redis
// from its next heartbeat.
func TestPermitsOfEachPolicy(t *testing.T) {
	for policy, c := range map[fallback.Policy]struct {
		granted int // of ten who ask
		source  limiter.Source
		err     error
	}{
		fallback.Local:  {4, limiter.SourceLocal, nil},
		fallback.Open:   {10, limiter.SourceOpen, nil},
		fallback.Closed: {0, limiter.SourceClosed, limiter.ErrUnavailable},
	} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			opts := []semaphore.Option{limiter.WithFallback(policy)}
			if policy == fallback.Local {
				opts = append(opts, limiter.WithShare(0.5))
			}
			rdb := r.Client("a", redis.Options{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
			defer rdb.Close()
			s := newSemaphore(t, rdb, 8, opts...)
			defer s.Close()
			r.SetPath("a", func(p *sim.Path) { p.Refused = true })
			granted := 0
			var last *semaphore.Permit
			for range 10 {
				p, err := s.TryAcquire(t.Context(), "k")
				if !errors.Is(err, c.err) || p.Source != c.source {
					t.Errorf("%v: %+v, %v", policy, p, err)
				}
				if p.Allowed {
					granted++
					last = p
				} else if p.RetryAfter != time.Second {
					t.Errorf("%v: again after %v", policy, p.RetryAfter)
				}
			}
			if granted != c.granted {
				t.Errorf("%v: %d granted", policy, granted)
			}
			n, err := s.InFlight(t.Context(), "k")
			if local := policy == fallback.Local; !errors.Is(err, limiter.ErrUnavailable) || local && n != 4 || !local && n != 0 {
				t.Errorf("%v: %d in flight, %v", policy, n, err)
			}
			r.SetPath("a", func(p *sim.Path) { p.Refused = false })
			time.Sleep(30 * time.Second)
			if policy == fallback.Local {
				if n := inFlight(t, s, "k"); n != 4 || isLost(last) {
					t.Errorf("%d in flight after the outage; lost %v", n, isLost(last))
				}
				r.Lose("permits")
				time.Sleep(30 * time.Second)
				if n := inFlight(t, s, "k"); n != 4 || !isLost(last) {
					t.Errorf("%d in flight when Redis has lost them; lost %v", n, isLost(last))
				}
			}
			if last != nil {
				must(t, last.Release())
				if err := last.Release(); policy == fallback.Local && !errors.Is(err, semaphore.ErrReleased) {
					t.Error(err)
				}
			}
		})
	}
}

// TestHeadroomOfPermits: calls that are not critical leave the part of those that are, rounded up, also of what a
// process has alone.
func TestHeadroomOfPermits(t *testing.T) {
	for _, c := range []struct {
		n          int
		headroom   float64
		plain, all int
		alone      [2]int // by a share of a half
	}{
		{10, 0.3, 7, 10, [2]int{3, 5}},
		{10, 0.25, 7, 10, [2]int{3, 5}},
		{3, 0.5, 1, 3, [2]int{1, 1}},
		{7, 1.0 / 7, 6, 7, [2]int{2, 3}},
		{20, 0.1, 18, 20, [2]int{9, 10}},
	} {
		for _, down := range []bool{false, true} {
			sim.Test(t, func(t *testing.T, r *sim.Redis) {
				s := process(t, r, "a", c.n, semaphore.WithCriticalHeadroom(c.headroom))
				want := [2]int{c.plain, c.all}
				if down {
					r.SetPath("a", func(p *sim.Path) { p.Refused = true })
					want = c.alone
				}
				got := [2]int{}
				for i, ctx := range []context.Context{t.Context(), limiter.Critical(t.Context())} {
					for range 50 {
						p, err := s.TryAcquire(ctx, "k")
						must(t, err)
						if p.Allowed {
							got[i]++
						}
					}
				}
				if got[1] += got[0]; got != want {
					t.Errorf("%d, headroom %v, down %v: %v, want %v", c.n, c.headroom, down, got, want)
				}
			})
		}
	}
}

// TestManyPermits: heartbeats extend all of them, however many, in a few commands.
func TestManyPermits(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		s := process(t, r, "a", 3000, limiter.WithBudget(time.Second))
		var all []*semaphore.Permit
		for i := range 2500 {
			all = append(all, acquire(t, s, "k"))
			if i%10 == 0 {
				all = append(all, acquire(t, s, fmt.Sprint("k", i)))
			}
		}
		for range 20 {
			before := r.Commands()
			time.Sleep(10 * time.Second)
			if n := r.Commands() - before; n > 40 {
				t.Errorf("%d commands in an interval", n)
			}
		}
		if n := inFlight(t, s, "k"); n != 2500 {
			t.Errorf("%d in flight", n)
		}
		for _, p := range all {
			if isLost(p) {
				t.Fatal("lost")
			}
		}
	})
}

// TestHealthOfASemaphore: what was decided, and by whom.
func TestHealthOfASemaphore(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		s := process(t, r, "a", 2)
		for range 2 {
			acquire(t, s, "k")
		}
		deny(t, s, "k")
		r.SetPath("a", func(p *sim.Path) { p.Refused = true })
		deny(t, s, "k")
		acquire(t, s, "other")
		h := s.Health()
		if h.Share != 0.5 || h.ShareOrigin != "fixed" || h.Processes != 2 || len(h.Servers) != 1 || h.FunctionsError != nil || h.PeerCountError != nil {
			t.Errorf("%+v", h)
		}
		if h.Decisions[limiter.SourceRedis] != 3 || h.Decisions[limiter.SourceLocal] != 2 || h.Servers[0].Decisions[limiter.SourceRedis] != 3 || !strings.HasPrefix(h.Servers[0].Name, "holdfast") {
			t.Errorf("%+v", h)
		}
		if s.Permits() != 2 {
			t.Error(s.Permits())
		}
	})
}

// TestSemaphoreBounds: the least and the most that is taken, and the next.
func TestSemaphoreBounds(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2})
	defer rdb.Close()
	above := math.MaxInt32
	above++ // where an int has 32 bits, this is below 0
	for i, c := range []struct {
		n   int
		ttl time.Duration
		ok  bool
	}{
		{0, time.Second, false}, {above, time.Second, false},
		{1, 100 * time.Millisecond, true}, {1, 100*time.Millisecond - 1, false}, {1, time.Hour, true}, {1, time.Hour + 1, false},
		{math.MaxInt32, time.Second, true},
	} {
		s, err := semaphore.New(rdb, c.n, semaphore.WithTTL(c.ttl))
		if (err == nil) != c.ok {
			t.Errorf("%d: %v", i, err)
		}
		if err == nil {
			must(t, s.Close())
		}
	}
	if _, err := semaphore.New(rdb, 1, semaphore.WithPermitsFor(nil)); !errors.Is(err, limiter.ErrInvalidConfig) {
		t.Error(err)
	}
}

// TestPermitsOfAKey: some keys have numbers of their own, and what is not a number of permits is an error; the hook is told
// of each caller.
func TestPermitsOfAKey(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		var told []limiter.DecisionInfo
		hook := limiter.WithHooks(limiter.Hooks{Decision: func(_ context.Context, d limiter.DecisionInfo) { told = append(told, d) }})
		of := map[string]int{"gold": 5, "bad": -1, "one": 1}
		s := process(t, r, "a", 2, hook, semaphore.WithPermitsFor(func(_ context.Context, key string) int { return of[key] }))
		for key, want := range map[string]int{"gold": 5, "one": 1, "other": 2} {
			told = nil
			for i := range want {
				if p := acquire(t, s, key); p.Remaining != want-1-i {
					t.Errorf("%s, %d: %+v", key, i, p.Result)
				}
			}
			deny(t, s, key)
			if n := inFlight(t, s, key); n != want {
				t.Errorf("%s: %d in flight", key, n)
			}
			last := told[len(told)-1]
			if len(told) != want+1 || last.Key != key || last.Cost != 1 || last.Result.Allowed || last.Err != nil || !told[0].Result.Allowed {
				t.Errorf("%s: %+v", key, told)
			}
		}
		told = nil
		if p, err := s.TryAcquire(t.Context(), "bad"); p != nil || !errors.Is(err, limiter.ErrInvalidConfig) || len(told) != 1 || told[0].Err == nil {
			t.Errorf("%+v, %v, %d told", p, err, len(told))
		}
	})
}

// TestHookThatPanicsHoldsNoPermit: a caller that gets no permit because a hook panics does not hold one.
func TestHookThatPanicsHoldsNoPermit(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		s := process(t, r, "a", 1, limiter.WithHooks(limiter.Hooks{Decision: func(context.Context, limiter.DecisionInfo) { panic("a hook") }}))
		for name, ask := range map[string]func(context.Context, string) (*semaphore.Permit, error){"Acquire": s.Acquire, "TryAcquire": s.TryAcquire} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: no panic", name)
					}
				}()
				_, _ = ask(t.Context(), "k")
			}()
			if n, err := s.InFlight(t.Context(), "k"); n != 0 || err != nil {
				t.Errorf("%s: %d permits are held, %v", name, n, err)
			}
		}
	})
}

// TestInFlightSetsNoNumber: who counts the permits of a key does not change how many those who wait for one may have, neither to
// more nor to less.
func TestInFlightSetsNoNumber(t *testing.T) {
	for permits := 1; permits <= 2; permits++ {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			type plan struct{}
			s := process(t, r, "a", 5, semaphore.WithPermitsFor(func(ctx context.Context, _ string) int {
				n, _ := ctx.Value(plan{}).(int)
				return n
			}))
			ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), plan{}, permits), time.Second)
			defer cancel()
			var held []*semaphore.Permit
			for range permits {
				p, err := s.Acquire(ctx, "k")
				must(t, err)
				held = append(held, p)
			}
			go func() {
				time.Sleep(100 * time.Millisecond)
				if n, err := s.InFlight(context.Background(), "k"); n != permits || err != nil {
					t.Errorf("%d permits are held, %v", n, err)
				}
				time.Sleep(100 * time.Millisecond)
				if permits > 1 {
					must(t, held[0].Release())
				}
			}()
			p, err := s.Acquire(ctx, "k")
			if permits > 1 {
				must(t, err)
				held[0] = p
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a second permit of one: %+v, %v", p, err)
			}
			for _, p := range held {
				must(t, p.Release())
			}
		})
	}
}
