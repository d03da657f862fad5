package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestMain(m *testing.M) { redistest.VerifyNoLeaks(m) }

func short() config {
	return config{max: 2, programs: 3, exports: 8, each: 50 * time.Millisecond, ttl: 400 * time.Millisecond}
}

func slots(t *testing.T) {
	t.Helper()
	t.Setenv("REDIS_URL", "")
	var out bytes.Buffer
	if err := run(t.Context(), short(), &out); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	for _, want := range []string{"24 exports", "All 2 slots are in use", "never more than 2"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
}

func TestSlotsEmbedded(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("HOLDFAST_REDIS_SERVER", "")
	slots(t)
}

func TestSlotsRealServer(t *testing.T) {
	redistest.Require(t)
	slots(t)
}

func TestInterrupted(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	if err := run(ctx, short(), &bytes.Buffer{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("interrupted: %v", err)
	}
}

func TestBadFlags(t *testing.T) {
	for _, spoil := range []func(*config){
		func(c *config) { c.max = 0 },
		func(c *config) { c.programs = 0 },
		func(c *config) { c.exports = -1 },
		func(c *config) { c.each = 0 },
		func(c *config) { c.ttl = time.Nanosecond },
	} {
		c := short()
		spoil(&c)
		if err := run(t.Context(), c, &bytes.Buffer{}); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}
