package sampled_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
