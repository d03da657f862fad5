package limiter_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// simulatedLimiter is a limiter of a process of its own, with what its hook was told.
func simulatedLimiter(t *testing.T, r *sim.Redis, name string, limit limiter.Limit, opts ...limiter.Option) (*limiter.Limiter, *[]limiter.DecisionInfo) {
	t.Helper()
	rdb := r.Client(name, redis.Options{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	told := new([]limiter.DecisionInfo)
	var mu sync.Mutex
	hooks := limiter.WithHooks(limiter.Hooks{Decision: func(_ context.Context, d limiter.DecisionInfo) {
		mu.Lock()
		defer mu.Unlock()
		*told = append(*told, d)
	}})
	return newLimiter(t, rdb, limit, append([]limiter.Option{limiter.WithProcess(name), hooks}, opts...)...), told
}

// shapes are limiters whose counts are the same, however they keep them.
var shapes = map[string][]limiter.Option{
	"plain":           nil,
	"no denials":      {limiter.WithoutDenialCache()},
	"headroom":        {limiter.WithCriticalHeadroom(0.25)},
	"split":           {limiter.WithKeyShards(4)},
	"lease":           {limiter.WithLease(5, time.Minute)},
	"lease and split": {limiter.WithLease(2, time.Minute), limiter.WithKeyShards(4)},
}

// TestDecisionsInAnOutage: by the policy, in the budget, each counted once; afterwards Redis decides again, and what was
// admitted without it was charged.
func TestDecisionsInAnOutage(t *testing.T) {
	const limit = 100
	for policy, c := range map[fallback.Policy]struct {
		source   limiter.Source
		admitted int // of 120 in the outage
		left     int // of the limit, afterwards
	}{
		fallback.Local:  {limiter.SourceLocal, 50, 30}, // a share of a half; 20 were used before
		fallback.Open:   {limiter.SourceOpen, 120, 80},
		fallback.Closed: {limiter.SourceClosed, 0, 80},
	} {
		for name, opts := range shapes {
			if name != "plain" && name != "no denials" {
				continue // what is held, and parts, have claims of their own
			}
			sim.Test(t, func(t *testing.T, r *sim.Redis) {
				opts := append(opts, limiter.WithFallback(policy))
				if policy == fallback.Local {
					opts = append(opts, limiter.WithShare(0.5))
				}
				lim, told := simulatedLimiter(t, r, "a", limiter.FixedWindow(limiter.Rate{N: limit, Per: 24 * time.Hour}), opts...)
				try := func(key string, n int) (admitted int) {
					for range n {
						began := time.Now()
						res, err := lim.Allow(t.Context(), key)
						if took := time.Since(began); took > 50*time.Millisecond {
							t.Errorf("%v: %v", policy, took)
						}
						if errors.Is(err, limiter.ErrUnavailable) != (res.Source == limiter.SourceClosed) || err != nil && policy != fallback.Closed {
							t.Errorf("%v: %+v, %v", policy, res, err)
						}
						if res.Source == limiter.SourceClosed && res.RetryAfter < 50*time.Millisecond {
							t.Errorf("again after %v", res.RetryAfter)
						}
						if res.Source == limiter.SourceOpen && res.Remaining != limit {
							t.Errorf("%+v", res)
						}
						if res.Allowed {
							admitted++
						}
						time.Sleep(10 * time.Millisecond)
					}
					return admitted
				}
				if n := try("used", 20); n != 20 {
					t.Errorf("%v, %s: %d of 20", policy, name, n)
				}
				r.SetPath("a", func(p *sim.Path) { p.Refused = true })
				n := try("new", 120)
				if n != c.admitted {
					t.Errorf("%v, %s: %d admitted of a new key, want %d", policy, name, n, c.admitted)
				}
				counts := lim.Health().Decisions
				if counts[limiter.SourceRedis] != 20 || counts[c.source] != 120 || len(*told) != 140 {
					t.Errorf("%v, %s: %v, %d told", policy, name, counts, len(*told))
				}
				h := lim.Health()
				if owed := h.Owed; (policy == fallback.Local) != (owed == 1) || h.Servers[0].State.String() == "closed" || h.Reconciled != 0 {
					t.Errorf("%v, %s: %+v", policy, name, h)
				}
				r.SetPath("a", func(p *sim.Path) { p.Refused = false })
				time.Sleep(time.Second)
				try("other", 30) // the breaker closes, and what is owed is charged
				left := try("new", limit+20)
				// The first call met a connection that was reset: what may have been charged is not charged again.
				if want := limit - c.admitted; policy == fallback.Local && left != want && left != want+1 || policy != fallback.Local && left != limit {
					t.Errorf("%v, %s: %d are left of what was admitted in the outage", policy, name, left)
				}
				if left := try("used", limit); left != 80 {
					t.Errorf("%v, %s: %d are left of what was used before", policy, name, left)
				}
				if h := lim.Health(); h.Owed != 0 || (policy == fallback.Local) != (h.Reconciled == 1) || h.Servers[0].State.String() != "closed" {
					t.Errorf("%v, %s: %+v", policy, name, h)
				}
			})
		}
	}
}

// TestPartsOfALimitAreOne: in an outage, what a process uses for keys that have no place stays used when it learns
// that it is one of more processes.
func TestPartsOfALimitAreOne(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		var processes atomic.Int64
		processes.Store(2)
		admitted := 0
		lim, _ := simulatedLimiter(t, r, "a", limiter.GCRA(limiter.PerHour(60), 60), limiter.WithEqualShare(1), limiter.WithMaxLocalKeys(1),
			limiter.WithPeerCount(func(context.Context) (int, error) { return int(processes.Load()), nil }))
		synctest.Wait() // the first count is known
		r.SetPath("a", func(p *sim.Path) { p.Refused = true })
		_, err := lim.AllowN(t.Context(), "other", 20) // takes the place
		must(t, err)
		for ; processes.Load() < 12; processes.Add(1) {
			for range 35 {
				res, err := lim.Allow(t.Context(), "k")
				must(t, err)
				if res.Allowed {
					admitted++
				}
				time.Sleep(time.Second)
			}
		}
		if h := lim.Health(); h.Processes != 11 || admitted < 30 || admitted > 33 { // the half, and what a bucket regains
			t.Errorf("one of 2 to %d processes admitted %d of 60 an hour", h.Processes, admitted)
		}
	})
}

// TestWaitersGetTheRate: those who wait are served at the rate, one after the other, and each within what its context
// leaves; who cannot be served in time is told at once.
func TestWaitersGetTheRate(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim, _ := simulatedLimiter(t, r, "a", limiter.TokenBucket(limiter.PerSecond(10), 5), limiter.WithShare(1))
		began := time.Now()
		done := make(chan time.Duration, 40)
		for i := range 40 {
			go func() {
				time.Sleep(time.Duration(i) * time.Microsecond)
				if _, err := lim.Wait(t.Context(), "k"); err != nil {
					t.Error(err)
				}
				done <- time.Since(began)
			}()
		}
		for i := range 40 {
			at, due := <-done, time.Duration(max(0, i-4))*100*time.Millisecond
			if at < due || at > due+350*time.Millisecond {
				t.Errorf("%d is served after %v, want %v", i, at, due)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		asked := time.Now()
		if _, err := lim.Wait(ctx, "k", limiter.Cost(5)); err == nil || time.Since(asked) > 20*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(asked))
		}
	})
}

// TestLeftOfASharedCall: of callers who share a call, in whatever order they go on, what Redis said of all
// of them is what is left when it is lost.
func TestLeftOfASharedCall(t *testing.T) {
	const limit, callers = 100, 60
	for range 20 {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			lim, _ := simulatedLimiter(t, r, "a", limiter.FixedWindow(limiter.Rate{N: limit, Per: 24 * time.Hour}), limiter.WithShare(1))
			before := r.Commands()
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceRedis {
						t.Errorf("%+v, %v", res, err)
					}
				})
			}
			wg.Wait()
			if n := r.Commands() - before; n > callers/2 {
				t.Fatalf("%d commands for %d callers, who share calls", n, callers)
			}
			r.SetPath("a", func(p *sim.Path) { p.Refused = true })
			if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceLocal || res.Remaining != limit-callers-1 {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}
