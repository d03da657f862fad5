package analytics_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/analytics"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

func TestMain(m *testing.M) {
	logging.Disable()
	redistest.VerifyNoLeaks(m) // by goleak
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newTop(t testing.TB, capacity int, opts ...analytics.Option) *analytics.Top {
	t.Helper()
	top, err := analytics.New(capacity, opts...)
	must(t, err)
	return top
}

func newLocal(t testing.TB, limit limiter.Limit, opts ...limiter.LocalOption) *limiter.Limiter {
	t.Helper()
	lim, err := limiter.NewLocal(limit, opts...)
	must(t, err)
	t.Cleanup(func() { must(t, lim.Close()) })
	return lim
}

// patient outlives any hiccup of a busy machine, so that Redis decides always.
var (
	patient = limiter.WithBudget(10 * time.Second)
	alone   = limiter.WithShare(1)
	quiet   = limiter.WithLogger(slog.New(slog.DiscardHandler))
)

// byKey finds a key in a report.
func byKey(r analytics.Report, key string) (analytics.Key, bool) {
	for _, k := range r.Keys {
		if k.Key == key {
			return k, true
		}
	}
	return analytics.Key{}, false
}
