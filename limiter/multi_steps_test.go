package limiter_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestMultiStepByStep: what several limits are charged, what goes back to each, what is denied without asking, and the same
// while Redis is away.
func TestMultiStepByStep(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := r.Client("p", redis.Options{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
		defer rdb.Close()
		made := func(prefix string, n int) *limiter.Limiter {
			return newLimiter(t, rdb, limiter.FixedWindow(limiter.Rate{N: n, Per: 24 * time.Hour}), limiter.WithPrefix(prefix), limiter.WithShare(0.5))
		}
		one, two := made("one", 20), made("two", 12)
		m, err := limiter.NewMulti(limiter.Part{Name: "one", Limiter: one}, limiter.Part{Name: "two", Limiter: two})
		must(t, err)
		left := func(when, key string, wantOne, wantTwo int) {
			t.Helper()
			a, errA := one.Peek(t.Context(), key)
			b, errB := two.Peek(t.Context(), key)
			if errA != nil || errB != nil || a.Remaining != wantOne || b.Remaining != wantTwo {
				t.Errorf("%s: %d and %d are left, %v, %v; want %d and %d", when, a.Remaining, b.Remaining, errA, errB, wantOne, wantTwo)
			}
		}
		counted := func() (n uint64) {
			for _, lim := range []*limiter.Limiter{one, two} {
				for _, k := range lim.Health().Decisions {
					n += k
				}
			}
			return n
		}
		allow := func(when string, n int, source limiter.Source, allowed bool, parts int) {
			t.Helper()
			before := counted()
			res, err := m.Allow(t.Context(), "k", limiter.Cost(n))
			if err != nil || res.Allowed != allowed || res.Source != source || len(res.Parts) != parts || !allowed && res.Denied != "two" {
				t.Errorf("%s: %+v, %v", when, res, err)
			}
			if k := counted() - before; k != uint64(parts) {
				t.Errorf("%s: counted %d times", when, k)
			}
		}
		reserve := func(when, key string, n int, settle ...int) {
			t.Helper()
			res, err := m.Reserve(t.Context(), key, limiter.Cost(n))
			must(t, err)
			if !res.Allowed {
				t.Fatalf("%s: %+v", when, res)
			}
			must(t, res.Settle(t.Context(), settle...))
		}
		reserve("cancelled", "k", 4, 0)
		left("cancelled", "k", 20, 12)
		reserve("settled", "k", 4, 3, 1)
		left("settled", "k", 17, 11)
		before := r.Commands()
		allow("eight", 8, limiter.SourceRedis, true, 2)
		if n := r.Commands() - before; n != 1 {
			t.Errorf("%d commands for one decision", n)
		}
		left("eight", "k", 9, 3)
		allow("too many", 8, limiter.SourceRedis, false, 2)
		before = r.Commands()
		allow("too many again", 8, limiter.SourceCache, false, 1)
		if n := r.Commands() - before; n != 0 {
			t.Errorf("%d commands for what is known", n)
		}
		allow("four", 4, limiter.SourceRedis, false, 2)
		left("a denial", "k", 9, 3)
		allow("four again", 4, limiter.SourceCache, false, 1)
		allow("three", 3, limiter.SourceRedis, true, 2)
		left("three", "k", 6, 0)

		r.SetPath("p", func(p *sim.Path) { p.Refused = true })
		for range 30 {
			_, _ = m.Allow(t.Context(), "other")
			time.Sleep(10 * time.Millisecond)
		}
		if s := one.Health().Servers[0].State.String(); s != "open" {
			t.Fatalf("the breaker is %s", s)
		}
		reserve("cancelled in the outage", "new", 6, 0)
		reserve("taken in the outage", "new", 6)
		res, err := m.Allow(t.Context(), "new")
		if err != nil || res.Allowed || res.Denied != "two" || res.Source != limiter.SourceLocal || len(res.Parts) != 2 || !res.Parts[0].Allowed || res.Parts[0].Remaining != 4 {
			t.Errorf("more than the claim: %+v, %v", res, err)
		}
		r.SetPath("p", func(p *sim.Path) { p.Refused = false })
		for range 20 {
			_, _ = one.Allow(t.Context(), "other")
			_, _ = two.Allow(t.Context(), "other")
			time.Sleep(500 * time.Millisecond)
		}
		left("afterwards", "new", 14, 6)
		left("afterwards", "k", 6, 0)
	})
}
