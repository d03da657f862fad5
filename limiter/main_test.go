package limiter_test

import (
	"log/slog"
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

func TestMain(m *testing.M) { redistest.VerifyNoLeaks(m) }

// quiet keeps a test's log short.
func quiet() limiter.Option { return limiter.WithLogger(slog.New(slog.DiscardHandler)) }
