//go:build !race

package holdfastotel_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/holdfast-go/holdfast/limiter"
	holdfastotel "github.com/holdfast-go/holdfast/otel"
)

// local returns what one decision is, observed or not.
func local(t testing.TB, opts ...limiter.LocalOption) func() {
	t.Helper()
	lim, err := limiter.NewLocal(limiter.FixedWindow(limiter.Per(1<<30, 300*time.Hour)), opts...)
	must(t, err)
	ctx := context.Background()
	return func() {
		if res, err := lim.AllowN(ctx, "customer:42", 1); err != nil || !res.Allowed {
			t.Fatalf("%+v, %v", res, err)
		}
	}
}

func measured(t testing.TB) *holdfastotel.Instrumentation {
	t.Helper()
	provider := metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	in, err := holdfastotel.New(holdfastotel.WithMeterProvider(provider))
	must(t, err)
	return in
}

// TestAllocations: a decision that is measured needs no memory for it.
func TestAllocations(t *testing.T) {
	if n := testing.AllocsPerRun(1000, local(t, measured(t).Limiter("p"))); n != 0 {
		t.Errorf("%v allocations a decision", n)
	}
}

func BenchmarkDecision(b *testing.B) {
	for name, decide := range map[string]func(){
		"bare":     local(b),
		"hook":     local(b, limiter.WithHooks(limiter.Hooks{Decision: func(context.Context, limiter.DecisionInfo) {}})),
		"measured": local(b, measured(b).Limiter("p")),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				decide()
			}
		})
	}
}
