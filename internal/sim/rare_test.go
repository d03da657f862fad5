//go:build !race

package sim

import (
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// TestRareTrafficIsCounted: processes that ask less often than a heartbeat lives count each
// other, so that they admit one limit together when Redis is lost and they ask for more. One
// that becomes busy forgets the others only when they are gone.
func TestRareTrafficIsCounted(t *testing.T) {
	const processes = 6
	for _, every := range []time.Duration{10 * time.Second, 50 * time.Second, 150 * time.Second} {
		standing(t, 1, processes, limiter.GCRA(limiter.PerSecond(60), 60), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
			for range 10 {
				for _, lim := range l.limiters {
					if _, err := lim.Allow(t.Context(), "k"); err != nil {
						t.Fatal(err)
					}
					time.Sleep(every / processes)
				}
			}
			l.ask(t, 60, 10*time.Second, 0)
			for i, lim := range l.limiters {
				if n := lim.Health().Processes; n != processes {
					t.Errorf("every %v: process %d counts %d", every, i, n)
				}
			}
			l.srv.set(func(h *Health) { h.Down = true })
			l.srv.crash()
			if n := sum(perSecond(l.ask(t, 180, 10*time.Second, 0, 1, 2, 3, 4, 5))); n > 660 {
				t.Errorf("every %v: %d of 660 were admitted in an outage", every, n)
			}
		})
	}
}

// TestIdleProcessesAreCounted: processes that have asked for nothing for a while, and did not close,
// are counted, so that a fleet admits one limit when Redis is lost and all of them ask.
func TestIdleProcessesAreCounted(t *testing.T) {
	standing(t, 1, 6, limiter.GCRA(limiter.PerSecond(60), 60), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
		all := []int{0, 1, 2, 3, 4, 5}
		l.ask(t, 60, 30*time.Second, all...)
		l.ask(t, 60, 40*time.Second, 0)
		l.lose(true)
		if n := sum(perSecond(l.ask(t, 180, 10*time.Second, all...))); n > 660 {
			t.Errorf("%d of 660 were admitted in an outage", n)
		}
	})
}

// TestProcessesThatSpendFromLeasesAreCounted: processes that have asked Redis for nothing for two minutes,
// because they spend what they hold, are counted.
func TestProcessesThatSpendFromLeasesAreCounted(t *testing.T) {
	const processes = 3
	standing(t, 1, processes, limiter.GCRA(limiter.PerSecond(1), 3000), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
		l.ask(t, 2, 2*time.Minute, 1, 2)
		for i := range 10 { // leases of other keys
			if _, err := l.limiters[0].Allow(t.Context(), strconv.Itoa(i)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if n := l.limiters[0].Health().Processes; n != processes {
			t.Errorf("%d of %d processes are counted", n, processes)
		}
	}, limiter.WithLease(600, 5*time.Minute))
}
