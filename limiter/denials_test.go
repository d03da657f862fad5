package limiter_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limiter/limitertest"
)

// TestDenialIsRemembered: asked again for what was denied, Redis is not asked;
// for less, for another key and under another limit, it is.
func TestDenialIsRemembered(t *testing.T) {
	stricter := limitertest.Limits(limiter.PerHour(9))
	for i, limit := range limitertest.Limits(limiter.PerHour(10)) {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			lim, _ := simulatedLimiter(t, r, "a", limit, patient())
			ask := func(want limiter.Source, allowed bool, key string, n int, opts ...limiter.CallOption) limiter.Result {
				t.Helper()
				res, err := lim.Allow(t.Context(), key, append(opts, limiter.Cost(n))...)
				if err != nil || res.Source != want || res.Allowed != allowed || allowed == (res.RetryAfter > 0) {
					t.Fatalf("%s, %d of %s: %+v, %v; want allowed %v by %v", limit, n, key, res, err, allowed, want)
				}
				return res
			}
			ask(limiter.SourceRedis, true, "k", 8)
			denied := ask(limiter.SourceRedis, false, "k", 5)
			commands := r.Commands()
			for range 100 {
				again := ask(limiter.SourceCache, false, "k", 5)
				if again.Remaining != denied.Remaining || again.RetryAfter > denied.RetryAfter || again.RetryAfter < denied.RetryAfter-time.Second || again.ResetAfter > denied.ResetAfter || again.ResetAfter <= 0 {
					t.Fatalf("%s: %+v after %+v", limit, again, denied)
				}
				time.Sleep(5 * time.Millisecond)
			}
			if n := r.Commands() - commands; n != 0 {
				t.Errorf("%s: %d commands for what was known", limit, n)
			}
			ask(limiter.SourceRedis, false, "k", 4)
			ask(limiter.SourceRedis, true, "k", 2)
			ask(limiter.SourceRedis, true, "other", 5)
			ask(limiter.SourceRedis, false, "k", 5, stricter[i])
		})
	}
}

// TestDenialIsForgotten: a denial is forgotten with the key, and is believed for
// at most 1 s and not beyond the time that it named.
func TestDenialIsForgotten(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		made := func(limit limiter.Limit, opts ...limiter.Option) *limiter.Limiter {
			t.Helper()
			lim, _ := simulatedLimiter(t, r, "a", limit, append(opts, patient())...)
			return lim
		}
		source := func(lim *limiter.Limiter, key string) (limiter.Source, limiter.Result) {
			t.Helper()
			res, err := lim.Allow(t.Context(), key)
			must(t, err)
			return res.Source, res
		}
		deny := func(lim *limiter.Limiter, key string) {
			t.Helper()
			if _, res := source(lim, key); !res.Allowed {
				t.Fatalf("the first of %s: %+v", key, res)
			}
			if _, res := source(lim, key); res.Allowed {
				t.Fatalf("the second of %s: %+v", key, res)
			}
		}
		slow := made(limiter.GCRA(limiter.PerHour(1), 1))
		for name, forget := range map[string]func() error{
			"reset": func() error { return slow.Reset(t.Context(), "reset") },
			"block": func() error { return slow.Block(t.Context(), "block", 3*time.Hour) },
		} {
			deny(slow, name)
			if s, _ := source(slow, name); s != limiter.SourceCache {
				t.Fatalf("%s: decided by %v, want the cache", name, s)
			}
			must(t, forget())
			switch s, res := source(slow, name); {
			case s != limiter.SourceRedis:
				t.Errorf("after %s decided by %v", name, s)
			case name == "block" && res.RetryAfter < 2*time.Hour:
				t.Errorf("blocked for 3 h: retry after %v", res.RetryAfter)
			}
		}

		deny(slow, "1s")
		start := time.Now()
		r.Lose("1s")
		for {
			s, res := source(slow, "1s")
			if res.Allowed {
				break
			}
			if s != limiter.SourceCache || time.Since(start) > time.Second {
				t.Fatalf("denied by %v after %v", s, time.Since(start))
			}
			time.Sleep(time.Millisecond)
		}

		quick := made(limiter.GCRA(limiter.PerSecond(4), 1), limiter.WithPrefix("quick"))
		for range 3 {
			deny(quick, "k")
			_, res := source(quick, "k")
			time.Sleep(res.RetryAfter)
			if s, res := source(quick, "k"); !res.Allowed || s != limiter.SourceRedis {
				t.Errorf("after the time it named: %+v", res)
			}
			time.Sleep(time.Second)
		}
		always := made(limiter.GCRA(limiter.PerHour(1), 1), limiter.WithoutDenialCache(), limiter.WithPrefix("always"))
		deny(always, "always")
		if s, _ := source(always, "always"); s != limiter.SourceRedis {
			t.Errorf("without the cache decided by %v", s)
		}
	})
}

// TestDenialAfterAChange: what Redis denies after the key was changed is remembered, also where the decision, which
// asked twice, began before the change.
func TestDenialAfterAChange(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim, _ := simulatedLimiter(t, r, "a", limiter.FixedWindow(limiter.PerHour(10)), patient())
		_, err := lim.Allow(t.Context(), "k", limiter.Cost(10))
		must(t, err)
		time.Sleep(2 * time.Second) // what is known of that is forgotten
		r.SetPath("a", func(p *sim.Path) { p.Delay = 10 * time.Millisecond })
		go func() { must(t, lim.Block(t.Context(), "k", time.Millisecond)) }() // has its answer at 20 ms
		time.Sleep(12 * time.Millisecond)
		res, err := lim.Allow(t.Context(), "k", limiter.AtMost(4)) // asks for 4 until 32 ms, and then for 1
		if err != nil || res.Allowed || res.Source != limiter.SourceRedis {
			t.Fatalf("%+v, %v", res, err)
		}
		if res, err = lim.Allow(t.Context(), "k"); err != nil || res.Allowed || res.Source != limiter.SourceCache {
			t.Errorf("what was denied after the change: %+v, %v", res, err)
		}
	})
}

// TestDenialOfPartsAfterAChange: the same of parts of a Multi that are asked after another one.
func TestDenialOfPartsAfterAChange(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		client, limit := clients(t, r), limiter.FixedWindow(limiter.PerHour(10))
		far, near := client(), client()
		made := func(rdb *redis.Client, prefix string) limiter.Part {
			return limiter.Part{Name: prefix, Limiter: newLimiter(t, rdb, limit, patient(), limiter.WithPrefix(prefix))}
		}
		full := made(near, "full")
		m := newMulti(t, made(far, "first"), full, made(near, "third"))
		_, err := full.Limiter.Allow(t.Context(), "k", limiter.Cost(10))
		must(t, err)
		time.Sleep(2 * time.Second) // what is known of that is forgotten
		r.SetPath("p1", func(p *sim.Path) { p.Delay = 10 * time.Millisecond })
		go func() {
			time.Sleep(5 * time.Millisecond) // while the first part is asked
			must(t, full.Limiter.Block(t.Context(), "k", time.Millisecond))
		}()
		res, err := m.Allow(t.Context(), "k")
		if err != nil || res.Denied != "full" || res.Source != limiter.SourceRedis {
			t.Fatalf("%+v, %v", res, err)
		}
		if res, err := full.Limiter.Allow(t.Context(), "k"); err != nil || res.Allowed || res.Source != limiter.SourceCache {
			t.Errorf("what was denied after the change: %+v, %v", res, err)
		}
	})
}
