package holdfastotel

import (
	"context"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/retry"
)

// clients are the instruments of transports.
type clients struct {
	attempts    metric.Float64Histogram
	waits       metric.Float64Histogram
	cooldowns   metric.Int64Counter
	giveUps     metric.Int64Counter
	transitions metric.Int64Counter
}

func newClients(m *maker) *clients {
	return &clients{
		attempts:    m.histogram("holdfast.client.attempt.duration", "Time until the response headers of an attempt, or its error.", clientBounds),
		waits:       m.histogram("holdfast.client.wait.duration", "Time that requests waited before an attempt.", clientBounds),
		cooldowns:   m.counter("holdfast.client.cooldowns", "{cooldown}", "Cooldowns that servers asked for."),
		giveUps:     m.counter("holdfast.client.give_ups", "{request}", "Requests that were not sent, or not again."),
		transitions: m.counter("holdfast.client.throttle.transitions", "{transition}", "Begins and ends of the throttling of hosts that fail."),
	}
}

func (cs *clients) client(policy attribute.KeyValue) *client {
	c := &client{clients: cs, policy: policy}
	for r := range c.waited {
		c.waited[r] = []metric.RecordOption{with(c.policy, reasonKey.String(retry.WaitReason(r).String()))}
	}
	return c
}

type client struct {
	*clients
	policy attribute.KeyValue
	waited [int(retry.WaitAdaptive) + 1][]metric.RecordOption
}

func (c *client) cooldown(ctx context.Context, _ httpclient.CooldownInfo) {
	c.cooldowns.Add(ctx, 1, metric.WithAttributes(c.policy))
}

func (c *client) attempt(ctx context.Context, a httpclient.AttemptInfo) {
	labels := []attribute.KeyValue{c.policy, method(a.Request)}
	if a.Status != 0 {
		labels = append(labels, semconv.HTTPResponseStatusCode(a.Status))
	}
	switch {
	case a.Err != nil:
		labels = append(labels, semconv.ErrorType(a.Err))
	case a.Status >= 400:
		labels = append(labels, semconv.ErrorTypeKey.String(strconv.Itoa(a.Status)))
	}
	c.attempts.Record(ctx, a.Took.Seconds(), metric.WithAttributes(labels...))
	event(ctx, "holdfast.attempt", append(labels, semconv.HTTPRequestResendCount(a.Number-1), durationKey.Float64(a.Took.Seconds()))...)
}

func (c *client) wait(ctx context.Context, w httpclient.WaitInfo) {
	if int(w.Why) < len(c.waited) {
		c.waits.Record(ctx, w.For.Seconds(), c.waited[w.Why]...)
	}
	event(ctx, "holdfast.wait", c.policy, reasonKey.String(w.Why.String()), waitKey.Float64(w.For.Seconds()), headerKey.String(w.Source))
}

func (c *client) giveUp(ctx context.Context, g httpclient.GiveUpInfo) {
	reason := reasonKey.String(word(g.Error.Reason.String()))
	c.giveUps.Add(ctx, 1, metric.WithAttributes(c.policy, reason))
	event(ctx, "holdfast.give_up", c.policy, reason, waitKey.Float64(g.Error.Wait.Seconds()))
}

func (c *client) changed(ctx context.Context, ch retry.ThrottleChange) {
	c.transitions.Add(ctx, 1, metric.WithAttributes(c.policy, throttlingKey.Bool(ch.Throttling)))
}

// event is put on the span of ctx, if that is recorded.
func event(ctx context.Context, name string, labels ...attribute.KeyValue) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent(name, trace.WithAttributes(labels...))
	}
}
