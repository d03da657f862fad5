package sim

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// TestPeersAreCountedInAnOutage: a deploy during an outage changes the share, and neither a
// function that does not return nor one that fails does.
func TestPeersAreCountedInAnOutage(t *testing.T) {
	var answer, asked, running, most atomic.Int64
	var hangs, fails atomic.Bool
	answer.Store(3)
	peers := limiter.WithPeerCount(func(context.Context) (int, error) {
		asked.Add(1)
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		if hangs.Load() { // also beyond its context
			time.Sleep(30 * time.Second)
		}
		if fails.Load() {
			return 100, errors.New("half an answer")
		}
		return int(answer.Load()), nil
	})
	standing(t, 1, 1, limiter.GCRA(limiter.PerSecond(100), 10), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
		lim := l.limiters[0]
		after := func(d time.Duration, want int) {
			t.Helper()
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				if _, err := lim.Allow(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
			}
			if h := lim.Health(); h.Processes != want {
				t.Errorf("%d processes, want %d", h.Processes, want)
			}
		}
		after(3*time.Second, 3)
		l.srv.set(func(h *Health) { h.Down = true })
		l.srv.crash()
		answer.Store(6)
		after(5*time.Second, 6)
		fails.Store(true)
		after(5*time.Second, 6)
		fails.Store(false)
		hangs.Store(true)
		before := asked.Load()
		after(70*time.Second, 6)
		if n := asked.Load() - before; n < 2 || n > 4 || most.Load() != 1 {
			t.Errorf("asked %d times in 70 s, up to %d at once", n, most.Load())
		}
		hangs.Store(false)
		answer.Store(2)
		after(40*time.Second, 2) // and fewer, when that is sure
	}, peers)
}

// TestTheLargerCountIsUsed: Redis and the function of the user's may each know only a part of
// the processes.
func TestTheLargerCountIsUsed(t *testing.T) {
	for n, want := range map[int]int{1: 2, 5: 5} {
		peers := limiter.WithPeerCount(func(context.Context) (int, error) { return n, nil })
		standing(t, 1, 2, limiter.GCRA(limiter.PerSecond(100), 10), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
			for _, lim := range l.limiters {
				if h := lim.Health(); h.Processes != want || h.ShareOrigin != "learnt" {
					t.Errorf("2 in Redis and %d beside it: %+v", n, h)
				}
			}
		}, peers)
	}
}
