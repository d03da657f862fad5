package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/demotest"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestMain(m *testing.M) { redistest.VerifyNoLeaks(m) }

// short is over soon, but its permits and its budget are long enough for a busy machine.
func short() config {
	return config{max: 2, programs: 3, exports: 20, each: 120 * time.Millisecond, ttl: 5 * time.Second, budget: 10 * time.Second}
}

func TestPermits(t *testing.T) {
	demotest.Output(t, run, short(), func(t *testing.T, out string) {
		for _, want := range []string{"60 exports", "All 2 permits are in use", "never more than 2"} {
			if !strings.Contains(out, want) {
				t.Errorf("it does not say %q", want)
			}
		}
	})
}

func TestInterrupted(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	if err := run(ctx, short(), io.Discard); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("interrupted: %v", err)
	}
}

func TestBadFlags(t *testing.T) {
	demotest.BadFlags(t, run, short(),
		func(c *config) { c.max = 0 },
		func(c *config) { c.programs = 0 },
		func(c *config) { c.exports = -1 },
		func(c *config) { c.each = 0 },
		func(c *config) { c.ttl = time.Nanosecond },
	)
}
