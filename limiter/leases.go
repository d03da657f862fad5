package limiter

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/lua"
)

const (
	// leaseSlots is how many leases are found without a lock.
	leaseSlots = 1024
	// leaseShards bounds how many leases one lock holds up while they are swept.
	leaseShards = 64
	// leaseSweeps is how many times in maxAge what is over is looked for.
	leaseSweeps     = 4
	leaseSweepLeast = time.Millisecond
)

// leases are those of a limiter: at most one per key and limit.
type leases struct {
	l      *Limiter
	size   int64
	maxAge time.Duration
	max    int64

	seed   maphash.Seed
	slots  [leaseSlots]atomic.Pointer[lease]
	shards [leaseShards]leaseShard
	count  atomic.Int64

	mu     sync.Mutex
	timer  *time.Timer // nil while it is stopped
	closed atomic.Bool
}

type leaseShard struct {
	mu   sync.Mutex
	byID map[string][]*lease
}

func newLeases(l *Limiter, size int, maxAge time.Duration, maxKeys int) *leases {
	m := &leases{l: l, size: int64(size), maxAge: maxAge, max: int64(maxKeys), seed: maphash.MakeSeed()}
	for i := range m.shards {
		m.shards[i].byID = make(map[string][]*lease)
	}
	return m
}

// find returns the lease of a key, and makes it if create is set. It is nil when
// there are too many.
func (m *leases) find(id string, args *lua.Args, create bool) *lease {
	h := maphash.String(m.seed, id)
	slot := &m.slots[h%leaseSlots]
	if ls := slot.Load(); ls != nil && ls.id == id && ls.params.Params == args.Params {
		return ls
	}
	sh := &m.shards[h%leaseShards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, ls := range sh.byID[id] {
		if ls.params.Params == args.Params {
			slot.Store(ls)
			return ls
		}
	}
	if !create || m.closed.Load() {
		return nil
	}
	if m.count.Add(1) > m.max {
		m.count.Add(-1)
		return nil
	}
	ls := &lease{id: id, params: *args, size: m.size, age: m.maxAge, used: time.Now()}
	sh.byID[id] = append(sh.byID[id], ls)
	slot.Store(ls)
	m.wind()
	return ls
}

// wind makes sure that there is a sweep to come.
func (m *leases) wind() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.timer == nil && !m.closed.Load() {
		m.timer = time.AfterFunc(max(m.maxAge/leaseSweeps, leaseSweepLeast), m.tick)
	}
}

// drop forgets what is held of a key.
func (m *leases) drop(id string) {
	sh := &m.shards[maphash.String(m.seed, id)%leaseShards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, ls := range sh.byID[id] {
		ls.drop()
	}
}

// tick gives back what is over, in the background, and goes on while there are
// leases.
func (m *leases) tick() {
	m.l.redis.Background.Start(func(context.Context) {
		back := m.sweep(time.Now())
		m.mu.Lock()
		m.timer = nil
		m.mu.Unlock()
		if m.count.Load() > 0 {
			m.wind()
		}
		m.l.giveBack(back)
	})
}

// sweep takes out what is over, and the leases that are not used any more.
func (m *leases) sweep(now time.Time) (back []lua.Taken) {
	for i := range m.shards {
		back = m.sweepShard(&m.shards[i], now, back)
	}
	return back
}

func (m *leases) sweepShard(sh *leaseShard, now time.Time, back []lua.Taken) []lua.Taken {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for id, list := range sh.byID {
		kept := slices.DeleteFunc(list, func(ls *lease) bool {
			for _, g := range ls.expired(now, m.closed.Load()) {
				if t, ok := ls.unspent(g, m.l.names); ok {
					back = append(back, t)
				}
			}
			if !ls.retire(now, m.maxAge) {
				return false
			}
			m.count.Add(-1)
			m.slots[maphash.String(m.seed, id)%leaseSlots].CompareAndSwap(ls, nil)
			return true
		})
		if len(kept) == 0 {
			delete(sh.byID, id)
		} else {
			sh.byID[id] = kept
		}
	}
	return back
}

// close gives back everything.
func (m *leases) close() {
	m.mu.Lock()
	m.closed.Store(true)
	if m.timer != nil {
		m.timer.Stop()
	}
	m.mu.Unlock()
	m.l.giveBack(m.sweep(time.Now()))
}
