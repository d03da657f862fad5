package limiter

import (
	"sync"
	"sync/atomic"
)

// Slot is the right to be in flight. It is safe for concurrent use.
type Slot struct {
	// Result says whether there is one. Remaining is how many more there are,
	// RetryAfter when it makes sense to ask again. The Limit is the zero value: this
	// is no rate.
	Result

	c        *Concurrency
	g        *gate
	caller   string
	known    atomic.Bool // to Redis
	released atomic.Bool

	mu   sync.Mutex
	gone bool
	lost chan struct{} // made when somebody asks
}

// Lost is closed when the slot has ended although it was not released: Redis has
// not heard of this process for the time to live, because it stood still, or Redis
// has lost its state. It is held again from then on, but somebody else may have had
// it meanwhile: work that must not run twice should stop.
func (s *Slot) Lost() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		s.lost = make(chan struct{})
		if s.gone {
			close(s.lost)
		}
	}
	return s.lost
}

func (s *Slot) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.gone && s.lost != nil {
		close(s.lost)
	}
	s.gone = true
}

// Release frees the slot. When Redis cannot be told, it ends with its time to live.
// The error is ErrReleased when it was released before, and ErrNotReserved when
// there was none.
func (s *Slot) Release() error {
	switch {
	case !s.Allowed:
		return ErrNotReserved
	case s.released.Swap(true):
		return ErrReleased
	case s.g == nil:
		return nil // nobody counts
	}
	s.c.release(s.g, s.caller)
	return nil
}
