package semaphore

import (
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

// key is a key of which this process holds permits, or for which its callers wait. The
// lock is the semaphore's.
type key struct {
	name    string // the caller's
	id      string // encoded
	inRedis string // what Redis keeps of it
	srv     *redislink.Server
	holding []*Permit
	one     [1]*Permit    // the room of the first one
	waiting [2][]*waiter  // the critical ones before the others
	left    []string      // callers who waited, and whom Redis may still know
	wake    chan struct{} // nil before the first one waits
	polling bool
	pending int // callers on their way
	most    atomic.Int64
}

// permits is how many may be in flight, as the last caller asked for.
func (k *key) permits() int { return int(k.most.Load()) }

// hold adds a permit.
func (k *key) hold(p *Permit) {
	if k.holding == nil {
		k.holding = k.one[:0]
	}
	p.at = len(k.holding)
	k.holding = append(k.holding, p)
}

// drop takes a permit out.
func (k *key) drop(p *Permit) {
	last := len(k.holding) - 1
	k.holding[p.at] = k.holding[last]
	k.holding[p.at].at = p.at
	k.holding[last] = nil
	k.holding = k.holding[:last]
}

// waiter is a caller that asks, and may wait in the queue.
type waiter struct {
	name   [1]string // in Redis
	asked  bool
	permit *Permit
	err    error
	done   chan struct{} // closed when there is a permit or an error

	ask   lua.PermitAsk // of its first call
	first atomic.Uint32 // what came of that call, of the following
}

const (
	ended    uint32 = 1 << iota
	unwanted        // its caller does not know the answer, and does not ask again
)

func (w *waiter) caller() string { return w.name[0] }
