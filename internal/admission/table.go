package admission

import (
	"sync"
	"sync/atomic"
	"time"
)

// fullFor is how long a table that is full of entries in force is not searched again: with a
// flood of keys, all callers would wait for the search.
const fullFor = time.Second

// Table is a map that holds at most max entries. To make room it drops any
// entry that is not in force, and never one that is: forgetting an open breaker
// or a running cooldown would end for a caller that floods the table.
// It is safe for concurrent use. Make it with NewTable.
type Table[V any] struct {
	max     int
	inForce func(*V) bool

	n    atomic.Int64 // of m: most tables of cooldowns are empty, and asked by all
	mu   sync.RWMutex
	m    map[string]*V
	full time.Time // when it was last found full
}

// NewTable returns an empty table.
func NewTable[V any](max int, inForce func(*V) bool) *Table[V] {
	return &Table[V]{max: max, inForce: inForce, m: make(map[string]*V)}
}

// Get returns the entry of key, or nil.
func (t *Table[V]) Get(key string) *V {
	if t.Len() == 0 {
		return nil
	}
	t.mu.RLock()
	v := t.m[key]
	t.mu.RUnlock()
	return v
}

// GetOrAdd returns the entry of key and makes it if it is missing. It returns
// nil when the table is full of entries in force, and for a second after that was so.
func (t *Table[V]) GetOrAdd(key string, make func() *V) *V {
	if v := t.Get(key); v != nil {
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
func (t *Table[V]) evict() bool {
	now := time.Now()
	if now.Sub(t.full) < fullFor {
		return false
	}
	for key, v := range t.m {
		if !t.inForce(v) {
			delete(t.m, key)
			return true
		}
	}
	t.full = now
	return false
}

// Len returns how many entries there are.
func (t *Table[V]) Len() int { return int(t.n.Load()) }
