package main

import (
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-chi/httprate"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
)

// contender is a middleware that limits by the address of the client.
type contender struct {
	name   string
	module string // whose version the tables show
	// wrap lets n requests of a client through in an hour, all of them at once.
	wrap func(next http.Handler, n int) (http.Handler, error)
}

// contenders are those that are compared. The first is the handler itself. All keep
// their state in the process, and are as their own documentation shows them.
var contenders = []contender{
	{"bare handler", "", func(next http.Handler, _ int) (http.Handler, error) { return next, nil }},
	{"Holdfast, GCRA", "", func(next http.Handler, n int) (http.Handler, error) {
		return holdfast(next, limiter.GCRA(limiter.PerHour(n), n))
	}},
	{"Holdfast, token bucket", "", func(next http.Handler, n int) (http.Handler, error) {
		return holdfast(next, limiter.TokenBucket(limiter.PerHour(n), n))
	}},
	{"Holdfast, GCRA, `X-RateLimit-*` only", "", func(next http.Handler, n int) (http.Handler, error) {
		return holdfast(next, limiter.GCRA(limiter.PerHour(n), n), middleware.WithHeaders(middleware.XRateLimit|middleware.RetryAfter))
	}},
	{"Holdfast, GCRA, no headers", "", func(next http.Handler, n int) (http.Handler, error) {
		return holdfast(next, limiter.GCRA(limiter.PerHour(n), n), middleware.WithHeaders(0))
	}},
	{"go-chi/httprate", "github.com/go-chi/httprate", func(next http.Handler, n int) (http.Handler, error) {
		return httprate.LimitBy(n, time.Hour, byIP)(next), nil
	}},
	{"ulule/limiter", "github.com/ulule/limiter/v3", func(next http.Handler, n int) (http.Handler, error) {
		lim := ulule.New(memory.NewStore(), ulule.Rate{Period: time.Hour, Limit: int64(n)})
		return stdlib.NewMiddleware(lim).Handler(next), nil
	}},
	{"throttled", "github.com/throttled/throttled/v2", func(next http.Handler, n int) (http.Handler, error) {
		store, err := memstore.NewCtx(65536)
		if err != nil {
			return nil, err
		}
		lim, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerHour(n), MaxBurst: n - 1})
		if err != nil {
			return nil, err
		}
		mw := throttled.HTTPRateLimiterCtx{RateLimiter: lim, VaryBy: &throttled.VaryBy{RemoteAddr: true}}
		return mw.RateLimit(next), nil
	}},
}

func holdfast(next http.Handler, limit limiter.Limit, opts ...middleware.Option) (http.Handler, error) {
	lim, err := limiter.NewLocal(limit)
	if err != nil {
		return nil, err
	}
	mw, err := middleware.New(lim, middleware.RemoteIP(), opts...)
	if err != nil {
		return nil, err
	}
	return mw(next), nil
}

// byIP is what httprate's LimitByIP, which is deprecated, takes as the key.
func byIP(r *http.Request) (string, error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return httprate.CanonicalizeIP(host), nil
}

// title is the name with the version of the module that was measured, if there is one.
func title(name, module string) string {
	if info, ok := debug.ReadBuildInfo(); ok && module != "" {
		for _, dep := range info.Deps {
			if dep.Path == module {
				return name + " " + dep.Version
			}
		}
	}
	return name
}
