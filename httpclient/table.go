package httpclient

import (
	"sync"
	"sync/atomic"
)

// table is a map that holds at most max entries. To make room it drops any
// entry that is not in force, and never one that is: forgetting an open breaker
// or a running cooldown would be an amnesty for whoever floods the table.
// It is safe for concurrent use.
type table[V any] struct {
	max     int
	inForce func(*V) bool

	n  atomic.Int64 // of m: most tables of cooldowns are empty, and asked by all
	mu sync.RWMutex
	m  map[string]*V
}

func newTable[V any](max int, inForce func(*V) bool) *table[V] {
	return &table[V]{max: max, inForce: inForce, m: make(map[string]*V)}
}

// get returns the entry of key, or nil.
func (t *table[V]) get(key string) *V {
	if t.len() == 0 {
		return nil
	}
	t.mu.RLock()
	v := t.m[key]
	t.mu.RUnlock()
	return v
}

// getOrAdd returns the entry of key and makes it if it is missing. It returns
// nil when the table is full of entries in force.
func (t *table[V]) getOrAdd(key string, make func() *V) *V {
	if v := t.get(key); v != nil {
		return v
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if v := t.m[key]; v != nil {
		return v
	}
	if len(t.m) >= t.max && !t.evict() {
		return nil
	}
	v := make()
	t.m[key] = v
	t.n.Store(int64(len(t.m)))
	return v
}

// evict drops one entry that is not in force: a random one, as iteration is.
// mu is held.
func (t *table[V]) evict() bool {
	for key, v := range t.m {
		if !t.inForce(v) {
			delete(t.m, key)
			return true
		}
	}
	return false
}

func (t *table[V]) len() int { return int(t.n.Load()) }
