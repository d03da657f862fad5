package faultproxy

import (
	"sync"
	"sync/atomic"
	"time"
)

// rules is the mode of a proxy, by which all its connections go, and what it did to them.
type rules struct {
	// mu is held for reading while bytes are delivered or swallowed, so that when the mode
	// is set, nothing happens by the former one any more.
	mu         sync.RWMutex
	mode       Mode
	generation int           // how often the mode was set
	changed    chan struct{} // closed when it is set again

	pacing sync.Mutex
	free   [2]time.Time // when each direction can carry the next byte

	delivered [2]atomic.Int64 // bytes, by direction
	swallowed atomic.Int64
}

// set changes the mode. mu is held.
func (r *rules) set(m Mode) {
	r.mode = m
	r.generation++
	close(r.changed)
	r.changed = make(chan struct{})
	r.pacing.Lock()
	defer r.pacing.Unlock()
	r.free = [2]time.Time{}
}
