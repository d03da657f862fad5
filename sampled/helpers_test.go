package sampled_test

import (
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/breaker"
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

var (
	// quiet keeps a test's log short.
	quiet = limiter.WithLogger(slog.New(slog.DiscardHandler))
	// fast lets breakers close soon.
	fast = limiter.WithBreaker(breaker.Settings{OpenMin: 50 * time.Millisecond, OpenMax: 200 * time.Millisecond})
)

// slack is what a busy machine under the race detector may add.
const slack = 500 * time.Millisecond

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
