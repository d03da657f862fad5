package semaphore_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis on every failed dial
	redistest.VerifyNoLeaks(m)
}

var (
	// quiet keeps a test's log short.
	quiet = limiter.WithLogger(slog.New(slog.DiscardHandler))
	// fast lets breakers close soon.
	fast = limiter.WithBreaker(breaker.Settings{OpenMin: 50 * time.Millisecond, OpenMax: 200 * time.Millisecond})
)

// patient outlives any hiccup of a busy machine, so that Redis decides always,
// and sends no heartbeat.
func patient() semaphore.Option {
	opts := []semaphore.Option{limiter.WithBudget(10 * time.Second), limiter.WithShare(1)}
	return options.Set(func(c *options.Config[limiter.DecisionInfo]) { _ = options.Apply(c, opts) }, nil)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
