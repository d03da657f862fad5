package main

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/demotest"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestMain(m *testing.M) { redistest.VerifyNoLeaks(m) }

func short() config {
	return config{processes: 3, rate: 1000, interval: 200 * time.Millisecond, intervals: 12}
}

func TestSampled(t *testing.T) {
	demotest.Output(t, run, short(), func(t *testing.T, out string) {
		if n := strings.Count(out, "admitted"); n != 12 {
			t.Errorf("%d intervals", n)
		}
	})
}

func TestBadFlags(t *testing.T) {
	demotest.BadFlags(t, run, short(),
		func(c *config) { c.processes = 0 },
		func(c *config) { c.rate = 0 },
		func(c *config) { c.intervals = 1 },
		func(c *config) { c.interval = time.Nanosecond },
	)
}
