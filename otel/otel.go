package holdfastotel

import (
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
)

const (
	pkg   = "holdfastotel" // as errors name it
	scope = "github.com/holdfast-go/holdfast/otel"
)

// Option tunes an Instrumentation.
type Option func(*config)

type config struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider
}

// WithMeterProvider sets where metrics go, by default the global provider.
func WithMeterProvider(p metric.MeterProvider) Option { return func(c *config) { c.meters = p } }

// WithTracerProvider sets where traces go, by default the global provider.
func WithTracerProvider(p trace.TracerProvider) Option { return func(c *config) { c.tracers = p } }

// Instrumentation has the instruments. It is safe for concurrent use; one is enough
// for a program. Make it with New; the zero value is not usable.
type Instrumentation struct {
	limiters *limiters
	clients  *clients
	requests *tallies
}

// New makes the instruments. The error is that of the provider, or of an option that is
// nil; the latter matches limiter.ErrInvalidConfig.
func New(opts ...Option) (*Instrumentation, error) {
	c := config{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider()}
	if err := configerr.Apply(&c, opts); err != nil {
		return nil, configerr.In(pkg, err)
	}
	if c.meters == nil || c.tracers == nil {
		return nil, configerr.In(pkg, configerr.New("provider", "nil", "must not be nil; the global one is the default"))
	}
	m := maker{meter: c.meters.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))}
	in := &Instrumentation{
		limiters: newLimiters(&m, c.tracers.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))),
		clients:  newClients(&m),
		requests: m.tallies("holdfast.server.requests", "{request}", "Requests that a middleware decided on."),
	}
	if m.err != nil {
		return nil, fmt.Errorf("holdfastotel: %w", m.err)
	}
	return in, nil
}

// Healthy has a state that can be observed: a *limiter.Limiter, for example.
type Healthy interface{ Health() limiter.Health }

// Limiter reports the decisions of a limiter, its calls to Redis and the changes of its
// breakers, under the name of a policy, which should be one of a few. It is an option of
// every constructor of a limiter; one of NewLocal has decisions only. Give it to the limiter of
// each part of a Multi. Observe reports a limiter's state.
func (in *Instrumentation) Limiter(name string) limiter.HooksOption {
	l := in.limiters.limited(policy(name))
	return limiter.WithHooks(limiter.Hooks{Decision: l.decision, Call: l.call, BreakerChange: l.changed})
}

// Client reports on a client's transport under a name, which should be one of a few.
func (in *Instrumentation) Client(name string) httpclient.Option {
	c := in.clients.client(policy(name))
	return httpclient.WithHooks(httpclient.Hooks{Attempt: c.attempt, Wait: c.wait, Cooldown: c.cooldown, GiveUp: c.giveUp, ThrottleChange: c.changed})
}

// Middleware reports on a middleware under the name of a policy, which should be one of a
// few.
func (in *Instrumentation) Middleware(name string) middleware.Option {
	s := &server{requests: in.requests, policy: policy(name)}
	return middleware.WithHook(s.decided)
}

// Observe reports the state of a limiter under the name of a policy, whenever metrics are
// collected, until stop is called. Call stop before or after the limiter's Close; a second
// time it does nothing. The error is that of the meter.
func (in *Instrumentation) Observe(name string, lim Healthy) (stop func(), err error) {
	return in.limiters.observe(policy(name), lim.Health)
}
