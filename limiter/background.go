package limiter

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// background runs what must not hold up a decision, in goroutines that end soon
// by themselves and never outlive Close.
type background struct {
	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

func newBackground() *background {
	b := new(background)
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// start runs fn unless the limiter is closed. fn must return when ctx ends, or
// soon.
func (b *background) start(fn func(ctx context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.wg.Go(func() { fn(b.ctx) })
	return true
}

// close ends what runs and lets nothing start again.
func (b *background) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.wg.Wait()
}

// every lets one caller through per period, at the cost of an atomic load for
// the others. The zero value lets the first one through.
type every struct {
	next atomic.Int64 // ns of the epoch
}

// due reports whether the period is over, and begins the next one if it is.
func (e *every) due(now time.Time, period time.Duration) bool {
	t, next := now.UnixNano(), e.next.Load()
	return t >= next && e.next.CompareAndSwap(next, t+int64(period))
}

// soon makes the period end at a given time, if that is earlier.
func (e *every) soon(at time.Time) {
	t := at.UnixNano()
	for next := e.next.Load(); t < next && !e.next.CompareAndSwap(next, t); next = e.next.Load() {
	}
}
