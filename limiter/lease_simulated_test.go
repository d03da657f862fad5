package limiter_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// asks is a decision on n units, and what is to come of it. Where fewer is set, fewer than n will do.
type asks struct {
	n         int
	fewer     bool
	admitted  int
	source    limiter.Source
	remaining int
}

// decide makes decisions, one after the other, each of which is counted once, by its source.
func decide(t *testing.T, lim *limiter.Limiter, when string, all ...asks) {
	t.Helper()
	for i, a := range all {
		before := lim.Health().Decisions
		opt := limiter.CallOption(limiter.Cost(a.n))
		if a.fewer {
			opt = limiter.AtMost(a.n)
		}
		began := time.Now()
		res, err := lim.Allow(t.Context(), "k", opt)
		if err != nil || res.Admitted != a.admitted || res.Allowed != (a.admitted > 0 || a.n == 0) || res.Source != a.source || res.Remaining != a.remaining {
			t.Errorf("%s, step %d, %+v: %+v, %v", when, i, a, res, err)
		}
		if a.n > 0 && (res.Allowed == (res.RetryAfter > 0) || res.ResetAfter <= 0 || res.Limit != lim.Limit()) || time.Since(began) > 50*time.Millisecond {
			t.Errorf("%s, step %d: %+v after %v", when, i, res, time.Since(began))
		}
		synctest.Wait()
		after, counted := lim.Health().Decisions, uint64(0)
		for source, n := range after {
			if counted += n - before[source]; n != before[source] && source != a.source {
				t.Errorf("%s, step %d: counted as %v", when, i, source)
			}
		}
		if counted != 1 {
			t.Errorf("%s, step %d: counted %d times", when, i, counted)
		}
		time.Sleep(10 * time.Millisecond) // what is under way arrives
	}
}

func repeat(n int, a asks) (all []asks) {
	for range n {
		all = append(all, a)
		a.remaining--
	}
	return all
}

// TestLeaseStepByStep: what is held is spent here, more is fetched when half of it is gone, what is too much for it goes to
// Redis with what is held, and what is left goes back.
func TestLeaseStepByStep(t *testing.T) {
	lease, redis, cache := limiter.SourceLease, limiter.SourceRedis, limiter.SourceCache
	for _, limit := range leasable(100, 300*time.Hour) {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			opts := []limiter.Option{limiter.WithShare(1), limiter.WithLease(40, 10*time.Second)}
			lim, told := simulatedLimiter(t, r, "a", limit, opts...)
			other, _ := simulatedLimiter(t, r, "b", limit, limiter.WithShare(1), limiter.WithLease(40, 10*time.Second))
			left := func(when string, want int) {
				t.Helper()
				if res, err := other.Peek(t.Context(), "k"); err != nil || res.Remaining != want {
					t.Errorf("%s, %s: %+v, %v; want %d left for others", limit, when, res, err, want)
				}
			}
			when := limit.Algorithm()
			decide(t, lim, when, asks{1, false, 1, redis, 99})
			before := r.Commands()
			decide(t, lim, when, repeat(18, asks{1, false, 1, lease, 98})...)
			if n := r.Commands() - before; n != 0 {
				t.Errorf("%s: %d commands", when, n)
			}
			left("a full lease", 60)
			decide(t, lim, when, asks{0, false, 0, redis, 81}, asks{1, false, 1, lease, 80}) // half of it is gone
			left("more was fetched", 40)
			decide(t, lim, when, asks{70, false, 70, redis, 10}, asks{12, false, 0, redis, 10}, asks{12, false, 0, cache, 10})
			left("more than was held", 10)
			decide(t, lim, when, asks{3, false, 3, redis, 7}, asks{3, false, 3, lease, 4}, asks{30, true, 4, redis, 0})
			left("all of it", 0)
			must(t, lim.Close())
			left("after the end", 0)
			if res, err := lim.Allow(t.Context(), "k"); !errors.Is(err, limiter.ErrClosed) {
				t.Errorf("%+v, %v", res, err)
			}
			if n := len(*told); n != 27 {
				t.Errorf("%s: %d decisions are told", when, n)
			}
			decide(t, other, when, asks{1, false, 0, redis, 0})
		})
	}
}

// TestLeaseEndsInVirtualTime: what is not spent in its age goes back then, or with Close, once.
func TestLeaseEndsInVirtualTime(t *testing.T) {
	for _, limit := range leasable(100, 300*time.Hour) {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			lim, _ := simulatedLimiter(t, r, "a", limit, limiter.WithShare(1), limiter.WithLease(40, 4*time.Second))
			other, _ := simulatedLimiter(t, r, "b", limit, limiter.WithShare(1), limiter.WithLease(40, 4*time.Second))
			left := func(when string, want int) {
				t.Helper()
				if res, err := other.Peek(t.Context(), "k"); err != nil || res.Remaining != want {
					t.Errorf("%s, %s: %+v, %v; want %d left for others", limit, when, res, err, want)
				}
			}
			decide(t, lim, limit.Algorithm(), asks{1, false, 1, limiter.SourceRedis, 99}, asks{1, false, 1, limiter.SourceLease, 98})
			time.Sleep(3900 * time.Millisecond)
			left("before its age", 60)
			time.Sleep(5 * time.Second)
			left("after its age", 98)
			decide(t, lim, limit.Algorithm(), asks{1, false, 1, limiter.SourceRedis, 97})
			// Slow use asks for more before the age is over.
			for i := range 30 {
				time.Sleep(300 * time.Millisecond)
				if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceLease {
					t.Fatalf("%s, decision %d: %+v, %v", limit, i, res, err)
				}
			}
			must(t, lim.Close())
			left("after Close", 67)
		})
	}
}

// TestLeaseThatEndsInAnOutage: what is left of it goes back when Redis is there again.
func TestLeaseThatEndsInAnOutage(t *testing.T) {
	for _, limit := range leasable(100, 300*time.Hour) {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			lim, _ := simulatedLimiter(t, r, "a", limit, limiter.WithShare(1), hasty(3*time.Second), limiter.WithLease(50, 4*time.Second))
			other, _ := simulatedLimiter(t, r, "b", limit, limiter.WithShare(1), limiter.WithLease(50, 4*time.Second))
			decide(t, lim, limit.Algorithm(), asks{1, false, 1, limiter.SourceRedis, 99})
			spend := func(seconds int) {
				for range 10 * seconds {
					if _, err := lim.Allow(t.Context(), "other"); err != nil {
						t.Error(err)
					}
					time.Sleep(100 * time.Millisecond)
				}
			}
			r.Set(func(h *sim.Health) { h.Frozen = true })
			spend(12)
			if h := lim.Health(); h.Servers[0].State == breaker.Closed {
				t.Errorf("%s: what was to be given back may have been sent: %+v", limit, h)
			}
			r.Set(func(h *sim.Health) { h.Frozen = false })
			spend(10)
			if res, err := other.Peek(t.Context(), "k"); err != nil || res.Remaining != 99 {
				t.Errorf("%s: %+v, %v", limit, res, err)
			}
		})
	}
}

// TestLeaseAsksAheadInTime: with a Redis that is far, only the first decision waits for it.
func TestLeaseAsksAheadInTime(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim, _ := simulatedLimiter(t, r, "a", limiter.GCRA(limiter.PerHour(10_000), 10_000), limiter.WithShare(1), limiter.WithLease(200, 10*time.Second))
		if _, err := lim.Peek(t.Context(), "k"); err != nil { // which dials
			t.Fatal(err)
		}
		r.SetPath("a", func(p *sim.Path) { p.Delay = 10 * time.Millisecond })
		for i := range 1000 {
			began := time.Now()
			if res, err := lim.Allow(t.Context(), "k"); err != nil || !res.Allowed || i > 0 && (res.Source != limiter.SourceLease || time.Since(began) != 0) {
				t.Fatalf("decision %d: %+v, %v", i, res, err)
			}
			time.Sleep(time.Millisecond)
		}
		if n := r.Commands(); n > 40 {
			t.Errorf("%d commands for 1000 decisions", n)
		}
	})
}

// TestLeaseOfACallerThatLeft: a caller that leaves does not take along what its call brings, and one that comes meanwhile
// waits for that.
func TestLeaseOfACallerThatLeft(t *testing.T) {
	for _, second := range []bool{false, true} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			lim, _ := simulatedLimiter(t, r, "a", limiter.GCRA(limiter.PerHour(100), 101), limiter.WithShare(1), limiter.WithLease(40, 10*time.Second), limiter.WithBudget(time.Second))
			var wg sync.WaitGroup
			for range 3 { // connections
				wg.Go(func() { _, _ = lim.Peek(t.Context(), "other") })
			}
			wg.Wait()
			r.SetPath("a", func(p *sim.Path) { p.Delay = 100 * time.Millisecond })
			go func() { _, _ = lim.Peek(t.Context(), "other") }() // or the next call would be its caller's own
			time.Sleep(time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			time.AfterFunc(20*time.Millisecond, cancel)
			done := make(chan struct{})
			if second {
				go func() {
					defer close(done)
					time.Sleep(10 * time.Millisecond)
					if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceLease || res.Remaining != 99 {
						t.Errorf("one that came meanwhile: %+v, %v", res, err)
					}
				}()
			}
			if res, err := lim.Allow(ctx, "k"); err != context.Canceled {
				t.Fatalf("%+v, %v", res, err)
			}
			want := 99
			if second {
				<-done
				want = 98
			}
			time.Sleep(time.Second)
			if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceLease || res.Remaining != want {
				t.Errorf("%+v, %v; want %d", res, err, want)
			}
		})
	}
}

// TestLeaseInAnOutage: what is held was charged, and is spent while Redis is away, then this process decides by its
// share; fewer units than are asked for may be all that is held. What is left goes back when Redis is there again.
func TestLeaseInAnOutage(t *testing.T) {
	for _, spend := range []bool{true, false} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			limit := limiter.FixedWindow(limiter.Per(100, 300*time.Hour))
			lim, _ := simulatedLimiter(t, r, "a", limit, limiter.WithShare(0.1), limiter.WithLease(40, time.Minute))
			other, _ := simulatedLimiter(t, r, "b", limit, limiter.WithShare(1), limiter.WithLease(40, time.Minute))
			decide(t, lim, "before", asks{1, false, 1, limiter.SourceRedis, 99})
			r.SetPath("a", func(p *sim.Path) { p.Refused = true })
			for range 20 {
				_, _ = lim.Allow(t.Context(), "other")
				time.Sleep(10 * time.Millisecond)
			}
			if h := lim.Health(); h.Servers[0].State.String() != "open" {
				t.Fatalf("%+v", h)
			}
			left := 99 // with what is not spent
			if spend {
				decide(t, lim, "spent", repeat(36, asks{1, false, 1, limiter.SourceLease, 98})...)
				// Three are held.
				res, err := lim.Allow(t.Context(), "k", limiter.Cost(9))
				if err != nil || res.Source != limiter.SourceLocal || !res.Allowed {
					t.Errorf("nine: %+v, %v", res, err)
				}
				local := res.Remaining // of the claim
				left = 60 - 6 - local
				for ; local > 0; local-- {
					if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceLocal || res.Remaining != local-1 {
						t.Errorf("%d are left: %+v, %v", local, res, err)
					}
				}
				if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Allowed || res.RetryAfter <= 0 {
					t.Errorf("one more: %+v, %v", res, err)
				}
			}
			time.Sleep(2 * time.Minute)
			r.SetPath("a", func(p *sim.Path) { p.Refused = false })
			for range 20 {
				_, _ = lim.Allow(t.Context(), "other")
				time.Sleep(500 * time.Millisecond)
			}
			if res, err := other.Peek(t.Context(), "k"); err != nil || res.Remaining != left {
				t.Errorf("spent %v: %+v, %v; want %d", spend, res, err, left)
			}
		})
	}
}

// TestLeaseLosesItsKey: a block and a reset are heeded at once by the process that makes them; what it held, and what was
// on its way to it, is not given back to what begins anew.
func TestLeaseLosesItsKey(t *testing.T) {
	for _, limit := range leasable(100, 300*time.Hour) {
		for _, underWay := range []bool{false, true} {
			sim.Test(t, func(t *testing.T, r *sim.Redis) {
				lim, _ := simulatedLimiter(t, r, "a", limit, limiter.WithShare(1), limiter.WithLease(40, time.Second))
				allow := func() limiter.Result {
					t.Helper()
					res, err := lim.Allow(t.Context(), "k")
					must(t, err)
					return res
				}
				allow()
				if underWay {
					for range 19 {
						allow() // the last of which fetches more
					}
				}
				must(t, lim.Block(t.Context(), "k", time.Hour))
				if res := allow(); res.Allowed || res.RetryAfter < 59*time.Minute {
					t.Errorf("%s, blocked: %+v", limit, res)
				}
				must(t, lim.Reset(t.Context(), "k"))
				if res := allow(); !res.Allowed || res.Source != limiter.SourceRedis || res.Remaining != 99 {
					t.Errorf("%s, reset: %+v", limit, res)
				}
				time.Sleep(100 * time.Millisecond)
				must(t, lim.Close())
				other, _ := simulatedLimiter(t, r, "b", limit, limiter.WithShare(1), limiter.WithLease(40, time.Second))
				if res, err := other.Peek(t.Context(), "k"); err != nil || res.Remaining != 99 {
					t.Errorf("%s, after Close: %+v, %v", limit, res, err)
				}
			})
		}
	}
}

// TestCostsBeyondALease: those that are larger than what is ever held.
func TestCostsBeyondALease(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim, _ := simulatedLimiter(t, r, "a", limiter.FixedWindow(limiter.Per(100, 300*time.Hour)), limiter.WithShare(1), limiter.WithLease(10, time.Minute))
		lease, redis := limiter.SourceLease, limiter.SourceRedis
		decide(t, lim, "beyond", asks{30, false, 30, redis, 70}, asks{1, false, 1, redis, 69}, asks{20, false, 20, redis, 49}, asks{1, false, 1, redis, 48},
			asks{1, false, 1, lease, 47}, asks{48, false, 0, redis, 47}, asks{47, false, 47, redis, 0})
	})
}

// TestOpenSpendsNoLease: what the policy Open admits is not charged, so nothing of it is spent from a lease either: a lease
// keeps what it holds, for those who are charged.
func TestOpenSpendsNoLease(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		limit := limiter.FixedWindow(limiter.Per(100, 300*time.Hour))
		lim, _ := simulatedLimiter(t, r, "a", limit, limiter.WithLease(20, 10*time.Minute), limiter.WithFallback(fallback.Open))
		other, _ := simulatedLimiter(t, r, "b", limit, limiter.WithShare(1))
		if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceRedis {
			t.Fatal(res, err)
		}
		time.Sleep(time.Second)
		r.SetPath("a", func(p *sim.Path) { p.Lost = true })
		rsv, err := lim.Reserve(t.Context(), "k", limiter.Cost(40)) // some of it could be spent from the lease
		if err != nil || rsv.Source != limiter.SourceOpen {
			t.Fatalf("%+v, %v", rsv, err)
		}
		must(t, rsv.Cancel(t.Context()))
		r.SetPath("a", func(p *sim.Path) { p.Lost = false })
		if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceLease {
			t.Errorf("%+v, %v", res, err)
		}
		must(t, lim.Close())
		if n := left(t, other, "k"); n != 98 {
			t.Errorf("%d of 100 are left, and 2 were used", n)
		}
	})
}
