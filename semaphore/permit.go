package semaphore

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/limiter"
)

// Errors of Release, to test for with errors.Is.
var (
	// ErrReleased: the permit was released before.
	ErrReleased = errors.New("semaphore: permit already released")
	// ErrNotAcquired: the permit was denied, so there is nothing to release.
	ErrNotAcquired = errors.New("semaphore: no permit was acquired")
)

// Permit is the right to be in flight. It is safe for concurrent use. The zero value is a
// permit that was denied.
type Permit struct {
	// Result says whether the permit was acquired. Remaining is how many more there are,
	// RetryAfter when it makes sense to ask again. Limit and Admitted are the zero value: a
	// permit has no rate, and is no unit of one.
	limiter.Result

	free func() // nil for a permit that is not counted
	at   int    // its place among those of its key
	// leave gives it back. It is Queued when a call before the one that granted it may still give its caller
	// a place in the queue.
	leave    lua.Leaver
	known    atomic.Bool
	released atomic.Bool

	mu     sync.Mutex
	isLost bool
	lost   chan struct{} // nil until it is asked for
}

// Lost is closed when the permit has ended although it was not released: this
// process has sent no heartbeat for the time to live, because it stood still, or Redis
// has lost its state. The permit is held again from then on, but another caller may have
// had it meanwhile: work that must not run twice should stop. It is nil, which is never
// closed, for a permit that is not counted.
func (p *Permit) Lost() <-chan struct{} {
	if p.free == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost == nil {
		p.lost = make(chan struct{})
		if p.isLost {
			close(p.lost)
		}
	}
	return p.lost
}

// lose notes that it was lost.
func (p *Permit) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isLost && p.lost != nil {
		close(p.lost)
	}
	p.isLost = true
}

// Release frees the permit. When Redis cannot be reached, or the semaphore was closed, the
// permit ends with its time to live, which is no error. The error is ErrReleased when it was released before, and ErrNotAcquired when
// it was denied.
func (p *Permit) Release() error {
	switch {
	case !p.Allowed:
		return ErrNotAcquired
	case p.released.Swap(true):
		return ErrReleased
	case p.free != nil:
		p.free()
	}
	return nil
}
