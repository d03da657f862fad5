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

// Limiter reports the decisions of a limiter, its calls to Redis and the changes of its
// breakers, under the name of a policy, which should be one of a few. It is an option of
// every constructor of a limiter; a Local has decisions only. Give it to the limiter of
// each part of a Multi. Observe reports a limiter's state.
func (in *Instrumentation) Limiter(name string) limiter.HooksOption {
	l := &limited{Instrumentation: in, policy: policy(name)}
	for o := range l.decided {
		for s := range l.decided[o] {
			l.decided[o][s] = in.series(l.policy, outcomeKey.String(outcomes[o]), sourceKey.String(limiter.Source(s).String()))
		}
	}
	for i := range len(errorTypes) + 1 {
		l.failed = append(l.failed, in.series(l.policy, outcomeKey.String("error"), errorName(i)))
	}
	return limiter.WithHooks(limiter.Hooks{Decision: l.decision, Call: l.call, BreakerChange: l.changed})
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
	*Instrumentation
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

func (in *Instrumentation) series(labels ...attribute.KeyValue) series {
	return series{in.decisions.of(labels...), []metric.RecordOption{with(labels...)}}
}

// timedFrom is how long a decision takes at least that is worth a histogram's while:
// one for which nobody was asked takes less, and would take several times as long.
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

func (l *limited) call(_ context.Context, c limiter.CallInfo) {
	key := callLabels{c.Server, c.Class}
	opts, ok := l.called.Load(key)
	if !ok {
		labels := []attribute.KeyValue{l.policy, serverKey.String(c.Server)}
		if c.Class != breaker.ClassOK {
			labels = append(labels, semconv.ErrorTypeKey.String(c.Class.String()))
		}
		opts, _ = l.called.LoadOrStore(key, []metric.RecordOption{with(labels...)})
	}
	l.calls.Record(context.Background(), c.Took.Seconds(), opts.([]metric.RecordOption)...)
}

func (l *limited) changed(_ context.Context, c breaker.Change) {
	l.transitions.Add(context.Background(), 1, metric.WithAttributes(append(transition(c), l.policy, serverKey.String(c.Name))...))
}

func transition(c breaker.Change) []attribute.KeyValue {
	labels := []attribute.KeyValue{stateKey.String(c.To.String())}
	if c.To == breaker.Open {
		labels = append(labels, causeKey.String(c.Cause.String()))
	}
	return labels
}

// Healthy has a state that can be observed: a *limiter.Limiter, for example.
type Healthy interface{ Health() limiter.Health }

// Observe reports the state of a limiter under the name of a policy, whenever metrics are
// collected, until stop is called. Call stop before or after the limiter's Close; a second
// time it does nothing. The error is that of the meter.
func (in *Instrumentation) Observe(name string, lim Healthy) (stop func(), err error) {
	label := policy(name)
	own := with(label)
	reg, err := in.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		h := lim.Health()
		for _, srv := range h.Servers {
			for _, s := range []breaker.State{breaker.Closed, breaker.Open, breaker.HalfOpen} {
				is := int64(0)
				if s == srv.State {
					is = 1
				}
				o.ObserveInt64(in.states, is, metric.WithAttributes(label, serverKey.String(srv.Name), stateKey.String(s.String())))
			}
		}
		o.ObserveFloat64(in.share, h.Share, own)
		o.ObserveInt64(in.processes, int64(h.Processes), own)
		o.ObserveInt64(in.keys, int64(h.LocalKeys), own)
		o.ObserveInt64(in.owed, int64(h.Owed), own)
		o.ObserveInt64(in.reconciled, int64(h.Reconciled), own)
		return nil
	}, in.states, in.share, in.processes, in.keys, in.owed, in.reconciled)
	if err != nil {
		return nil, fmt.Errorf("holdfastotel: %w", err)
	}
	return sync.OnceFunc(func() {
		if err := reg.Unregister(); err != nil {
			otel.Handle(err)
		}
	}), nil
}
