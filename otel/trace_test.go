package holdfastotel_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
	holdfastotel "github.com/holdfast-go/holdfast/otel"
)

// traced returns an Instrumentation and what it draws.
func traced(t *testing.T, opts ...trace.TracerProviderOption) (*holdfastotel.Instrumentation, *trace.TracerProvider, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(append(opts, trace.WithSpanProcessor(spans))...)
	t.Cleanup(func() { must(t, provider.Shutdown(context.Background())) })
	in, err := holdfastotel.New(holdfastotel.WithTracerProvider(provider), holdfastotel.WithMeterProvider(noop.NewMeterProvider()))
	must(t, err)
	return in, provider, spans
}

func labels(kvs []attribute.KeyValue) map[string]any {
	out := map[string]any{}
	for _, kv := range kvs {
		out[string(kv.Key)] = kv.Value.AsInterface()
	}
	return out
}

func TestDecisionsAreSpans(t *testing.T) {
	in, provider, spans := traced(t)
	lim, err := limiter.NewLocal(limiter.FixedWindow(limiter.Per(3, 300*time.Hour)), in.Limiter("per-customer"))
	must(t, err)
	// Without a span to be the child of, none is drawn.
	_, err = lim.Allow(t.Context(), "alice")
	must(t, err)
	if n := len(spans.Ended()); n != 0 {
		t.Fatalf("%d spans with nobody to ask for them", n)
	}
	ctx, parent := provider.Tracer("test").Start(t.Context(), "work")
	for _, n := range []int{2, 2, 9} {
		_, _ = lim.AllowN(ctx, "alice", n)
	}
	parent.End()
	ended := spans.Ended()
	if len(ended) != 4 {
		t.Fatalf("%d spans, want 3 decisions and their parent", len(ended))
	}
	for i, want := range []map[string]any{
		{"holdfast.policy": "per-customer", "holdfast.cost": int64(2), "holdfast.outcome": "allowed", "holdfast.source": "local", "holdfast.remaining": int64(0), "holdfast.retry_after": 0.0},
		{"holdfast.policy": "per-customer", "holdfast.cost": int64(2), "holdfast.outcome": "denied", "holdfast.source": "local", "holdfast.remaining": int64(0)},
		{"holdfast.policy": "per-customer", "holdfast.cost": int64(9), "holdfast.outcome": "error", "error.type": "cost_exceeds_limit"},
	} {
		span := ended[i]
		got := labels(span.Attributes())
		for key, v := range want {
			if got[key] != v {
				t.Errorf("span %d: %s is %v, want %v", i, key, got[key], v)
			}
		}
		if span.Name() != "holdfast.decide" || span.Parent().SpanID() != parent.SpanContext().SpanID() || span.EndTime().Before(span.StartTime()) {
			t.Errorf("%s of %v, %v to %v", span.Name(), span.Parent(), span.StartTime(), span.EndTime())
		}
		if failed := span.Status().Code == codes.Error; failed != (got["holdfast.outcome"] == "error") {
			t.Errorf("span %d: %v", i, span.Status())
		}
		for _, v := range got {
			if s, ok := v.(string); ok && strings.Contains(s, "alice") {
				t.Errorf("a key in %v", got)
			}
		}
	}
	if wait, _ := labels(ended[1].Attributes())["holdfast.retry_after"].(float64); wait <= 0 {
		t.Error("a denial without a wait")
	}
}

// TestUnrecordedSpansAreLeftAlone: sampled out, nothing is drawn.
func TestUnrecordedSpansAreLeftAlone(t *testing.T) {
	in, provider, spans := traced(t, trace.WithSampler(trace.NeverSample()))
	lim, err := limiter.NewLocal(limiter.FixedWindow(limiter.PerHour(3)), in.Limiter("p"))
	must(t, err)
	ctx, parent := provider.Tracer("test").Start(t.Context(), "work")
	_, err = lim.Allow(ctx, "k")
	must(t, err)
	parent.End()
	if n := len(spans.Ended()); n != 0 {
		t.Errorf("%d spans", n)
	}
}

// TestClientsAndServersMarkTheirSpans: waits and attempts as events, decisions of a
// middleware as attributes.
func TestClientsAndServersMarkTheirSpans(t *testing.T) {
	in, provider, spans := traced(t)
	lim, err := limiter.NewLocal(limiter.FixedWindow(limiter.Per(1, 300*time.Hour)))
	must(t, err)
	limit, err := middleware.New(lim, middleware.Everyone(), in.Middleware("api"))
	must(t, err)
	handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	tracer := provider.Tracer("test")
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		ctx, span := tracer.Start(r.Context(), "server")
		defer span.End()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r.WithContext(ctx))
		resp := w.Result()
		resp.Header.Set("Retry-After-Ms", "3") // or the test would take 300 hours
		resp.Header.Del("RateLimit")
		resp.Header.Del("X-RateLimit-Remaining")
		return resp, nil
	})
	rt, err := httpclient.New(base, in.Client("payments"), httpclient.WithLogger(slog.New(slog.DiscardHandler)), httpclient.WithAttempts(2))
	must(t, err)
	ctx, parent := tracer.Start(t.Context(), "client")
	for range 2 {
		req, err := http.NewRequestWithContext(ctx, "GET", "http://api.test/", nil)
		must(t, err)
		resp, err := rt.RoundTrip(req)
		must(t, err)
		resp.Body.Close()
	}
	parent.End()
	var servers, events []string
	for _, span := range spans.Ended() {
		if l := labels(span.Attributes()); span.Name() == "server" {
			outcome, _ := l["holdfast.outcome"].(string)
			servers = append(servers, outcome)
			if l["holdfast.policy"] != "api" {
				t.Errorf("%v", l)
			}
			continue
		}
		for _, e := range span.Events() {
			l := labels(e.Attributes)
			events = append(events, strings.TrimPrefix(e.Name, "holdfast."))
			if l["holdfast.policy"] != "payments" {
				t.Errorf("%s: %v", e.Name, l)
			}
		}
	}
	if got := strings.Join(servers, " "); got != "served rejected rejected" {
		t.Errorf("servers: %s", got)
	}
	if got := strings.Join(events, " "); got != "attempt attempt wait attempt give_up" {
		t.Errorf("events: %s", got)
	}
}
