package main

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/holdfast-go/holdfast/analytics"
	"github.com/holdfast-go/holdfast/bench/internal/turns"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
	holdfastotel "github.com/holdfast-go/holdfast/otel"
)

// observer is a way to observe each decision.
type observer struct {
	name   string
	module string // as that of a contender
	with   func() (observed, error)
}

// observed are the options by which a limiter and a middleware report their decisions.
type observed struct {
	limiter    []limiter.LocalOption
	middleware []middleware.Option
	stop       func() // nil for nothing
}

// observers are those that are compared. The first does not observe.
var observers = []observer{
	{"nothing", "", func() (observed, error) { return observed{}, nil }},
	{"`middleware.WithHook`, which does nothing", "", func() (observed, error) {
		hook := middleware.WithHook(func(context.Context, middleware.Decision) {})
		return observed{middleware: []middleware.Option{hook}}, nil
	}},
	{"`limiter.WithHooks`, which counts decisions", "", func() (observed, error) {
		var allowed, denied atomic.Int64
		hooks := limiter.Hooks{Decision: func(_ context.Context, d limiter.DecisionInfo) {
			if d.Result.Allowed {
				allowed.Add(1)
			} else {
				denied.Add(1)
			}
		}}
		return observed{limiter: []limiter.LocalOption{limiter.WithHooks(hooks)}}, nil
	}},
	{"`analytics.New(1000)`", "", func() (observed, error) { return ranking(clients) }},
	{"`analytics.New(100)`, for ten times as many keys", "", func() (observed, error) { return ranking(clients / 10) }},
	{"metrics of the limiter, by the SDK of OpenTelemetry", "go.opentelemetry.io/otel/sdk/metric", func() (observed, error) {
		in, stop, err := metrics()
		if err != nil {
			return observed{}, err
		}
		return observed{limiter: []limiter.LocalOption{in.Limiter("bench")}, stop: stop}, nil
	}},
	{"metrics of limiter and middleware, by the SDK of OpenTelemetry", "go.opentelemetry.io/otel/sdk/metric", func() (observed, error) {
		in, stop, err := metrics()
		if err != nil {
			return observed{}, err
		}
		return observed{[]limiter.LocalOption{in.Limiter("bench")}, []middleware.Option{in.Middleware("bench")}, stop}, nil
	}},
}

// ranking is of the keys that are denied most.
func ranking(capacity int) (observed, error) {
	top, err := analytics.New(capacity)
	if err != nil {
		return observed{}, err
	}
	return observed{limiter: []limiter.LocalOption{limiter.WithHooks(top.Hooks())}}, nil
}

// metrics are those of the SDK, which are read on demand, as by Prometheus.
func metrics() (in *holdfastotel.Instrumentation, stop func(), err error) {
	provider := metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))
	if in, err = holdfastotel.New(holdfastotel.WithMeterProvider(provider)); err != nil {
		return nil, nil, err
	}
	return in, func() { _ = provider.Shutdown(context.Background()) }, nil
}

// observe measures the middleware with each of the observers, by one caller and by one
// per core, with a limit of n requests an hour, which makes it answer with status.
func observe(rounds, n, status int) (one, all []turns.Figures, err error) {
	names, handlers := make([]string, len(observers)), make([]http.Handler, len(observers))
	for i, o := range observers {
		names[i] = o.name
		with, err := o.with()
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", o.name, err)
		}
		if with.stop != nil {
			defer with.stop()
		}
		lim, err := limiter.NewLocal(limiter.GCRA(limiter.PerHour(n), n), with.limiter...)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", o.name, err)
		}
		mw, err := middleware.New(lim, middleware.RemoteIP(), with.middleware...)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", o.name, err)
		}
		handlers[i] = mw(bare)
	}
	return inMemory(names, handlers, rounds, func(int) int { return status })
}
