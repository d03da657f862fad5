package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

// inRedis is what Redis keeps of the permits of a key.
func inRedis(r *sim.Redis, key string) map[string]int64 {
	return r.Members("holdfast:v1:permits:{" + key + "}")
}

// TestNothingIsKept: whatever callers of two processes do, in an outage too, no permit is granted twice while Redis answers,
// and when all is released nothing is left of it: in Redis, in the processes, and on the way.
func TestNothingIsKept(t *testing.T) {
	for seed := range uint64(12) {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			rng := rand.New(rand.NewPCG(seed, 1))
			keys := []string{"j", "k"}
			var all []*semaphore.Semaphore
			for _, name := range []string{"a", "b"} {
				all = append(all, process(t, r, name, 2, semaphore.WithCriticalHeadroom(0.2), limiter.WithBudget(200*time.Millisecond)))
				r.SetPath(name, func(p *sim.Path) { p.Delay, p.Jitter = time.Millisecond, 10*time.Millisecond })
			}
			var wg sync.WaitGroup
			for range 40 {
				s, key, late := all[rng.IntN(2)], keys[rng.IntN(2)], time.Duration(rng.IntN(60_000))*time.Microsecond
				ctx, leave := context.WithTimeout(t.Context(), time.Duration(rng.IntN(300_000))*time.Microsecond)
				if rng.IntN(2) == 0 {
					ctx, leave = context.WithCancel(t.Context())
				}
				if rng.IntN(3) == 0 {
					ctx = limiter.Critical(ctx)
				}
				ask := s.Acquire
				if rng.IntN(4) == 0 {
					ask = s.TryAcquire
				}
				wg.Go(func() {
					defer leave()
					p, err := ask(ctx, key)
					if err != nil {
						if !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("seed %d: %v", seed, err)
						}
						return
					}
					time.Sleep(late)
					if err := p.Release(); p.Allowed == errors.Is(err, semaphore.ErrNotAcquired) {
						t.Errorf("seed %d: %+v: %v", seed, p.Result, err)
					}
				})
				time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
				if seed%2 == 0 && rng.IntN(8) == 0 {
					r.SetPath("a", func(p *sim.Path) { p.RepliesLost = !p.RepliesLost })
				}
			}
			r.SetPath("a", func(p *sim.Path) { p.RepliesLost = false })
			wg.Wait()
			time.Sleep(30 * time.Second) // of what was lost, the time to live ends
			for _, key := range keys {
				if n := inFlight(t, all[0], key); n != 0 || len(inRedis(r, key)) != 0 {
					t.Errorf("seed %d: %d in flight; left are %v", seed, n, inRedis(r, key))
				}
			}
			for _, s := range all {
				if keys, permits := s.Kept(); keys+permits != 0 {
					t.Errorf("seed %d: %d keys and %d permits", seed, keys, permits)
				}
			}
			time.Sleep(time.Minute)
			before := r.Commands()
			time.Sleep(time.Hour)
			if n := r.Commands() - before; n != 0 {
				t.Errorf("seed %d: %d commands in an hour without callers", seed, n)
			}
		})
	}
}

// counts is a hook that counts commands.
type counts struct{ n atomic.Int64 }

func (c *counts) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counts) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// hooked is a semaphore of a process of its own, with a hook of its client.
func hooked(t *testing.T, r *sim.Redis, name string, n int, h redis.Hook, opts ...semaphore.Option) *semaphore.Semaphore {
	t.Helper()
	rdb := r.Client(name, redis.Options{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	rdb.AddHook(h)
	t.Cleanup(func() { _ = rdb.Close() })
	return newSemaphore(t, rdb, n, append([]semaphore.Option{limiter.WithProcess(name)}, opts...)...)
}

// TestPollsLessOftenTheMoreAreAhead: every 10 ms, 5 ms later for each caller that is ahead, at most every 200 ms; by the
// rank that has fewer ahead.
func TestPollsLessOftenTheMoreAreAhead(t *testing.T) {
	for _, c := range []struct {
		ahead int
		ranks int // of the callers of the process: with 2 there is a critical one
		every time.Duration
	}{{0, 1, 10 * time.Millisecond}, {0, 2, 10 * time.Millisecond}, {10, 1, 60 * time.Millisecond}, {10, 2, 10 * time.Millisecond}, {100, 1, 200 * time.Millisecond}} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			ctx, leave := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wait := func(s *semaphore.Semaphore, ctx context.Context) {
				wg.Go(func() { _, _ = s.Acquire(ctx, "k") })
				time.Sleep(50 * time.Millisecond)
			}
			other, polled := process(t, r, "a", 1), new(counts)
			held := acquire(t, other, "k")
			for range c.ahead {
				wait(other, ctx)
			}
			s := hooked(t, r, "b", 1, polled, limiter.WithShare(0.5))
			wait(s, ctx)
			if c.ranks == 2 {
				wait(s, limiter.Critical(ctx))
			}
			time.Sleep(time.Second)
			before := polled.n.Load()
			time.Sleep(100 * c.every)
			if got := float64(polled.n.Load()-before) / float64(c.ranks); got < 92 || got > 106 {
				t.Errorf("%d ahead, %d ranks: %v calls in the time of about 100", c.ahead, c.ranks, got)
			}
			leave()
			wg.Wait()
			must(t, held.Release())
		})
	}
}

// TestOwnReleaseIsKnownAtOnce: a caller that waits for a permit of its own process does not wait for the next poll.
func TestOwnReleaseIsKnownAtOnce(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		s := process(t, r, "a", 1)
		for range 20 {
			held := acquire(t, s, "k")
			got := make(chan *semaphore.Permit)
			go func() {
				p, err := s.Acquire(t.Context(), "k")
				if err != nil {
					t.Error(err)
				}
				got <- p
			}()
			time.Sleep(time.Second)
			began := time.Now()
			must(t, held.Release())
			p := <-got
			if d := time.Since(began); d > time.Millisecond {
				t.Errorf("after %v", d)
			}
			must(t, p.Release())
		}
	})
}

// TestFirstsStandInLineAtOnce: a caller before whom no other of its process waits has its place with its first call,
// a critical one also where others wait.
func TestFirstsStandInLineAtOnce(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		s := process(t, r, "a", 1)
		held := acquire(t, s, "k")
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer leave()
		places := func() (n int) {
			for name := range inRedis(r, "k") {
				if strings.HasPrefix(name, "q") {
					n++
				}
			}
			return n
		}
		for i, critical := range []bool{false, false, true, true} {
			of := ctx
			if critical {
				of = limiter.Critical(ctx)
			}
			before := places()
			wg.Go(func() { _, _ = s.Acquire(of, "k") })
			time.Sleep(2 * time.Millisecond)
			if places() == before && i%2 == 0 { // the others have it with the next poll
				t.Errorf("caller %d has no place", i)
			}
			time.Sleep(20 * time.Millisecond)
			if n := places(); n != i+1 {
				t.Errorf("%d places of %d", n, i+1)
			}
		}
		must(t, held.Release())
	})
}

// losing is a hook that loses one reply of a script.
type losing struct {
	counts
	now atomic.Bool
}

func (l *losing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if strings.HasPrefix(cmd.Name(), "eval") && l.now.Swap(false) {
			err = io.ErrUnexpectedEOF
			cmd.SetErr(err)
		}
		return err
	}
}

// TestLostGrantIsTakenBack: of callers who do not wait, what Redis granted in a reply that was lost is free again.
func TestLostGrantIsTakenBack(t *testing.T) {
	for _, policy := range []fallback.Policy{fallback.Local, fallback.Open, fallback.Closed} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			h := new(losing)
			opts := []semaphore.Option{limiter.WithFallback(policy)}
			if policy == fallback.Local {
				opts = append(opts, limiter.WithShare(0.25))
			}
			s, other := hooked(t, r, "a", 4, h, opts...), process(t, r, "b", 4)
			acquire(t, s, "k")      // all of its share
			time.Sleep(time.Second) // the heartbeat of the process is over
			h.now.Store(true)
			try := s.TryAcquire
			if policy == fallback.Open {
				try = s.Acquire // which need not wait
			}
			p, err := try(t.Context(), "k")
			if closed := policy == fallback.Closed; errors.Is(err, limiter.ErrUnavailable) != closed || p.Allowed != (policy == fallback.Open) || p.Source == limiter.SourceRedis {
				t.Errorf("%v: %+v, %v", policy, p, err)
			}
			time.Sleep(10 * time.Millisecond)
			if n := inFlight(t, other, "k"); n != 1 || h.now.Load() {
				t.Errorf("%v: %d in flight, of which one is known", policy, n)
			}
		})
	}
}

// TestLostGrantOfAnEndedWait: where the policy ends the wait of a caller whose permit was granted in a reply that was lost, the
// permit is free again.
func TestLostGrantOfAnEndedWait(t *testing.T) {
	for _, policy := range []fallback.Policy{fallback.Open, fallback.Closed} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			h := new(losing)
			s, other := hooked(t, r, "a", 1, h, limiter.WithFallback(policy)), process(t, r, "b", 1)
			held := acquire(t, other, "k")
			var got *semaphore.Permit
			var err error
			var wg sync.WaitGroup
			wg.Go(func() { got, err = s.Acquire(t.Context(), "k") })
			time.Sleep(1500 * time.Millisecond) // it has a place in the queue, and the heartbeat is over
			must(t, held.Release())
			h.now.Store(true)
			wg.Wait()
			if closed := policy == fallback.Closed; errors.Is(err, limiter.ErrUnavailable) != closed || !closed && (!got.Allowed || got.Source != limiter.SourceOpen) {
				t.Errorf("%v: %+v, %v", policy, got, err)
			}
			time.Sleep(100 * time.Millisecond)
			if n := inFlight(t, other, "k"); n != 0 || h.now.Load() {
				t.Errorf("%v: %d in flight, and none is known", policy, n)
			}
		})
	}
}

// TestLostGrantOfAWaiter: a caller that waits gets the permit that Redis granted in a reply that was lost, by asking again,
// whether it asked alone or was asked for with others.
func TestLostGrantOfAWaiter(t *testing.T) {
	for _, behind := range []bool{false, true} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			s, other := process(t, r, "a", 3), process(t, r, "b", 3)
			acquire(t, s, "k") // all of its share
			one, two := acquire(t, other, "k"), acquire(t, other, "k")
			got := make(chan *semaphore.Permit, 2)
			wait := func() {
				p, err := s.Acquire(t.Context(), "k")
				if err != nil {
					t.Error(err)
				}
				got <- p
			}
			go wait()
			time.Sleep(10 * time.Millisecond)
			if behind {
				go wait()
			}
			r.SetPath("a", func(p *sim.Path) { p.RepliesLost = true })
			must(t, one.Release())
			must(t, two.Release())
			time.Sleep(time.Second)
			r.SetPath("a", func(p *sim.Path) { p.RepliesLost = false })
			time.Sleep(3 * time.Second)
			want := 1
			if behind {
				want = 2
			}
			if n := inFlight(t, other, "k"); len(got) != want || n != 1+want {
				t.Errorf("%d of %d have a permit, %d are in flight", len(got), want, n)
			}
		})
	}
}

// TestLateFirstCallOfAWaiter: the first call of a caller arrives when its second one has granted it a permit, and gives it no
// place in the queue.
func TestLateFirstCallOfAWaiter(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		s, other := process(t, r, "a", 2), process(t, r, "b", 2)
		acquire(t, s, "k") // all of its share
		held := acquire(t, other, "k")
		r.SetPath("a", func(p *sim.Path) { p.Delay = 300 * time.Millisecond })
		time.AfterFunc(time.Millisecond, func() { r.SetPath("a", func(p *sim.Path) { p.Delay = 0 }) })
		time.AfterFunc(30*time.Millisecond, func() { _ = held.Release() })
		p, err := s.Acquire(t.Context(), "k")
		if err != nil || p.Source != limiter.SourceRedis {
			t.Fatalf("%+v, %v", p, err)
		}
		time.Sleep(time.Second)
		if n := len(inRedis(r, "k")); n != 2 {
			t.Errorf("%v", inRedis(r, "k"))
		}
		must(t, p.Release())
		acquire(t, other, "k")
		if n := len(inRedis(r, "k")); n != 2 {
			t.Errorf("%v", inRedis(r, "k"))
		}
	})
}

// before is a hook that calls a function before each script, with how many there were.
type before struct {
	counts
	script func(nr int64)
}

func (h *before) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			h.script(h.n.Add(1))
		}
		return next(ctx, cmd)
	}
}

// TestLateSecondCallOfAWaiter: the call that asks for a place in the queue arrives when a later one has granted the permit. The place
// that it gives ends with the permit, or others would wait behind a caller that does not.
func TestLateSecondCallOfAWaiter(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		late := func(d time.Duration) { r.SetPath("a", func(p *sim.Path) { p.Delay = d }) }
		h, slow := new(before), int64(math.MaxInt64)
		h.script = func(nr int64) {
			if nr == slow {
				late(300 * time.Millisecond)
				time.AfterFunc(time.Millisecond, func() { late(0) })
			}
		}
		s, other := hooked(t, r, "a", 2, h, limiter.WithShare(0.5)), process(t, r, "b", 2)
		acquire(t, s, "k") // all of its share
		held := acquire(t, other, "k")
		time.Sleep(time.Second) // the heartbeat of the process is over
		slow = h.n.Load() + 2
		time.AfterFunc(30*time.Millisecond, func() { _ = held.Release() })
		p, err := s.Acquire(t.Context(), "k")
		if err != nil || p.Source != limiter.SourceRedis {
			t.Fatalf("%+v, %v", p, err)
		}
		time.Sleep(time.Second)
		if n := len(inRedis(r, "k")); n != 4 {
			t.Fatalf("%v: not two permits and a place, so this test is about nothing", inRedis(r, "k"))
		}
		must(t, p.Release())
		if n := len(inRedis(r, "k")); n != 1 {
			t.Errorf("%v", inRedis(r, "k"))
		}
	})
}

// TestLostGrantOfTheLastPermit: a caller whom Redis has granted the last permit in a reply that was lost has that by its next call, not behind
// itself.
func TestLostGrantOfTheLastPermit(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		h := new(losing)
		s, other := hooked(t, r, "a", 2, h, limiter.WithShare(0.5)), process(t, r, "b", 2)
		acquire(t, s, "k") // all of its share
		time.Sleep(time.Second)
		h.now.Store(true)
		start := time.Now()
		if p, err := s.Acquire(t.Context(), "k"); err != nil || p.Source != limiter.SourceRedis || time.Since(start) > 5*time.Millisecond {
			t.Errorf("%+v, %v after %v", p, err, time.Since(start))
		}
		if n := inFlight(t, other, "k"); n != 2 {
			t.Errorf("%d in flight", n)
		}
	})
}

// TestWaitersOfABrokenKey: a key that holds something else is the error of all who wait.
func TestWaitersOfABrokenKey(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		s := process(t, r, "a", 1)
		held := acquire(t, s, "k")
		errs := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := s.Acquire(t.Context(), "k")
				errs <- err
			}()
			time.Sleep(100 * time.Millisecond)
		}
		r.Set(func(h *sim.Health) { h.Rejects = "WRONGTYPE Operation against a key holding the wrong kind of value" })
		time.Sleep(50 * time.Millisecond)
		if len(errs) != 3 {
			t.Errorf("%d of 3 have ended", len(errs))
		}
		for range len(errs) {
			if err := <-errs; !errors.Is(err, limiter.ErrState) {
				t.Error(err)
			}
		}
		r.Set(func(h *sim.Health) { h.Rejects = "" })
		must(t, held.Release())
	})
}

// TestCloseGivesAllPlacesUp: of several keys, of callers who wait, who have just left, and whose first call is on its way back.
func TestCloseGivesAllPlacesUp(t *testing.T) {
	for _, late := range []time.Duration{0, 50 * time.Millisecond} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			sent := new(counts)
			s, other := hooked(t, r, "a", 1, sent, limiter.WithShare(0.5), limiter.WithBudget(time.Second)), process(t, r, "b", 1)
			r.SetPath("a", func(p *sim.Path) { p.Delay = late })
			ctx, leave := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			keys := []string{"i", "j", "k", "l"}
			for i, key := range keys {
				acquire(t, other, key)
				wg.Go(func() {
					of := t.Context()
					if i%2 == 1 && late == 0 {
						of = ctx
					}
					if _, err := s.Acquire(of, key); err == nil {
						t.Error("a permit")
					}
				})
			}
			for _, key := range keys {
				for len(inRedis(r, key)) < 3 {
					time.Sleep(time.Millisecond)
				}
			}
			leave()
			must(t, s.Close())
			wg.Wait()
			time.Sleep(time.Second)
			for _, key := range keys {
				if left := inRedis(r, key); len(left) != 1 {
					t.Errorf("%s, a delay of %v: %v", key, late, left)
				}
			}
			before := sent.n.Load()
			if time.Sleep(time.Minute); sent.n.Load() != before {
				t.Errorf("%d commands after Close", sent.n.Load()-before)
			}
		})
	}
}

// TestWaitersUnderClosed: without Redis no caller waits for it.
func TestWaitersUnderClosed(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		s := hooked(t, r, "a", 1, new(counts), limiter.WithFallback(fallback.Closed))
		held := acquire(t, s, "k")
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := s.Acquire(t.Context(), "k")
				errs <- err
			}()
			time.Sleep(time.Second)
		}
		r.SetPath("a", func(p *sim.Path) { p.Refused = true })
		if time.Sleep(time.Second); len(errs) != 2 {
			t.Errorf("%d of 2 have ended", len(errs))
		}
		for range len(errs) {
			if err := <-errs; !errors.Is(err, limiter.ErrUnavailable) {
				t.Error(err)
			}
		}
		must(t, held.Release())
	})
}

// TestProcessesAreCounted: those whose semaphores are used share the permits in an outage.
func TestProcessesAreCounted(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		for i, name := range []string{"a", "b"} {
			s := hooked(t, r, name, 4, new(counts))
			must(t, acquire(t, s, "k").Release())
			time.Sleep(time.Second)
			if h := s.Health(); h.Processes != i+1 {
				t.Errorf("%d processes, want %d", h.Processes, i+1)
			}
		}
	})
}

// TestPatience: a process that stands still keeps its places for two seconds.
func TestPatience(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		gone, s := process(t, r, "a", 1), process(t, r, "b", 1)
		held := acquire(t, s, "k")
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = gone.Acquire(ctx, "k") })
		time.Sleep(time.Second)
		r.SetPath("a", func(p *sim.Path) { p.Lost, p.Gone = true, true })
		began := time.Now()
		must(t, held.Release())
		p, err := s.Acquire(t.Context(), "k")
		if d := time.Since(began); err != nil || p.Source != limiter.SourceRedis || d < 1900*time.Millisecond || d > 2100*time.Millisecond {
			t.Errorf("%+v, %v, after %v", p, err, d)
		}
		leave()
		wg.Wait()
	})
}

// TestHeadroomOfOne: where a key has one permit, none can be kept for critical callers.
func TestHeadroomOfOne(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		s := process(t, r, "a", 10, semaphore.WithCriticalHeadroom(0.5), semaphore.WithPermitsFor(func(context.Context, string) int { return 1 }))
		for _, key := range []string{"redis", "local"} {
			p := acquire(t, s, key)
			if deny(t, s, key); fmt.Sprint(p.Source) != key {
				t.Errorf("%s: %+v", key, p.Result)
			}
			r.SetPath("a", func(p *sim.Path) { p.Refused = true })
		}
	})
}

// TestShortestRetryAfter: a denial never says less than a millisecond.
func TestShortestRetryAfter(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		s := process(t, r, "a", 1, semaphore.WithTTL(time.Second))
		acquire(t, s, "k")
		r.SetPath("a", func(p *sim.Path) { p.Lost, p.Gone = true, true }) // no heartbeat any more
		other, least := process(t, r, "b", 1, semaphore.WithTTL(time.Second)), time.Second
		for range 20_000 {
			p, err := other.TryAcquire(t.Context(), "k")
			must(t, err)
			if p.Allowed {
				break
			}
			least = min(least, p.RetryAfter)
			time.Sleep(50 * time.Microsecond)
		}
		if least != time.Millisecond {
			t.Error(least)
		}
	})
}
