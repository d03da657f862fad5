package wait_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/wait"
)

// window admits so many units in each second, and takes a while to answer.
type window struct {
	units int
	mu    sync.Mutex
	start time.Time
	left  int
	asked int // also by those that are denied
}

const far = 10 * time.Millisecond // there and back

type asks struct {
	of  *window
	n   int
	own bool // nothing is said of others
}

func (w asks) Ask() (wait.Answer, error) {
	time.Sleep(far)
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	w.of.asked++
	now := time.Now()
	if now.Sub(w.of.start) >= time.Second {
		w.of.start, w.of.left = now.Truncate(time.Second), w.of.units
	}
	if w.n > w.of.left {
		return wait.Answer{After: w.of.start.Add(time.Second).Sub(now), Own: w.own}, nil
	}
	w.of.left -= w.n
	if w.own {
		return wait.Answer{Go: true, Own: true}, nil
	}
	return wait.Answer{Go: true, Room: w.of.left}, nil
}

func (w asks) Queue(int, time.Duration) error { return nil }

func (w asks) Sleep(d time.Duration, called <-chan struct{}) error {
	if d < 0 {
		<-called
		return nil
	}
	select {
	case <-time.After(d):
	case <-called:
	}
	return nil
}

// TestRoomIsUsedAtOnce: the waiters that fit into the room of an answer ask together, and not
// each after the answer of the one before: 50 of them need about two answers. Of the waiters
// that do not fit, one asks.
func TestRoomIsUsedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		w := &window{start: start, units: 50}
		var lines wait.Lines[string]
		var all sync.WaitGroup
		var mu sync.Mutex
		var at []time.Duration
		for range 80 {
			all.Go(func() {
				if err := lines.Wait("k", 1, false, asks{of: w, n: 1}); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Since(start))
			})
			time.Sleep(far + 1) // the first one has its answer
		}
		w.mu.Lock()
		before := w.asked
		w.mu.Unlock()
		time.Sleep(time.Until(start.Add(time.Second + 5*far/2)))
		w.mu.Lock()
		asked := w.asked - before
		w.mu.Unlock()
		mu.Lock()
		n := len(at)
		mu.Unlock()
		if n != 50 || asked > 50+1 {
			t.Errorf("%d of 50 were admitted within three answers, of %d", n, asked)
		}
		all.Wait()
	})
}

// TestNoRoomForUnknownCosts: those whose costs cannot be compared, which stand for 0 units,
// ask one after the other, and not all of them whenever one goes.
func TestNoRoomForUnknownCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &window{start: time.Now(), units: 50}
		var lines wait.Lines[string]
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if err := lines.Wait("k", 0, false, asks{of: w, n: 1, own: true}); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(far + 1)
		}
		all.Wait()
		if w.asked > 2*100 {
			t.Errorf("asked %d times for 100", w.asked)
		}
	})
}
