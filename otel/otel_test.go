package holdfastotel_test

import (
	"errors"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/holdfast-go/holdfast/limiter"
	holdfastotel "github.com/holdfast-go/holdfast/otel"
)

// failing is a provider that cannot make histograms.
type failing struct{ noop.MeterProvider }

func (failing) Meter(string, ...metric.MeterOption) metric.Meter { return failingMeter{} }

type failingMeter struct{ noop.Meter }

var errMeter = errors.New("no histograms here")

func (failingMeter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return nil, errMeter
}

func TestNew(t *testing.T) {
	if _, err := holdfastotel.New(holdfastotel.WithMeterProvider(failing{})); !errors.Is(err, errMeter) {
		t.Errorf("a provider that fails: %v", err)
	}
	for _, o := range []holdfastotel.Option{holdfastotel.WithMeterProvider(nil), holdfastotel.WithTracerProvider(nil), nil} {
		if _, err := holdfastotel.New(o); err == nil || !strings.Contains(err.Error(), " is nil") {
			t.Errorf("without a provider: %v", err)
		}
	}
	if _, err := holdfastotel.New(nil); err == nil || err.Error() != "holdfastotel: option is nil: must not be nil" {
		t.Errorf("an option that is nil: %v", err)
	}
	// Without options the global providers are used, which by default export nothing.
	in, err := holdfastotel.New()
	must(t, err)
	lim, err := limiter.NewLocal(limiter.GCRA(limiter.PerSecond(1), 1), in.Limiter("p"))
	must(t, err)
	if res, err := lim.Allow(t.Context(), "k"); err != nil || !res.Allowed {
		t.Errorf("%+v, %v", res, err)
	}
}
