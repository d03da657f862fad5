package holdfastotel

import (
	"context"
	"net/http"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/middleware"
)

type server struct {
	requests *tallies
	policy   attribute.KeyValue
	known    sync.Map // requestLabels → *requestSeries
}

type requestLabels struct {
	outcome, deniedBy string
	status            int
}

type requestSeries struct {
	labels []attribute.KeyValue
	tally  *tally
}

func (s *server) decided(ctx context.Context, d middleware.Decision) {
	key := requestLabels{"served", d.Policy, d.Status}
	switch {
	case d.Shadow:
		key.outcome = "shadowed"
	case d.Err != nil && d.Status != http.StatusBadRequest && d.Status != http.StatusUnauthorized:
		key.outcome = "error"
	case d.Status != 0:
		key.outcome = "rejected"
	}
	v, ok := s.known.Load(key)
	if !ok {
		v, _ = s.known.LoadOrStore(key, s.series(key))
	}
	to := v.(*requestSeries)
	to.tally.n.Add(1)
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(to.labels...)
	}
}

func (s *server) series(key requestLabels) *requestSeries {
	labels := []attribute.KeyValue{s.policy, outcomeKey.String(key.outcome)}
	if key.deniedBy != "" {
		labels = append(labels, deniedByKey.String(key.deniedBy))
	}
	// The status of those served is not known yet.
	if key.status != 0 && key.outcome != "shadowed" {
		labels = append(labels, semconv.HTTPResponseStatusCode(key.status))
	}
	return &requestSeries{labels, s.requests.of(labels...)}
}
