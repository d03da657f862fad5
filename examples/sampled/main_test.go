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
	return config{processes: 3, rate: 1000, interval: 200 * time.Millisecond, intervals: 12}
}

func sampled(t *testing.T) {
	t.Helper()
	t.Setenv("REDIS_URL", "")
	var out bytes.Buffer
	if err := run(t.Context(), short(), &out); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	if n := strings.Count(out.String(), "admitted"); n != 12 {
		t.Errorf("%d intervals", n)
	}
}

func TestSampledEmbedded(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("HOLDFAST_REDIS_SERVER", "")
	sampled(t)
}

func TestSampledRealServer(t *testing.T) {
	redistest.Require(t)
	sampled(t)
}

func TestBadFlags(t *testing.T) {
	for _, spoil := range []func(*config){
		func(c *config) { c.processes = 0 },
		func(c *config) { c.rate = 0 },
		func(c *config) { c.intervals = 1 },
		func(c *config) { c.interval = time.Nanosecond },
	} {
		c := short()
		spoil(&c)
		if err := run(t.Context(), c, &bytes.Buffer{}); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}
