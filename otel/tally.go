package holdfastotel

import (
	"context"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// tally is a count of one series. What happens millions of times a second is counted
// here, for a few nanoseconds, and reported when metrics are collected.
type tally struct {
	n      atomic.Int64
	labels attribute.Set
}

// tallies are the series of one counter. Those of equal labels are one.
type tallies struct {
	series sync.Map // attribute.Distinct → *tally
}

func (ts *tallies) of(labels ...attribute.KeyValue) *tally {
	t := &tally{labels: attribute.NewSet(labels...)}
	v, _ := ts.series.LoadOrStore(t.labels.Equivalent(), t)
	return v.(*tally)
}

// collect reports the series that are above 0.
func (ts *tallies) collect(_ context.Context, o metric.Int64Observer) error {
	ts.series.Range(func(_, v any) bool {
		t := v.(*tally)
		if n := t.n.Load(); n > 0 {
			o.Observe(n, metric.WithAttributeSet(t.labels))
		}
		return true
	})
	return nil
}
