//go:build !race

package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// TestLimitChangesInAnOutage: a fleet that learns in an outage that its limit is another one
// admits no more than that from then on, nor in the seconds after the outage.
func TestLimitChangesInAnOutage(t *testing.T) {
	long(t)
	for _, to := range []int{100, 800} {
		for _, limit := range []func(n int) limiter.Limit{
			func(n int) limiter.Limit { return limiter.GCRA(limiter.PerSecond(n), n/10) },
			func(n int) limiter.Limit { return limiter.SlidingWindowLog(limiter.PerSecond(n)) },
		} {
			standing(t, 1, 4, limit(400), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
				all := []int{0, 1, 2, 3}
				l.ask(t, 400, 30*time.Second, all...)
				l.srv.set(func(h *Health) { h.Down = true })
				l.srv.crash()
				l.ask(t, 400, 5*time.Second, all...)
				for _, lim := range l.limiters {
					if err := lim.SetLimit(limit(to)); err != nil {
						t.Fatal(err)
					}
				}
				away := perSecond(l.ask(t, to, 10*time.Second, all...))
				l.srv.set(func(h *Health) { h.Down = false })
				back := perSecond(l.ask(t, to, 10*time.Second, all...))
				t.Log(limit(to), away, back)
				// The burst of a new limit is new, once in each process and once in Redis.
				if n, most := sum(away), 10*to+limit(to).Burst(); n > most {
					t.Errorf("%v: %d of %d in an outage: %v", limit(to), n, most, away)
				}
				if n, most := sum(back), 10*to+limit(to).Burst(); n > most || back[9] > to*105/100 || back[9] < to*9/10 {
					t.Errorf("%v: %d of %d after it: %v", limit(to), n, most, back)
				}
			})
		}
	}
}

// TestReturnWithLeasesAndParts is TestReturnIsGentle for leases, split keys and critical headroom, of
// which the callers use the rest.
func TestReturnWithLeasesAndParts(t *testing.T) {
	long(t)
	const rate = 400
	limit := limiter.GCRA(limiter.PerSecond(rate), 100)
	for name, opt := range map[string]limiter.Option{
		"leases": limiter.WithLease(5, 100*time.Millisecond), "parts": limiter.WithKeyShards(4), "headroom": limiter.WithCriticalHeadroom(0.2),
	} {
		standing(t, 1, 4, limit, func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
			got := perSecond(l.outage(t, rate, time.Minute, 0))
			t.Log(name, got)
			if slices.Max(got) > rate*105/100 || slices.Min(got) < rate*9/10 {
				t.Errorf("%s: %v of %d in each second", name, got, rate)
			}
		}, opt)
	}
}

// TestProcessesAreCutOffOneByOne: Redis leaves no room for those that are cut off, so a fleet admits
// one limit more than they claim together, and the limit again soon after all are back. Outages of
// two seconds, one after the other, change that no more.
func TestProcessesAreCutOffOneByOne(t *testing.T) {
	long(t)
	const rate = 400
	standing(t, 1, 4, limiter.GCRA(limiter.PerSecond(rate), 100), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
		all := []int{0, 1, 2, 3}
		claims := func() (sum float64) {
			for _, lim := range l.limiters {
				res, err := lim.Peek(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				sum += res.Claim // 0 where Redis decides
			}
			return sum
		}
		refuse := func(i int, to bool) { l.net.set(fmt.Sprint("p", i), l.srv.address(), func(p *Path) { p.Refused = to }) }
		l.ask(t, rate, time.Minute, all...)
		for i := range 3 {
			refuse(i, true)
			got := perSecond(l.ask(t, rate, 5*time.Second, all...))
			t.Logf("%d cut off: %v; claims of %.2f", i+1, got, claims())
			if n, most := sum(got), 5*rate*(1+claims())+100; float64(n) > most {
				t.Errorf("%d were admitted in 5 s while %d are cut off, at most %.0f", n, i+1, most)
			}
		}
		for i := range 3 {
			refuse(i, false)
		}
		if got := perSecond(l.ask(t, rate, 15*time.Second, all...)); slices.Max(got[7:]) > rate*105/100 || slices.Min(got) < rate*9/10 {
			t.Errorf("after it: %v", got)
		}
		for range 6 {
			for _, down := range []bool{true, false} {
				l.srv.set(func(h *Health) { h.Down = down })
				if down {
					l.srv.crash()
				}
				got := sum(perSecond(l.ask(t, rate, 2*time.Second, all...)))
				// A burst of Redis, and one of the local accounts, as P5 says.
				if most := 2*rate*max(1.05, claims()) + 2*100; float64(got) > most {
					t.Errorf("%d were admitted in 2 s, at most %.0f", got, most)
				}
			}
		}
	})
}
