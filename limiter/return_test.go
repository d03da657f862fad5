package limiter_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestFleetReturnsTogether: processes that reach Redis again decide within their claims until
// the last one of the fleet is back, or was expected for long enough; those whose share is
// fixed, or whose policy is another one, do not wait. What was used meanwhile is charged then.
func TestFleetReturnsTogether(t *testing.T) {
	t.Parallel()
	three := func(context.Context) (int, error) { return 3, nil }
	for name, c := range map[string]struct {
		opts    []limiter.Option
		longest time.Duration
		waits   bool
	}{
		"the last one returns":  {nil, time.Minute, true},
		"the last one does not": {nil, 20 * time.Millisecond, false},
		"each has a share":      {[]limiter.Option{limiter.WithShare(0.3)}, time.Minute, false},
		"another policy":        {[]limiter.Option{limiter.WithFallback(fallback.Open), limiter.WithPeerCount(three)}, time.Minute, false},
		"leases":                {[]limiter.Option{limiter.WithLease(10, time.Minute)}, time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			proxies := make([]*faultproxy.Proxy, 3)
			lims, multis := make([]*limiter.Limiter, len(proxies)), make([]*limiter.Multi, len(proxies))
			for i := range proxies {
				var rdb *redis.Client
				proxies[i], rdb = behind(t, srv, redis.Options{})
				lims[i] = newLimiter(t, rdb, limiter.GCRA(limiter.PerHour(1000), 1000), append(c.opts, unhurried(), limiter.WithProcess(fmt.Sprint("p", i)),
					limiter.WithBreaker(breaker.Settings{MinRequests: 1, FailureRatio: 0.01, OpenMin: 10 * time.Millisecond, OpenMax: c.longest}))...)
				hourly := newLimiter(t, rdb, limiter.FixedWindow(limiter.PerHour(1000)), limiter.WithPrefix("hourly"), unhurried())
				multis[i] = newMulti(t, limiter.Part{Name: "a", Limiter: lims[i]}, limiter.Part{Name: "b", Limiter: hourly})
			}
			source := func(lim *limiter.Limiter) limiter.Source {
				res, err := lim.Allow(t.Context(), "k")
				must(t, err)
				return res.Source
			}
			until(t, "three processes count each other", func() bool {
				agree := true
				for _, lim := range lims {
					_, err := lim.Peek(t.Context(), "other")
					must(t, err)
					agree = agree && lim.Health().Processes == 3
				}
				return agree
			})
			for i, lim := range lims {
				proxies[i].Set(faultproxy.Mode{Refuse: true})
				proxies[i].Reset()
				until(t, "Redis is lost", func() bool { source(lim); return lim.Health().Servers[0].State != breaker.Closed })
			}
			for i := range 2 {
				proxies[i].Pass()
				until(t, "the breaker closes", func() bool { source(lims[i]); return lims[i].Health().Servers[0].State == breaker.Closed })
			}
			for range 50 {
				for i := range 2 {
					if c.waits && source(lims[i]) == limiter.SourceRedis {
						t.Fatal("Redis decides although a process is not back")
					}
					if res, err := multis[i].Allow(t.Context(), "m"); c.waits && (err != nil || res.Source != limiter.SourceLocal) {
						t.Fatalf("of several limits: %+v, %v", res, err)
					}
				}
			}
			if c.waits {
				proxies[2].Pass()
			}
			until(t, "Redis decides and knows of all use", func() bool {
				back := true
				for i, lim := range lims {
					s := source(lim)
					decided := s == limiter.SourceRedis || s == limiter.SourceCache || s == limiter.SourceLease
					back = back && (i == 2 && !c.waits || decided && lim.Health().Owed == 0)
				}
				return back
			})
		})
	}
}
