// Package migrating checks what docs/migrating.md says of other libraries: it runs the same
// limit with them and with Holdfast, on a real Redis.
package migrating

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
)

func TestMain(m *testing.M) { redistest.VerifyNoLeaks(m) }

// ask asks for n units of a key.
type ask func(key string, n int) (allowed bool, err error)

// change is a limit, before and after.
type change struct {
	name          string
	before, after func(t *testing.T, rdb *redis.Client, n int, per time.Duration, burst int) ask
}

// changes are those of the document. ulule/limiter has no burst: its window's limit.
var changes = []change{
	{"redis_rate", redisRate, gcra},
	{"throttled", throttledGCRA, gcra},
	{"ulule", ululeWindow, fixedWindow},
}

func redisRate(_ *testing.T, rdb *redis.Client, n int, per time.Duration, burst int) ask {
	lim, limit := redis_rate.NewLimiter(rdb), redis_rate.Limit{Rate: n, Period: per, Burst: burst}
	return func(key string, n int) (bool, error) {
		res, err := lim.AllowN(context.Background(), key, limit, n)
		return err == nil && res.Allowed > 0, err
	}
}

func throttledGCRA(t *testing.T, rdb *redis.Client, n int, per time.Duration, burst int) ask {
	store, err := goredisstore.NewCtx(rdb, "throttled:")
	if err != nil {
		t.Fatal(err)
	}
	lim, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerDuration(n, per), MaxBurst: burst - 1})
	if err != nil {
		t.Fatal(err)
	}
	return func(key string, n int) (bool, error) {
		limited, _, err := lim.RateLimitCtx(context.Background(), key, n)
		return err == nil && !limited, err
	}
}

func ululeWindow(t *testing.T, rdb *redis.Client, n int, per time.Duration, _ int) ask {
	store, err := ululeredis.NewStore(rdb)
	if err != nil {
		t.Fatal(err)
	}
	lim := ulule.New(store, ulule.Rate{Limit: int64(n), Period: per})
	return func(key string, n int) (bool, error) {
		res, err := lim.Increment(context.Background(), key, int64(n))
		return err == nil && !res.Reached, err
	}
}

func gcra(t *testing.T, rdb *redis.Client, n int, per time.Duration, burst int) ask {
	return holdfast(t, rdb, limiter.GCRA(limiter.Per(n, per), burst))
}

func fixedWindow(t *testing.T, rdb *redis.Client, n int, per time.Duration, _ int) ask {
	return holdfast(t, rdb, limiter.FixedWindow(limiter.Per(n, per)))
}

// holdfast has a budget that a machine which everything shares keeps to.
func holdfast(t *testing.T, rdb *redis.Client, limit limiter.Limit) ask {
	t.Helper()
	lim, err := limiter.New(rdb, limit, limiter.WithBudget(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lim.Close() })
	return func(key string, n int) (bool, error) {
		res, err := lim.AllowN(context.Background(), key, n)
		if err == nil && res.Source == limiter.SourceLocal {
			err = errors.New("not decided by Redis")
		}
		return res.Allowed, err
	}
}

// slow is a period in which nothing comes back, and no window ends, during a test: the
// one that the epoch's windows of this length are in ends in February 2027, 2028 and so
// on.
const slow = 366 * 24 * time.Hour

// admitted asks times times for n units of a key.
func admitted(t *testing.T, a ask, key string, n, times int) (count int) {
	t.Helper()
	for range times {
		ok, err := a(key, n)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			count++
		}
	}
	return count
}

// TestSameBurst: the same limit admits as many before and after.
func TestSameBurst(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	for _, c := range changes {
		for _, burst := range []int{1, 2, 3, 7, 10, 50} {
			t.Run(fmt.Sprintf("%s/%d", c.name, burst), func(t *testing.T) {
				before, after := c.before(t, rdb, burst, slow, burst), c.after(t, rdb, burst, slow, burst)
				for _, cost := range []int{1, 3} {
					if cost > burst {
						continue // an error after: see TestCostAboveTheLimit
					}
					key := fmt.Sprint(c.name, burst, cost)
					was, is := admitted(t, before, key, cost, burst+3), admitted(t, after, key, cost, burst+3)
					if is != was || is != burst/cost {
						t.Errorf("cost %d: %d admitted before, %d after, of a burst of %d", cost, was, is, burst)
					}
				}
				key := fmt.Sprint(c.name, burst, "whole")
				if was, is := admitted(t, before, key, burst, 2), admitted(t, after, key, burst, 2); was != 1 || is != 1 {
					t.Errorf("the whole burst at once: admitted %d times before, %d after", was, is)
				}
			})
		}
	}
}

// TestDeniedUnits: ulule/limiter charges what it denies, and Holdfast does not.
func TestDeniedUnits(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	for name, want := range map[string]bool{"redis_rate": true, "throttled": true, "ulule": false, "Holdfast": true} {
		a := gcra(t, rdb, 10, slow, 10)
		for _, c := range changes {
			if c.name == name {
				a = c.before(t, rdb, 10, slow, 10)
			}
		}
		if got := admitted(t, a, name, 8, 1); got != 1 {
			t.Fatalf("%s: 8 of 10 denied", name)
		}
		if got := admitted(t, a, name, 5, 1); got != 0 {
			t.Fatalf("%s: 13 of 10 admitted", name)
		}
		if got := admitted(t, a, name, 1, 1) == 1; got != want {
			t.Errorf("%s: after 8 of 10, and 5 denied, one more is admitted: %v, want %v", name, got, want)
		}
	}
}

// TestCostAboveTheLimit: what can never be admitted is an error, and looked like a
// denial before.
func TestCostAboveTheLimit(t *testing.T) {
	ctx, rdb := context.Background(), redistest.Client(t, redistest.Start(t))
	for _, c := range changes {
		if ok, err := c.before(t, rdb, 5, time.Minute, 5)("x", 6); ok || err != nil {
			t.Errorf("%s: 6 of 5: %v, %v", c.name, ok, err)
		}
		if ok, err := c.after(t, rdb, 5, time.Minute, 5)("x", 6); ok || !errors.Is(err, limiter.ErrCostExceedsLimit) {
			t.Errorf("after %s: 6 of 5: %v, %v", c.name, ok, err)
		}
	}
	// redis_rate names a time at which it will not be admitted either.
	res, err := redis_rate.NewLimiter(rdb).AllowN(ctx, "y", redis_rate.PerMinute(5), 6)
	if err != nil || res.RetryAfter.Round(time.Millisecond) != 12*time.Second {
		t.Errorf("redis_rate: %+v, %v", res, err)
	}
	// A negative cost gives units beyond the burst.
	if res, err = redis_rate.NewLimiter(rdb).AllowN(ctx, "z", redis_rate.PerMinute(5), -5); err != nil || res.Remaining != 10 {
		t.Errorf("redis_rate: %+v, %v", res, err)
	}
	if _, err := gcra(t, rdb, 5, time.Minute, 5)("z", -5); !errors.Is(err, limiter.ErrInvalidCost) {
		t.Errorf("Holdfast: %v", err)
	}
}

// TestRemaining: that of a bucket's first request. redis_rate divides floats.
func TestRemaining(t *testing.T) {
	ctx, rdb := context.Background(), redistest.Client(t, redistest.Start(t))
	old, low := redis_rate.NewLimiter(rdb), 0
	for _, n := range []int{1, 7, 10, 60, 100, 1000, 2000} {
		for _, burst := range []int{3, 10, 50} {
			key := fmt.Sprint(n, burst)
			res, err := old.Allow(ctx, key, redis_rate.Limit{Rate: n, Period: time.Second, Burst: burst})
			if err != nil || res.RetryAfter != -1 || res.Remaining != burst-1 && res.Remaining != burst-2 {
				t.Fatalf("redis_rate: %+v, %v", res, err)
			}
			if res.Remaining == burst-2 {
				low++
			}
			lim, err := limiter.New(rdb, limiter.GCRA(limiter.PerSecond(n), burst), limiter.WithBudget(10*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			if res, err := lim.Allow(ctx, key); err != nil || res.RetryAfter != 0 || res.Remaining != burst-1 {
				t.Errorf("Holdfast: %+v, %v", res, err)
			}
			lim.Close()
		}
	}
	t.Logf("redis_rate: one low in %d of 21 configurations", low)
}

// TestAllowAtMost: both admit what there is room for.
func TestAllowAtMost(t *testing.T) {
	ctx, rdb := context.Background(), redistest.Client(t, redistest.Start(t))
	if res, err := redis_rate.NewLimiter(rdb).AllowAtMost(ctx, "k", redis_rate.Limit{Rate: 5, Period: slow, Burst: 5}, 8); err != nil || res.Allowed != 5 {
		t.Errorf("%+v, %v", res, err)
	}
	lim, err := limiter.New(rdb, limiter.GCRA(limiter.Per(5, slow), 5), limiter.WithBudget(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close()
	if _, err := lim.AllowN(ctx, "k", 2); err != nil {
		t.Fatal(err)
	}
	if res, err := lim.Allow(ctx, "k", limiter.AtMost(8)); err != nil || res.Admitted != 3 {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestThrottledForgetsEarly: its keys in Redis live for whole seconds, rounded down, and
// those of Holdfast for as long as they matter.
func TestThrottledForgetsEarly(t *testing.T) {
	ctx, rdb := context.Background(), redistest.Client(t, redistest.Start(t))
	const n, per = 1, 59900 * time.Millisecond
	admitted(t, throttledGCRA(t, rdb, n, per, 1), "k", 1, 1)
	admitted(t, gcra(t, rdb, n, per, 1), "k", 1, 1)
	before, err := rdb.PTTL(ctx, "throttled:k").Result()
	if err != nil || before > 59*time.Second {
		t.Errorf("throttled: %v, %v", before, err)
	}
	after, err := rdb.PTTL(ctx, "holdfast:v2:gcra:{k}").Result()
	if err != nil || after <= before {
		t.Errorf("Holdfast: %v, %v", after, err)
	}
}

// TestKeys: where each keeps its counts. They don't know of each other's.
func TestKeys(t *testing.T) {
	for _, test := range []struct {
		change        int
		before, after string
	}{
		{0, "rate:user:{1}", "holdfast:v2:gcra:{user:%7B1%7D}"},
		{1, "throttled:user:{1}", "holdfast:v2:gcra:{user:%7B1%7D}"},
		{2, "limiter:user:{1}", "holdfast:v2:fw:{user:%7B1%7D}"},
	} {
		rdb, c := redistest.Client(t, redistest.Start(t)), changes[test.change]
		for _, a := range []ask{c.before(t, rdb, 5, slow, 5), c.after(t, rdb, 5, slow, 5)} {
			if got := admitted(t, a, "user:{1}", 1, 7); got != 5 {
				t.Errorf("%s: %d admitted", c.name, got)
			}
		}
		if n, err := rdb.Exists(context.Background(), test.before, test.after).Result(); err != nil || n != 2 {
			t.Errorf("%s: %d keys, %v", c.name, n, err)
		}
	}
}

// TestRollOver: processes of three releases in turn, the second of which asks both, are
// within the limit all the time; without it there is a second burst.
func TestRollOver(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			before, after := c.before(t, rdb, 10, slow, 10), c.after(t, rdb, 10, slow, 10)
			both := func(key string, n int) (bool, error) {
				if ok, err := before(key, n); err != nil || !ok {
					return false, err
				}
				return after(key, n)
			}
			for name, test := range map[string]struct {
				releases []ask
				want     int
			}{
				"at once":          {[]ask{before, after}, 20},
				"by way of both":   {[]ask{before, both}, 10},
				"both, then after": {[]ask{both, after}, 10},
			} {
				got := 0
				for range 15 {
					for _, release := range test.releases {
						got += admitted(t, release, c.name+name, 1, 1)
					}
				}
				if got != test.want {
					t.Errorf("%s: %d admitted, want %d", name, got, test.want)
				}
			}
		})
	}
}

// TestWithoutRedis: what was an error is a decision.
func TestWithoutRedis(t *testing.T) {
	srv := redistest.Start(t)
	rdb := redistest.Admin(t, srv) // fails fast
	var old []ask
	for _, c := range changes {
		old = append(old, c.before(t, rdb, 5, time.Hour, 5))
	}
	store, err := ululeredis.NewStore(rdb)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Kill(); err != nil {
		t.Fatal(err)
	}
	for i, a := range old {
		if ok, err := a("k", 1); ok || err == nil {
			t.Errorf("%s: %v, %v", changes[i].name, ok, err)
		}
	}
	if _, err := ululeredis.NewStore(rdb); err == nil {
		t.Error("ulule: NewStore succeeds without Redis")
	}
	mw := stdlib.NewMiddleware(ulule.New(store, ulule.Rate{Limit: 5, Period: time.Hour}))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("ulule: its middleware does not panic")
			}
		}()
		serve(mw.Handler(ok))
	}()
	th, err := goredisstore.NewCtx(rdb, "throttled:")
	if err != nil {
		t.Fatal(err)
	}
	lim, err := throttled.NewGCRARateLimiterCtx(th, throttled.RateQuota{MaxRate: throttled.PerHour(5), MaxBurst: 4})
	if err != nil {
		t.Fatal(err)
	}
	if got := serve((&throttled.HTTPRateLimiterCtx{RateLimiter: lim}).RateLimit(ok)).StatusCode; got != 500 {
		t.Errorf("throttled: %d", got)
	}

	ours, err := limiter.New(rdb, limiter.GCRA(limiter.PerHour(5), 5), limiter.WithExpectedProcesses(1))
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	count := 0
	for range 7 {
		res, err := ours.Allow(context.Background(), "k")
		if err != nil || res.Source != limiter.SourceLocal {
			t.Fatalf("Holdfast: %+v, %v", res, err)
		}
		if res.Allowed {
			count++
		}
	}
	if count != 5 {
		t.Errorf("Holdfast: %d admitted", count)
	}
}

var ok = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

func serve(h http.Handler) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	return w.Result()
}

// TestHeaders: of a limit of two per hour, the second request and the third.
func TestHeaders(t *testing.T) {
	ours := func(limit limiter.Limit) http.Handler {
		lim, err := limiter.NewLocal(limit)
		if err != nil {
			t.Fatal(err)
		}
		mw, err := middleware.New(lim, middleware.RemoteIP())
		if err != nil {
			t.Fatal(err)
		}
		return mw(ok)
	}
	store, err := memstore.NewCtx(10)
	if err != nil {
		t.Fatal(err)
	}
	th, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerHour(2), MaxBurst: 1})
	if err != nil {
		t.Fatal(err)
	}
	inMemory := memory.NewStoreWithOptions(ulule.StoreOptions{Prefix: "x"})
	const now = "a time"
	for _, test := range []struct {
		name            string
		handler         http.Handler
		last, lastReset string // X-RateLimit-Remaining and -Reset of the second request
		reset, retry    string // of the third
		body            string // its type
	}{
		{"throttled", (&throttled.HTTPRateLimiterCtx{RateLimiter: th}).RateLimit(ok), "0", "3600", "3600", "1800", "text/plain"},
		{"GCRA", ours(limiter.GCRA(limiter.PerHour(2), 2)), "0", "1800", "1800", "1800", "application/problem+json"},
		{"ulule", stdlib.NewMiddleware(ulule.New(inMemory, ulule.Rate{Limit: 2, Period: time.Hour})).Handler(ok), "0", now, now, "", "text/plain"},
	} {
		serve(test.handler)
		second, third := serve(test.handler), serve(test.handler)
		if second.StatusCode != 200 || third.StatusCode != 429 {
			t.Fatalf("%s: %d, %d", test.name, second.StatusCode, third.StatusCode)
		}
		for _, h := range []struct{ got, want string }{
			{second.Header.Get("X-RateLimit-Remaining"), test.last},
			{second.Header.Get("X-RateLimit-Reset"), test.lastReset},
			{third.Header.Get("X-RateLimit-Reset"), test.reset},
			{third.Header.Get("Retry-After"), test.retry},
		} {
			if h.want == now {
				at, err := strconv.ParseInt(h.got, 10, 64)
				if in := time.Until(time.Unix(at, 0)); err != nil || in < 59*time.Minute || in > time.Hour {
					t.Errorf("%s: %q is no time an hour from now", test.name, h.got)
				}
			} else if h.got != h.want {
				t.Errorf("%s: %q, want %q", test.name, h.got, h.want)
			}
		}
		if got := third.Header.Get("Content-Type"); !strings.HasPrefix(got, test.body) {
			t.Errorf("%s: body of %q", test.name, got)
		}
	}
}

// TestClientAddress: ulule/limiter believes the first address of X-Forwarded-For, which
// the client may have sent; Holdfast the last one that is not a trusted proxy's.
func TestClientAddress(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:1234"
	r.Header.Set("X-Forwarded-For", "192.0.2.1, 203.0.113.9")
	if got := ulule.GetIP(r, ulule.Options{TrustForwardHeader: true}).String(); got != "192.0.2.1" {
		t.Errorf("ulule: %s", got)
	}
	lim, err := limiter.NewLocal(limiter.GCRA(limiter.PerHour(2), 2))
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	mw, err := middleware.New(lim, middleware.XForwardedFor(netip.MustParsePrefix("10.0.0.0/8")),
		middleware.WithHook(func(_ context.Context, d middleware.Decision) { got = d.Key }))
	if err != nil {
		t.Fatal(err)
	}
	if mw(ok).ServeHTTP(httptest.NewRecorder(), r); got != "203.0.113.9" {
		t.Errorf("Holdfast: %s", got)
	}
}
