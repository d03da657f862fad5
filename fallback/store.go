package fallback

import (
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// DefaultMaxKeys is how many keys a store remembers unless told otherwise: at
// about 250 bytes each, 25 MB. The sliding window log needs 16 more for each time
// at which it admitted something within the window.
const DefaultMaxKeys = 100_000

// A store has up to 64 shards, but none so small that keys falling unevenly
// would overflow one while others are empty.
const (
	maxShards    = 64
	keysPerShard = 64
)

// Store decides in process, for many keys. It remembers at most a fixed number
// of keys. A key whose state equals that of a key never used is forgotten
// first, which costs nothing; while every remembered key is in use, keys beyond
// the cap share one state per shard, so that a flood of keys neither grows the
// memory nor opens the limit, and does not stop everybody either.
//
// A Store is safe for concurrent use and has no goroutine. Make one with
// NewStore.
type Store struct {
	seed   maphash.Seed
	now    func() int64
	shards []shard
	owed   atomic.Int64 // keys with a debt
	unsent atomic.Int64 // blocks that Redis has not been told of
}

type shard struct {
	mu       sync.Mutex
	max      int
	debts    map[debtKey]*debt
	keys     [len(algo.Kinds) + 1]map[string]*entry // by algorithm
	idle     idleHeap
	overflow [len(algo.Kinds) + 1]*entry
	_        [64]byte // keeps the locks of neighbours on different cache lines
}

// entry is one key. idleAt is the time from which its state equals never-used.
type entry struct {
	id     string
	kind   algo.Kind
	state  algo.State
	bucket *rate.Limiter
	idleAt int64
	rank   int64  // idleAt when the heap last saw it: never later than idleAt
	age    uint32 // raised when the state begins anew

	// What Redis said last, if that is newer than the state: how much was left
	// of which limit, and until when that matters. restart says that the state
	// begins anew from it; otherwise it is only lowered to it.
	seenCap, seenLeft, seenUntil int64
	restart                      bool

	unsent *algo.Params // the home of a block that Redis has not been told of
}

// NewStore returns a store for at most maxKeys keys, which must be at least 1.
func NewStore(maxKeys int) (*Store, error) {
	return newStore(maxKeys, newClock())
}

func newStore(maxKeys int, now func() int64) (*Store, error) {
	if maxKeys < 1 {
		return nil, fmt.Errorf("fallback: max keys is %d: must be at least 1", maxKeys)
	}
	s := &Store{seed: maphash.MakeSeed(), now: now, shards: make([]shard, min(maxShards, max(1, maxKeys/keysPerShard)))}
	for i := range s.shards {
		s.shards[i].max = maxKeys / len(s.shards)
		if i < maxKeys%len(s.shards) {
			s.shards[i].max++
		}
	}
	return s, nil
}

func (s *Store) shard(id string) *shard {
	return &s.shards[maphash.String(s.seed, id)%uint64(len(s.shards))]
}

// Decide charges a cost of n, which may be 0, to id under p. A cost above p.Cap
// is denied: it is more than this process may ever admit at once.
func (s *Store) Decide(id string, p algo.Params, n int64) algo.Decision {
	return s.decide(id, p, n, nil, nil)
}

// DecideOwing is Decide for a limit whose home is Redis: what it admits is a
// debt under that limit, until TakeDebts collects it.
func (s *Store) DecideOwing(id string, p algo.Params, n int64, home algo.Params) algo.Decision {
	return s.decide(id, p, n, &home, nil)
}

// Take is Decide, or with a home DecideOwing, for what may be given back.
func (s *Store) Take(id string, p algo.Params, n int64, home *algo.Params, rc *Receipt) algo.Decision {
	return s.decide(id, p, n, home, rc)
}

// Look is what Decide would say, and changes nothing. What it would admit has the
// Remaining of now.
func (s *Store) Look(id string, p algo.Params, n int64) algo.Decision {
	now := s.now()
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := s.at(sh, id, p, now, 0)
	d := e.decide(p, now, 0)
	if n == 0 || d.Allowed && d.Remaining >= n+p.Keep {
		return d
	}
	return e.denied(p, now, n)
}

func (s *Store) decide(id string, p algo.Params, n int64, home *algo.Params, rc *Receipt) algo.Decision {
	now := s.now()
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()

	if n > 0 && n+p.Keep > p.Cap {
		return s.at(sh, id, p, now, 0).denied(p, now, n)
	}
	e := s.at(sh, id, p, now, n)
	d := e.decide(p, now, n)
	if !d.Allowed || n == 0 {
		return d
	}
	var owed *debt
	if home != nil {
		owed = s.owe(sh, id, p, now, n, home)
	}
	if rc != nil {
		*rc = Receipt{entry: e, age: e.age, debt: owed, params: p, at: now, units: n}
	}
	return d
}

// denied is the decision on n units for which there is no room, or will never be.
func (e *entry) denied(p algo.Params, now, n int64) algo.Decision {
	if n+p.Keep <= p.Cap {
		return e.decide(p, now, n)
	}
	d := e.decide(p, now, 0)
	wait := produceTime(p, n+p.Keep)
	if !d.Allowed { // blocked
		d.ResetAfter = max(d.ResetAfter, wait)
	}
	d.Allowed, d.Delay = false, 0
	d.RetryAfter = max(d.RetryAfter, wait)
	return d
}

// produceTime is the time in which the limit lets n units through.
func produceTime(p algo.Params, n int64) int64 {
	us := float64(n) / float64(p.Num) * float64(p.Den)
	if p.Kind.Windowed() {
		us = float64(n) / float64(p.Cap) * float64(p.Den)
	}
	return max(1, int64(min(us, algo.MaxPeriod)))
}

// at returns the entry of id: its own, a new one, or the shared one. Looking,
// with a cost of 0, makes no entry.
func (s *Store) at(sh *shard, id string, p algo.Params, now, n int64) *entry {
	if e := sh.keys[p.Kind][id]; e != nil {
		return e
	}
	if n == 0 && (len(sh.idle) < sh.max || sh.idle.idleAt(now) != nil) {
		return &entry{kind: p.Kind}
	}
	if n > 0 {
		if e := s.add(sh, p.Kind, id, now); e != nil {
			return e
		}
	}
	if sh.overflow[p.Kind] == nil {
		sh.overflow[p.Kind] = &entry{kind: p.Kind}
	}
	return sh.overflow[p.Kind]
}

// add makes room for one more key, or returns nil when every key is in use.
func (s *Store) add(sh *shard, kind algo.Kind, id string, now int64) *entry {
	if len(sh.idle) >= sh.max {
		old := sh.idle.idleAt(now)
		if old == nil {
			return nil
		}
		s.forget(sh, old)
	}
	if sh.keys[kind] == nil {
		sh.keys[kind] = make(map[string]*entry)
	}
	e := &entry{id: id, kind: kind, idleAt: now, rank: now}
	sh.keys[kind][id] = e
	sh.idle.push(e)
	return e
}

// forget drops the entry at the top of the heap.
func (s *Store) forget(sh *shard, top *entry) {
	sh.idle.pop()
	delete(sh.keys[top.kind], top.id)
	s.sent(top)
}

// Reset forgets id: its state and its block under every algorithm.
func (s *Store) Reset(id string) {
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for kind := range sh.keys {
		e := sh.keys[kind][id]
		if e == nil {
			continue
		}
		// The entry stays in the heap as one that costs nothing to forget.
		e.state, e.bucket, e.idleAt, e.seenUntil, e.restart = algo.State{}, nil, 0, 0, false
		s.sent(e)
		e.age++
		sh.idle.lower(e)
		if d := (debtKey{algo.Kind(kind), id}); sh.debts[d] != nil {
			delete(sh.debts, d)
			s.owed.Add(-1)
		}
	}
}

// Len returns how many keys are remembered.
func (s *Store) Len() int {
	n := 0
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		n += len(sh.idle)
		sh.mu.Unlock()
	}
	return n
}
