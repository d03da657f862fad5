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
	return config{jobs: 600, workers: 3, rate: 100, burst: 10, kill: time.Second, back: 4 * time.Second}
}

// work runs the program and checks that every job was done once, by workers
// that had Redis for a part of the time only.
func work(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	r, err := run(t.Context(), short(), &out)
	if err != nil {
		t.Fatal(err)
	}
	good := r.print(&out)
	t.Log(out.String())
	if !good || r.done != r.jobs || r.twice != 0 || r.redis == 0 || r.local == 0 {
		t.Errorf("%+v", r)
	}
	return out.String()
}

func TestWorkerEmbedded(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	t.Setenv("PATH", "")
	t.Setenv("HOLDFAST_REDIS_SERVER", "")
	if out := work(t); !strings.Contains(out, "embedded") {
		t.Error("the embedded server was not used")
	}
}

func TestWorkerRealServer(t *testing.T) {
	redistest.Require(t)
	t.Setenv("REDIS_URL", "")
	if out := work(t); strings.Contains(out, "embedded") {
		t.Error("the embedded server was used")
	}
}

func TestVerdictIsComputed(t *testing.T) {
	for name, c := range map[string]struct {
		r    report
		good bool
	}{
		"all once": {report{jobs: 5, done: 5}, true},
		"one lost": {report{jobs: 5, done: 4}, false},
		"twice":    {report{jobs: 5, done: 5, twice: 1}, false},
	} {
		if got := c.r.print(&bytes.Buffer{}); got != c.good {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for _, spoil := range []func(*config){
		func(c *config) { c.jobs = 0 },
		func(c *config) { c.rate = -1 },
		func(c *config) { c.back = c.kill },
	} {
		c := short()
		spoil(&c)
		if err := c.validate(); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}
