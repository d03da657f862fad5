package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/holdfast-go/holdfast/analytics"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
	holdfastotel "github.com/holdfast-go/holdfast/otel"
)

// plans are what customers pay for. A customer with a plan that is not here has the free one.
var plans = map[string]limiter.Limit{
	"free":       limiter.TokenBucket(limiter.PerMinute(60), 10),
	"pro":        limiter.TokenBucket(limiter.PerMinute(600), 50),
	"enterprise": limiter.TokenBucket(limiter.PerMinute(6000), 500),
}

type user struct {
	Name string `json:"name"`
	Plan string `json:"plan"`
}

// users by their credential.
var users = map[string]user{
	"free-key":       {"alice", "free"},
	"pro-key":        {"bob", "pro"},
	"enterprise-key": {"carol", "enterprise"},
	"legacy-key":     {"dave", "platinum"},
}

// perAddress is generous: many users may share an address. It is for those who try
// credentials.
var perAddress = limiter.GCRA(limiter.PerSecond(20), 100)

// app is the API and what is said about it.
type app struct {
	public, private http.Handler
	address, user   *limiter.Limiter
	meters          *metric.MeterProvider
}

func newApp(rdb redis.UniversalClient, prefix string, trusted []netip.Prefix) (_ *app, err error) {
	a := &app{}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	registry := prometheus.NewRegistry()
	exp, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return nil, err
	}
	a.meters = metric.NewMeterProvider(metric.WithReader(exp))
	in, err := holdfastotel.New(holdfastotel.WithMeterProvider(a.meters))
	if err != nil {
		return nil, err
	}
	addresses, err := analytics.New(100)
	if err != nil {
		return nil, err
	}
	customers, err := analytics.New(100)
	if err != nil {
		return nil, err
	}
	if a.address, err = limiter.New(rdb, perAddress, limiter.WithPrefix(prefix+":address"), in.Limiter("per-address"), limiter.WithHooks(addresses.Hooks())); err != nil {
		return nil, err
	}
	if a.user, err = limiter.New(rdb, plans["free"], limiter.WithPrefix(prefix+":user"), in.Limiter("per-user"), limiter.WithHooks(customers.Hooks())); err != nil {
		return nil, err
	}
	for name, lim := range map[string]*limiter.Limiter{"per-address": a.address, "per-user": a.user} {
		if _, err := in.Observe(name, lim); err != nil { // as long as the program runs
			return nil, err
		}
	}

	from := middleware.RemoteIP()
	if len(trusted) > 0 {
		from = middleware.XForwardedFor(trusted...)
	}
	healthy := middleware.WithSkip(func(r *http.Request) bool { return r.URL.Path == "/healthz" })
	limitAddress, err := middleware.New(a.address, from, middleware.WithPolicy("per-address"), healthy, in.Middleware("per-address"))
	if err != nil {
		return nil, err
	}
	limitUser, err := middleware.New(a.user, middleware.KeyFunc(userName), middleware.WithPolicy("per-user"), in.Middleware("per-user"),
		middleware.WithTier(func(r *http.Request) limiter.Limit { return plans[userOf(r).Plan] }),
		middleware.WithCost(cost))
	if err != nil {
		return nil, err
	}

	api := http.NewServeMux()
	api.HandleFunc("GET /v1/things", reply)
	api.HandleFunc("GET /v1/report", reply)
	all := http.NewServeMux()
	all.Handle("/v1/", authenticate(limitUser(api)))
	all.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	a.public = limitAddress(all)

	most, err := analytics.Handler(map[string]*analytics.Top{"per-address": addresses, "per-user": customers})
	if err != nil {
		return nil, err
	}
	private := http.NewServeMux()
	private.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	private.Handle("/debug/limits", most)
	a.private = private
	return a, nil
}

func (a *app) close() {
	for _, l := range []*limiter.Limiter{a.address, a.user} {
		if l != nil {
			_ = l.Close()
		}
	}
	if a.meters != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = a.meters.Shutdown(ctx)
	}
}

// cost is what a request is counted as: reports are more work.
func cost(r *http.Request) int {
	if r.URL.Path == "/v1/report" {
		return 5
	}
	return 1
}

type userKey struct{}

// authenticate lets those in who have a credential.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		credential, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		u, ok := users[credential]
		if !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "the credential is missing or not known", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, u)))
	})
}

func userOf(r *http.Request) user {
	u, _ := r.Context().Value(userKey{}).(user)
	return u
}

func userName(r *http.Request) (string, error) {
	if name := userOf(r).Name; name != "" {
		return name, nil
	}
	return "", errors.New("the request was not authenticated")
}

func reply(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(userOf(r))
}
