package holdfastotel

import "go.opentelemetry.io/otel/metric"

// Decisions in Redis take the time of a round trip, and none longer than the budget.
var decisionBounds = []float64{1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1}

// Attempts and waits are those of networks and of quotas.
var clientBounds = []float64{5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}

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
