package chain

import "sync"

// Queue holds what hooks are still to be called with. It calls them in order, outside of the
// lock of its owner, by which it is guarded. The zero value is empty.
type Queue[T any] struct {
	pending    []T
	delivering bool
}

// Add adds a value, for Unlock.
func (q *Queue[T]) Add(v T) { q.pending = append(q.pending, v) }

// Unlock releases mu and calls hook with what was added under it. A goroutine that finds
// another one delivering, or is inside the hook itself, leaves its values to that one: this
// keeps the order without a lock around the hook.
func (q *Queue[T]) Unlock(mu *sync.Mutex, hook func(T)) {
	if q.delivering || len(q.pending) == 0 {
		mu.Unlock()
		return
	}
	q.delivering = true
	defer func() { // also when the hook panics: what is left goes out with the next call
		q.delivering = false
		mu.Unlock()
	}()
	for len(q.pending) > 0 {
		v := q.pending[0]
		q.pending = q.pending[1:]
		q.call(mu, hook, v)
	}
}

// call runs the hook with mu released.
func (q *Queue[T]) call(mu *sync.Mutex, hook func(T), v T) {
	mu.Unlock()
	defer mu.Lock()
	hook(v)
}
