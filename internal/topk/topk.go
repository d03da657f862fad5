// Package topk finds the keys that are counted most, in bounded memory, by the
// Space-Saving algorithm (Metwally, Agrawal, El Abbadi, "Efficient computation of
// frequent and top-k elements in data streams", ICDT 2005): a new key takes the
// place of the key with the lowest count, and inherits that count as its error.
package topk

import (
	"container/heap"
	"math"
	"strings"
	"sync"
	"sync/atomic"
)

// dead marks the count of an entry that was replaced: the sign bit, so that what is
// added to it later stays below zero.
const dead = math.MinInt64

// Sketch counts keys, of which it keeps at most its capacity. After counts of N in all,
//
//   - Count - Error ≤ the true count ≤ Count for each key that is kept,
//   - the true count ≤ least for each that is not, with least ≤ N / capacity,
//   - so every key with a true count above N / capacity is kept,
//   - and the counts of the keys that are kept add up to N.
//
// Keys that are kept are found and counted without a lock. It is safe for concurrent
// use. Make one with New.
type Sketch[V any] struct {
	capacity int
	longest  int
	buckets  []atomic.Pointer[Entry[V]] // chains, by hash

	mu sync.Mutex // for changes of what is kept
	// kept is a heap by what the entries had counted when they were last read: no more
	// than they have, so a root that is up to date is the least of all.
	kept places[V]
}

// place is an entry in the heap, and what it had counted when that was last read.
type place[V any] struct {
	seen int64
	*Entry[V]
}

// places is a heap.Interface.
type places[V any] []place[V]

func (p places[V]) Len() int           { return len(p) }
func (p places[V]) Less(i, j int) bool { return p[i].seen < p[j].seen }
func (p places[V]) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *places[V]) Push(x any)        { *p = append(*p, x.(place[V])) }
func (p *places[V]) Pop() any          { return nil } // the least is replaced where it is

// Entry is a key that is kept, or was.
type Entry[V any] struct {
	// Data is the caller's, the zero value at first. The entry may have been replaced when
	// Data is read.
	Data V

	key    string
	hash   uint64
	before int64 // the error
	count  atomic.Int64
	next   atomic.Pointer[Entry[V]]
}

// Item is what is known of a key at one moment.
type Item[V any] struct {
	Key  string
	Hash uint64
	// Count is at most by Error too high.
	Count, Error int64
	Data         *V
}

// New returns a sketch of at least one key. Keys longer than longest bytes are kept as
// their SHA-256; 0 keeps all as they are.
func New[V any](capacity, longest int) *Sketch[V] {
	capacity = max(1, capacity)
	size := 8
	for size < 2*capacity {
		size *= 2
	}
	return &Sketch[V]{capacity: capacity, longest: longest, buckets: make([]atomic.Pointer[Entry[V]], size)}
}

// Find returns the entry of a key, which has the given hash; nil if it is not kept.
func (s *Sketch[V]) Find(hash uint64, key string) *Entry[V] {
	for e := s.bucket(hash).Load(); e != nil; e = e.next.Load() {
		if e.hash == hash && s.is(e, key) {
			return e
		}
	}
	return nil
}

func (s *Sketch[V]) bucket(hash uint64) *atomic.Pointer[Entry[V]] {
	return &s.buckets[hash&uint64(len(s.buckets)-1)]
}

// Add counts n, which must be above 0, for a key with the given hash, and returns its
// entry. A key that is kept already costs O(1), another one O(log capacity) amortized
// over the calls.
func (s *Sketch[V]) Add(hash uint64, key string, n int64) *Entry[V] {
	if e := s.Find(hash, key); e != nil && e.add(n) {
		return e
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.Find(hash, key); e != nil {
		e.add(n) // entries die under the lock only
		return e
	}
	e := &Entry[V]{key: s.own(key), hash: hash}
	if len(s.kept) < s.capacity {
		e.count.Store(n)
		heap.Push(&s.kept, place[V]{n, e})
	} else {
		e.before = s.evict()
		e.count.Store(e.before + n)
		s.kept[0] = place[V]{e.before + n, e}
		heap.Fix(&s.kept, 0)
	}
	b := s.bucket(hash)
	e.next.Store(b.Load())
	b.Store(e)
	return e
}

// add reports false for an entry that was replaced: the count belongs to another key now.
func (e *Entry[V]) add(n int64) bool { return e.count.Add(n) >= 0 }

// evict ends the entry that counted least, the heap's root, and returns its count.
func (s *Sketch[V]) evict() int64 {
	for {
		e := s.kept[0].Entry
		c := e.count.Load()
		if c != s.kept[0].seen {
			s.kept[0].seen = c
			heap.Fix(&s.kept, 0)
			continue
		}
		if !e.count.CompareAndSwap(c, c|dead) {
			continue
		}
		at := s.bucket(e.hash)
		for at.Load() != e {
			at = &at.Load().next
		}
		// A reader that is at e still finds what comes after it.
		at.Store(e.next.Load())
		return c
	}
}

// Len is how many keys are kept.
func (s *Sketch[V]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.kept)
}

// Items returns all that are kept, in no order, and the most that any other key can
// have been counted.
func (s *Sketch[V]) Items() (items []Item[V], least int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items = make([]Item[V], len(s.kept))
	least = math.MaxInt64
	for i, e := range s.kept {
		items[i] = Item[V]{Key: e.key, Hash: e.hash, Count: e.count.Load(), Error: e.before, Data: &e.Data}
		least = min(least, items[i].Count)
	}
	if len(items) < s.capacity {
		least = 0
	}
	return items, least
}

// own is what is kept of a key: memory of its own, because a key may be a part of
// something large.
func (s *Sketch[V]) own(key string) string { return strings.Clone(Kept(key, s.longest)) }

// Kept is a key as it is kept where keys longer than longest bytes are known by their hash; 0 is none.
func Kept(key string, longest int) string {
	if longest > 0 && len(key) > longest {
		d := digest(key)
		return string(d[:])
	}
	return key
}

func (s *Sketch[V]) is(e *Entry[V], key string) bool {
	if s.long(key) {
		d := digest(key)
		return e.key == string(d[:]) // costs no allocation
	}
	return e.key == key
}

func (s *Sketch[V]) long(key string) bool { return s.longest > 0 && len(key) > s.longest }
