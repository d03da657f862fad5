package holdfastotel

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/limiter"
)

// limiters are the instruments of limiters.
type limiters struct {
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
	overloaded  metric.Int64ObservableCounter
}

func newLimiters(m *maker, tracer trace.Tracer) *limiters {
	ls := &limiters{
		meter: m.meter, tracer: tracer,
		decisions:   m.tallies("holdfast.limiter.decisions", "{decision}", "Decisions of limiters."),
		durations:   m.histogram("holdfast.limiter.decision.duration", "Time of decisions that took 10 µs or more.", decisionBounds),
		calls:       m.histogram("holdfast.redis.call.duration", "Time that calls to Redis took; one may decide for many.", decisionBounds),
		transitions: m.counter("holdfast.breaker.transitions", "{transition}", "Changes of the circuit breakers of Redis servers."),
		states:      m.gauge("holdfast.breaker.state", "{breaker}", "1 for the state that the breaker of a Redis server is in."),
		processes:   m.gauge("holdfast.limiter.processes", "{process}", "Processes that share the limit, as this one knows."),
		keys:        m.gauge("holdfast.fallback.keys", "{key}", "Keys that this process remembers."),
		owed:        m.gauge("holdfast.fallback.owed", "{key}", "Keys whose use in an outage has not been charged in Redis yet."),
	}
	var err error
	ls.share, err = m.meter.Float64ObservableGauge("holdfast.limiter.share", metric.WithUnit("1"),
		metric.WithDescription("Part of the limit that this process may use while Redis cannot decide."))
	m.note(err)
	ls.reconciled, err = m.meter.Int64ObservableCounter("holdfast.fallback.reconciled", metric.WithUnit("{key}"),
		metric.WithDescription("Keys whose use in an outage was charged in Redis afterwards."))
	m.note(err)
	ls.overloaded, err = m.meter.Int64ObservableCounter("holdfast.redis.overloaded", metric.WithUnit("{call}"),
		metric.WithDescription("Calls that were decided locally because Redis answers fewer within the budget."))
	m.note(err)
	return ls
}

func (ls *limiters) limited(policy attribute.KeyValue) *limited {
	l := &limited{limiters: ls, policy: policy}
	for o := range l.decided {
		for s := range l.decided[o] {
			l.decided[o][s] = ls.series(l.policy, outcomeKey.String(outcomes[o]), sourceKey.String(limiter.Source(s).String()))
		}
	}
	for i := range len(errorTypes) + 1 {
		l.failed = append(l.failed, ls.series(l.policy, outcomeKey.String("error"), errorName(i)))
	}
	return l
}

// observe reports what health returns whenever metrics are collected, until stop is called.
func (ls *limiters) observe(label attribute.KeyValue, health func() limiter.Health) (stop func(), err error) {
	own := with(label)
	reg, err := ls.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		h := health()
		for _, srv := range h.Servers {
			for _, s := range []breaker.State{breaker.Closed, breaker.Open, breaker.HalfOpen} {
				is := int64(0)
				if s == srv.State {
					is = 1
				}
				o.ObserveInt64(ls.states, is, metric.WithAttributes(label, serverKey.String(srv.Name), stateKey.String(s.String())))
			}
			o.ObserveInt64(ls.overloaded, int64(srv.Overloaded), with(label, serverKey.String(srv.Name)))
		}
		o.ObserveFloat64(ls.share, h.Share, with(label, originKey.String(h.ShareOrigin)))
		o.ObserveInt64(ls.processes, int64(h.Processes), own)
		o.ObserveInt64(ls.keys, int64(h.LocalKeys), own)
		o.ObserveInt64(ls.owed, int64(h.Owed), own)
		o.ObserveInt64(ls.reconciled, int64(h.Reconciled), own)
		return nil
	}, ls.states, ls.share, ls.processes, ls.keys, ls.owed, ls.reconciled, ls.overloaded)
	if err != nil {
		return nil, fmt.Errorf("holdfastotel: %w", err)
	}
	return sync.OnceFunc(func() {
		if err := reg.Unregister(); err != nil {
			otel.Handle(err)
		}
	}), nil
}

const (
	allowed = iota
	denied
	notCharged
	numOutcomes
)

var outcomes = [numOutcomes]string{"allowed", "denied", "not_charged"}

const numSources = int(limiter.SourceSampled) + 1

// limited is one limiter.
type limited struct {
	*limiters
	policy  attribute.KeyValue
	decided [numOutcomes][numSources]series
	failed  []series // by kind of error
	called  sync.Map // callLabels → []metric.RecordOption
}

// series is where decisions of one outcome go.
type series struct {
	tally *tally
	timed []metric.RecordOption
}

func (ls *limiters) series(labels ...attribute.KeyValue) series {
	return series{ls.decisions.of(labels...), []metric.RecordOption{with(labels...)}}
}

// timedFrom is the least time of a decision that the histogram records: a decision without
// a call to Redis takes less, and recording it would take longer than deciding.
const timedFrom = 10 * time.Microsecond

func (l *limited) decision(ctx context.Context, d limiter.DecisionInfo) {
	outcome := denied
	switch {
	case d.NotCharged:
		outcome = notCharged
	case d.Result.Allowed:
		outcome = allowed
	}
	var to *series
	switch {
	case d.Err != nil:
		to = &l.failed[errorType(d.Err)]
	case int(d.Result.Source) < numSources:
		to = &l.decided[outcome][d.Result.Source]
	default:
		return // a newer limiter, with a source that has no name here
	}
	to.tally.n.Add(1)
	if d.Took >= timedFrom {
		l.durations.Record(ctx, d.Took.Seconds(), to.timed...)
	}
	if trace.SpanFromContext(ctx).IsRecording() {
		l.span(ctx, &d, outcome)
	}
}

// span is drawn afterwards: what it would be the parent of, calls to Redis, are those of
// many.
func (l *limited) span(ctx context.Context, d *limiter.DecisionInfo, outcome int) {
	end := time.Now()
	labels := []attribute.KeyValue{l.policy, costKey.Int(d.Cost)}
	if d.Err != nil {
		labels = append(labels, outcomeKey.String("error"), errorName(errorType(d.Err)))
	} else {
		labels = append(labels, outcomeKey.String(outcomes[outcome]), sourceKey.String(d.Result.Source.String()),
			remainingKey.Int(d.Result.Remaining), retryAfterKey.Float64(d.Result.RetryAfter.Seconds()))
	}
	_, span := l.tracer.Start(ctx, "holdfast.decide", trace.WithTimestamp(end.Add(-d.Took)), trace.WithAttributes(labels...))
	if d.Err != nil {
		// Its message may name the key.
		span.SetStatus(codes.Error, errorName(errorType(d.Err)).Value.AsString())
	}
	span.End(trace.WithTimestamp(end))
}

type callLabels struct {
	server string
	class  breaker.Class
}

func (l *limited) call(ctx context.Context, c limiter.CallInfo) {
	key := callLabels{c.Server, c.Class}
	opts, ok := l.called.Load(key)
	if !ok {
		labels := []attribute.KeyValue{l.policy, serverKey.String(c.Server)}
		if c.Class != breaker.ClassOK {
			labels = append(labels, semconv.ErrorTypeKey.String(c.Class.String()))
		}
		opts, _ = l.called.LoadOrStore(key, []metric.RecordOption{with(labels...)})
	}
	l.calls.Record(ctx, c.Took.Seconds(), opts.([]metric.RecordOption)...)
}

func (l *limited) changed(ctx context.Context, c breaker.Change) {
	labels := []attribute.KeyValue{l.policy, serverKey.String(c.Name), stateKey.String(c.To.String())}
	if c.To == breaker.Open {
		labels = append(labels, causeKey.String(c.Cause.String()))
	}
	l.transitions.Add(ctx, 1, metric.WithAttributes(labels...))
}
