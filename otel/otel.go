package holdfastotel

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

const scope = "github.com/holdfast-go/holdfast/otel"

// Option tunes an Instrumentation.
type Option func(*config)

type config struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider
}

// WithMeterProvider sets who is told of metrics, by default the global provider.
func WithMeterProvider(p metric.MeterProvider) Option { return func(c *config) { c.meters = p } }

// WithTracerProvider sets who is told of traces, by default the global provider.
func WithTracerProvider(p trace.TracerProvider) Option { return func(c *config) { c.tracers = p } }

// Instrumentation has the instruments. It is safe for concurrent use; one is enough
// for a program. Make it with New; the zero value is not usable.
type Instrumentation struct {
	meter  metric.Meter
	tracer trace.Tracer

	decisions   *tallies
	durations   metric.Float64Histogram
	calls       metric.Float64Histogram
	transitions metric.Int64Counter
	states      metric.Int64ObservableGauge
	share       metric.Float64ObservableGauge
	processes   metric.Int64ObservableGauge
	keys        metric.Int64ObservableGauge
	owed        metric.Int64ObservableGauge
	reconciled  metric.Int64ObservableCounter

	attempts          metric.Float64Histogram
	waits             metric.Float64Histogram
	cooldowns         metric.Int64Counter
	giveUps           metric.Int64Counter
	clientTransitions metric.Int64Counter

	requests *tallies
}

// Decisions in Redis take the time of a round trip, and none longer than the budget.
var decisionBounds = []float64{1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1}

// Attempts and waits are those of networks and of quotas.
var clientBounds = []float64{5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}

// New makes the instruments. The error is that of the provider, or says that an option is
// nil.
func New(opts ...Option) (*Instrumentation, error) {
	c := config{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider()}
	for _, o := range opts {
		if o == nil {
			return nil, errors.New("holdfastotel: option is nil")
		}
		o(&c)
	}
	if c.meters == nil || c.tracers == nil {
		return nil, errors.New("holdfastotel: provider is nil: leave it out for the global one")
	}
	m := maker{meter: c.meters.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))}
	in := &Instrumentation{
		meter:  m.meter,
		tracer: c.tracers.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL)),

		decisions:   m.tallies("holdfast.limiter.decisions", "{decision}", "Decisions of limiters."),
		durations:   m.histogram("holdfast.limiter.decision.duration", "Time of decisions that took 10 µs or more.", decisionBounds),
		calls:       m.histogram("holdfast.redis.call.duration", "Time that calls to Redis took; one may decide for many.", decisionBounds),
		transitions: m.counter("holdfast.breaker.transitions", "{transition}", "Changes of the circuit breakers of Redis servers."),
		states:      m.gauge("holdfast.breaker.state", "{breaker}", "1 for the state that the breaker of a Redis server is in."),
		processes:   m.gauge("holdfast.limiter.processes", "{process}", "Processes that share the limit, as this one knows."),
		keys:        m.gauge("holdfast.fallback.keys", "{key}", "Keys that this process remembers."),
		owed:        m.gauge("holdfast.fallback.owed", "{key}", "Keys whose use in an outage Redis is yet to be told of."),

		attempts:          m.histogram("holdfast.client.attempt.duration", "Time until the response headers of an attempt, or its error.", clientBounds),
		waits:             m.histogram("holdfast.client.wait.duration", "Time that requests waited before an attempt.", clientBounds),
		cooldowns:         m.counter("holdfast.client.cooldowns", "{cooldown}", "Cooldowns that servers asked for."),
		giveUps:           m.counter("holdfast.client.give_ups", "{request}", "Requests that were not sent, or not again."),
		clientTransitions: m.counter("holdfast.client.throttle.transitions", "{transition}", "Begins and ends of the throttling of hosts that fail."),

		requests: m.tallies("holdfast.server.requests", "{request}", "Requests that a middleware decided on."),
	}
	var err error
	in.share, err = m.meter.Float64ObservableGauge("holdfast.limiter.share", metric.WithUnit("1"),
		metric.WithDescription("Part of the limit that this process may use while Redis cannot decide."))
	m.note(err)
	in.reconciled, err = m.meter.Int64ObservableCounter("holdfast.fallback.reconciled", metric.WithUnit("{key}"),
		metric.WithDescription("Keys whose use in an outage was charged in Redis afterwards."))
	m.note(err)
	if m.err != nil {
		return nil, fmt.Errorf("holdfastotel: %w", m.err)
	}
	return in, nil
}

// maker makes instruments and keeps the first error.
type maker struct {
	meter metric.Meter
	err   error
}

func (m *maker) note(err error) {
	if m.err == nil {
		m.err = err
	}
}

func (m *maker) histogram(name, what string, bounds []float64) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(bounds...))
	m.note(err)
	return h
}

func (m *maker) counter(name, unit, what string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
	m.note(err)
	return c
}

func (m *maker) tallies(name, unit, what string) *tallies {
	ts := new(tallies)
	_, err := m.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(what), metric.WithInt64Callback(ts.collect))
	m.note(err)
	return ts
}

func (m *maker) gauge(name, unit, what string) metric.Int64ObservableGauge {
	g, err := m.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what))
	m.note(err)
	return g
}
