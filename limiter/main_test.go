package limiter_test

import (
	"flag"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis on every failed dial
	// Most wait: for servers that start, clusters that form, breakers that close. What computes
	// takes turns: see takeTurn.
	_ = flag.Set("test.parallel", "24")
	redistest.VerifyNoLeaks(m)
}

// defaultBudget is that of WithBudget.
const defaultBudget = 50 * time.Millisecond

// quiet keeps a test's log short.
func quiet() limiter.RedisOption { return limiter.WithLogger(slog.New(slog.DiscardHandler)) }
