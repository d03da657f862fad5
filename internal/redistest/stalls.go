package redistest

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// stalls notes for how long at most this process stood still, and when: on a machine that does so, a test that gives an
// answer seconds may fail without a defect.
type stalls struct {
	ends chan struct{}
	done sync.WaitGroup

	longest time.Duration
	at      time.Time
}

// stallTick is how often it is noted.
const stallTick = 10 * time.Millisecond

func watchStalls() *stalls {
	s := &stalls{ends: make(chan struct{})}
	s.done.Go(func() {
		tick := time.NewTicker(stallTick)
		defer tick.Stop()
		last := time.Now()
		for {
			select {
			case <-tick.C:
			case <-s.ends:
				return
			}
			now := time.Now()
			s.note(now.Sub(last)-stallTick, now)
			last = now
		}
	})
	return s
}

func (s *stalls) note(stood time.Duration, now time.Time) {
	if stood > s.longest {
		s.longest, s.at = stood, now
	}
}

// report writes what was noted if the tests failed.
func (s *stalls) report(w io.Writer, failed bool) {
	close(s.ends)
	s.done.Wait()
	if failed && s.longest > 0 {
		fmt.Fprintf(w, "this process stood still for up to %v, until %s\n", s.longest.Round(time.Millisecond), s.at.Format("15:04:05.000"))
	}
}
