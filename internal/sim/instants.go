package sim

import (
	"sync"
	"time"
)

// instants are when things happen: callers go on, messages arrive, connections end, each at a time of its own, so
// that nothing depends on the order of what happens at one time. In a bubble the timers of one time fire in an order that
// Go draws again in each run.
type instants struct {
	mu    sync.Mutex
	taken map[int64]struct{} // nanoseconds
}

// take returns the first time from at on that is not taken.
func (i *instants) take(at time.Time) time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	for {
		ns := at.UnixNano()
		if _, taken := i.taken[ns]; !taken {
			i.taken[ns] = struct{}{}
			return at
		}
		at = at.Add(1)
	}
}

func (i *instants) pass(at time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.taken, at.UnixNano())
}

// after calls f at the first time that is not taken when d has passed, and returns that.
func (i *instants) after(d time.Duration, f func()) time.Time {
	now := time.Now()
	at := i.take(now.Add(max(1, d)))
	time.AfterFunc(at.Sub(now), func() {
		i.pass(at)
		f()
	})
	return at
}

// sleep waits for the first time that is not taken when d has passed.
func (i *instants) sleep(d time.Duration) {
	at := i.take(time.Now().Add(d))
	defer i.pass(at)
	time.Sleep(time.Until(at))
}
