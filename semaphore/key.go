package semaphore

import (
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/redislink"
)

// key is a key of which this process holds permits, or for which its callers wait. The
// lock is the semaphore's.
type key struct {
	name    string // the caller's
	id      string // encoded
	inRedis string // what Redis keeps of it
	srv     *redislink.Server
	holding map[string]*Permit
	waiting [2][]*waiter // the critical ones before the others
	left    []string     // callers who waited, and whom Redis may still know
	wake    chan struct{}
	polling bool
	pending int // callers on their way
	most    atomic.Int64
}

// permits is how many may be in flight, as the last caller asked for.
func (k *key) permits() int { return int(k.most.Load()) }

// waiter is a caller in the queue.
type waiter struct {
	caller string // its name in Redis
	asked  bool
	permit *Permit
	err    error
	done   chan struct{} // closed when there is a permit or an error
}

// pollNow lets the poller ask at once.
func (k *key) pollNow() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}
