package redistest

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestStalls: tests that failed say for how long the process stood still, and those that passed say nothing.
func TestStalls(t *testing.T) {
	for _, failed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := watchStalls()
			time.Sleep(time.Second) // whose ticks are all on time
			synctest.Wait()
			if s.longest != 0 {
				t.Errorf("%v without a stall", s.longest)
			}
			at := time.Now()
			s.note(2*time.Second, at)
			s.note(time.Second, at.Add(time.Hour))
			var b strings.Builder
			s.report(&b, failed)
			want := ""
			if failed {
				want = "this process stood still for up to 2s, until " + at.Format("15:04:05.000") + "\n"
			}
			if b.String() != want {
				t.Errorf("failed %v: %q", failed, b.String())
			}
		})
	}
}

type failing struct{}

func (failing) Run() int { return 1 }

// TestWatchedKeepsTheCode: that stalls are noted changes nothing of what comes of the tests.
func TestWatchedKeepsTheCode(t *testing.T) {
	if code := (watched{failing{}}).Run(); code != 1 {
		t.Error(code)
	}
}
