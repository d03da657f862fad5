package main

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/demotest"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestMain(m *testing.M) { redistest.VerifyNoLeaks(m) }

// short asks for no more than a busy machine can: reports are only denied beyond the limit.
func short() config {
	return config{rate: 100, checkouts: 7, reserve: 0.2, length: time.Second}
}

func TestPriorities(t *testing.T) {
	demotest.Output(t, run, short(), func(t *testing.T, out string) {
		// How many ask in the first run, without a reserve, depends on the machine.
		_, reserved, found := strings.Cut(out, "with a reserve")
		if !found || strings.Count(reserved, "checkouts: 0 of") != 2 || strings.Contains(reserved, "reports: 0 of") {
			t.Error("with a reserve no checkout is denied, and reports are")
		}
	})
}

func TestBadFlags(t *testing.T) {
	demotest.BadFlags(t, run, short(),
		func(c *config) { c.rate = 0 },
		func(c *config) { c.checkouts = 0 },
		func(c *config) { c.reserve = 1 },
		func(c *config) { c.length = 0 },
	)
}
