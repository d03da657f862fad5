package main

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/examples/internal/demotest"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/sim"
)

func TestMain(m *testing.M) { redistest.VerifyNoLeaks(m) }

func short() config {
	return config{requests: 100, tokens: 20_000, estimate: 2000, programs: 2, length: 1500 * time.Millisecond}
}

func TestTokens(t *testing.T) {
	demotest.Output(t, run, short(), func(t *testing.T, out string) {
		if !strings.Contains(out, "settle at the real cost") {
			t.Error("there was no second run")
		}
	})
}

// TestSettlingLetsMoreThrough: with the same limit, more calls are made when what was
// estimated too high is given back.
func TestSettlingLetsMoreThrough(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := r.Client("a", redis.Options{})
		defer rdb.Close()
		cfg := short()
		kept, err := cfg.fleet(t.Context(), rdb.Options(), false)
		if err != nil {
			t.Fatal(err)
		}
		settled, err := cfg.fleet(t.Context(), rdb.Options(), true)
		if err != nil {
			t.Fatal(err)
		}
		if settled.calls < 2*kept.calls || settled.tokens > int64(20_000*4) {
			t.Errorf("%+v without, %+v with settling", kept, settled)
		}
	})
}

func TestBadFlags(t *testing.T) {
	demotest.BadFlags(t, run, short(),
		func(c *config) { c.requests = 0 },
		func(c *config) { c.tokens = 10 },
		func(c *config) { c.estimate = 1 },
		func(c *config) { c.programs = -1 },
		func(c *config) { c.length = 0 },
	)
}
