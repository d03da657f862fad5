package redislink

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Background runs what must not hold up a decision, in goroutines that end soon by
// themselves and never outlive Close.
type Background struct {
	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex // Start or Close
	wg     sync.WaitGroup
}

// NewBackground returns one in which nothing runs yet.
func NewBackground() *Background {
	b := new(Background)
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// Start runs fn unless Close was called. fn must return when ctx ends, or soon.
func (b *Background) Start(fn func(ctx context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return false
	}
	b.wg.Go(func() { fn(b.ctx) })
	return true
}

// Close ends what runs and lets nothing start again.
func (b *Background) Close() {
	b.mu.Lock()
	b.cancel()
	b.mu.Unlock()
	b.wg.Wait()
}

// Every lets one caller through per period, at the cost of an atomic load for the
// others. Times are durations on a clock that never steps, such as Link.Now. The zero
// value lets the first caller through.
type Every struct{ next atomic.Int64 }

// Due reports whether the period is over, and begins the next one if it is.
func (e *Every) Due(now, period time.Duration) bool {
	next := e.next.Load()
	return int64(now) >= next && e.next.CompareAndSwap(next, int64(now+period))
}

// Soon makes the period end at a given time, if that is earlier.
func (e *Every) Soon(at time.Duration) {
	for next := e.next.Load(); int64(at) < next && !e.next.CompareAndSwap(next, int64(at)); next = e.next.Load() {
	}
}

// Later makes the period end at a given time, if that is later.
func (e *Every) Later(at time.Duration) {
	for next := e.next.Load(); int64(at) > next && !e.next.CompareAndSwap(next, int64(at)); next = e.next.Load() {
	}
}
