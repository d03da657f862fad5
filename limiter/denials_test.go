package limiter_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limiter/limitertest"
)

// TestDenialIsRemembered: asked again for what was denied, Redis is not asked;
// for less, for another key and under another limit, it is.
func TestDenialIsRemembered(t *testing.T) {
	stricter := limitertest.Limits(limiter.PerHour(9))
	for i, limit := range limitertest.Limits(limiter.PerHour(10)) {
		t.Run(limit.Algorithm(), func(t *testing.T) {
			srv := redistest.Start(t)
			lim := newLimiter(t, redistest.Client(t, srv), limit, patient())
			ask := func(want limiter.Source, allowed bool, key string, n int, opts ...limiter.CallOption) limiter.Result {
				t.Helper()
				res, err := lim.Allow(t.Context(), key, append(opts, limiter.Cost(n))...)
				if err != nil || res.Source != want || res.Allowed != allowed || allowed == (res.RetryAfter > 0) {
					t.Fatalf("%d of %s: %+v, %v; want allowed %v by %v", n, key, res, err, allowed, want)
				}
				return res
			}
			ask(limiter.SourceRedis, true, "k", 8)
			denied := ask(limiter.SourceRedis, false, "k", 5)
			calls := redistest.Calls(t, srv, "evalsha")
			for range 100 {
				again := ask(limiter.SourceCache, false, "k", 5)
				if again.Remaining != denied.Remaining || again.RetryAfter > denied.RetryAfter || again.RetryAfter < denied.RetryAfter-time.Second || again.ResetAfter > denied.ResetAfter || again.ResetAfter <= 0 {
					t.Fatalf("%+v after %+v", again, denied)
				}
			}
			if n := redistest.Calls(t, srv, "evalsha") - calls; n != 0 {
				t.Errorf("%d calls for what was known", n)
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
	t.Parallel()
	srv := redistest.Start(t)
	rdb := redistest.Client(t, srv)
	source := func(lim *limiter.Limiter, key string) (limiter.Source, limiter.Result) {
		t.Helper()
		res, err := lim.Allow(t.Context(), key)
		must(t, err)
		return res.Source, res
	}
	deny := func(lim *limiter.Limiter, key string) limiter.Result {
		t.Helper()
		var res limiter.Result
		until(t, "a denial", func() bool { // at the second time, if the machine lets it come soon
			_, res = source(lim, key)
			return !res.Allowed
		})
		return res
	}
	slow := newLimiter(t, rdb, limiter.GCRA(limiter.PerHour(1), 1), limiter.WithShare(1), unhurried())
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
	must(t, rdb.FlushAll(t.Context()).Err())
	start := time.Now()
	for {
		s, res := source(slow, "1s")
		if res.Allowed {
			break
		}
		if s != limiter.SourceCache || time.Since(start) > 5*time.Second {
			t.Fatalf("denied by %v after %v", s, time.Since(start))
		}
		time.Sleep(time.Millisecond)
	}

	quick := newLimiter(t, rdb, limiter.GCRA(limiter.PerSecond(4), 1), limiter.WithShare(1), unhurried(), limiter.WithPrefix("quick"))
	for range 3 {
		deny(quick, "k")
		_, res := source(quick, "k")
		time.Sleep(res.RetryAfter)
		if s, res := source(quick, "k"); !res.Allowed || s != limiter.SourceRedis {
			t.Errorf("after the time it named: %+v", res)
		}
	}
	always := newLimiter(t, rdb, limiter.GCRA(limiter.PerHour(1), 1), limiter.WithShare(1), unhurried(), limiter.WithoutDenialCache())
	deny(always, "always")
	if s, _ := source(always, "always"); s != limiter.SourceRedis {
		t.Errorf("without the cache decided by %v", s)
	}
}
