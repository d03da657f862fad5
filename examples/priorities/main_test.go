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
	return config{rate: 200, checkouts: 15, reserve: 0.2, length: time.Second}
}

func priorities(t *testing.T) {
	t.Helper()
	t.Setenv("REDIS_URL", "")
	var out bytes.Buffer
	if err := run(t.Context(), short(), &out); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	if strings.Count(out.String(), "checkouts: 0 of") < 2 || strings.Contains(out.String(), "reports: 0 of") {
		t.Error("with a reserve no checkout is denied, and most reports are")
	}
}

func TestPrioritiesEmbedded(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("HOLDFAST_REDIS_SERVER", "")
	priorities(t)
}

func TestPrioritiesRealServer(t *testing.T) {
	redistest.Require(t)
	priorities(t)
}

func TestBadFlags(t *testing.T) {
	for _, spoil := range []func(*config){
		func(c *config) { c.rate = 0 },
		func(c *config) { c.checkouts = 0 },
		func(c *config) { c.reserve = 1 },
		func(c *config) { c.length = 0 },
	} {
		c := short()
		spoil(&c)
		if err := run(t.Context(), c, &bytes.Buffer{}); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}
