package holdfastotel_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast/limiter"
	holdfastotel "github.com/holdfast-go/holdfast/otel"
)

func ExampleNew() {
	reader := metric.NewManualReader()
	in, err := holdfastotel.New(holdfastotel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	if err != nil {
		panic(err)
	}
	lim, err := limiter.NewLocal(limiter.FixedWindow(limiter.PerHour(1)), in.Limiter("per-customer"))
	if err != nil {
		panic(err)
	}
	for range 3 {
		if _, err := lim.Allow(context.Background(), "customer:42"); err != nil {
			panic(err)
		}
	}
	var seen metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &seen); err != nil {
		panic(err)
	}
	for _, m := range seen.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok {
			for _, p := range sum.DataPoints {
				outcome, _ := p.Attributes.Value("holdfast.outcome")
				fmt.Println(m.Name, outcome.AsString(), p.Value)
			}
		}
	}
	// Unordered output:
	// holdfast.limiter.decisions allowed 1
	// holdfast.limiter.decisions denied 2
}

// What Prometheus scrapes.
func ExampleNew_prometheus() {
	reg := prometheus.NewRegistry()
	exp, err := exporter.New(exporter.WithRegisterer(reg))
	if err != nil {
		panic(err)
	}
	in, err := holdfastotel.New(holdfastotel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(exp))))
	if err != nil {
		panic(err)
	}
	lim, err := limiter.NewLocal(limiter.GCRA(limiter.PerSecond(100), 20), in.Limiter("api"))
	if err != nil {
		panic(err)
	}
	defer lim.Close()
	http.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
}
