package limiter_test

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis on every failed dial
	if addr := os.Getenv("HOLDFAST_TEST_SAMPLED"); addr != "" {
		if err := sampledProcess(addr, os.Getenv("HOLDFAST_TEST_RATE")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	redistest.VerifyNoLeaks(m)
}

// quiet keeps a test's log short.
func quiet() limiter.Option { return limiter.WithLogger(slog.New(slog.DiscardHandler)) }
