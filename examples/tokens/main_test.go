package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestMain(m *testing.M) { redistest.VerifyNoLeaks(m) }

func short() config {
	return config{requests: 100, tokens: 20_000, estimate: 2000, programs: 2, length: 1500 * time.Millisecond}
}

func tokens(t *testing.T) {
	t.Helper()
	t.Setenv("REDIS_URL", "")
	var out bytes.Buffer
	if err := run(t.Context(), short(), &out); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	if !strings.Contains(out.String(), "settle at the real cost") {
		t.Error("there was no second run")
	}
}

func TestTokensEmbedded(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("HOLDFAST_REDIS_SERVER", "")
	tokens(t)
}

func TestTokensRealServer(t *testing.T) {
	redistest.Require(t)
	tokens(t)
}

// TestSettlingLetsMoreThrough: with the same limit, more calls are made when what was
// estimated too high is given back.
func TestSettlingLetsMoreThrough(t *testing.T) {
	redistest.Require(t)
	srv := redistest.Start(t)
	cfg := short()
	kept, err := cfg.fleet(t.Context(), redistest.Client(t, srv).Options(), false)
	if err != nil {
		t.Fatal(err)
	}
	settled, err := cfg.fleet(t.Context(), redistest.Client(t, srv).Options(), true)
	if err != nil {
		t.Fatal(err)
	}
	if settled.calls < 2*kept.calls || settled.tokens > int64(20_000*4) {
		t.Errorf("%+v without, %+v with settling", kept, settled)
	}
}

func TestBadFlags(t *testing.T) {
	for _, spoil := range []func(*config){
		func(c *config) { c.requests = 0 },
		func(c *config) { c.tokens = 10 },
		func(c *config) { c.estimate = 1 },
		func(c *config) { c.programs = -1 },
		func(c *config) { c.length = 0 },
	} {
		c := short()
		spoil(&c)
		if err := run(t.Context(), c, &bytes.Buffer{}); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}
