package limiter

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

const (
	// leaseSlots is how many leases are found without a lock.
	leaseSlots = 1024
	// leaseSweeps is how many times in maxAge what is over is looked for.
	leaseSweeps     = 4
	leaseSweepLeast = time.Millisecond
)

// leases are those of a limiter: at most one per key and limit.
type leases struct {
	l      *Limiter
	size   int64
	maxAge time.Duration
	max    int

	seed  maphash.Seed
	slots [leaseSlots]atomic.Pointer[lease]

	mu     sync.Mutex
	byID   map[string][]*lease
	count  int
	timer  *time.Timer
	closed bool
}

func newLeases(l *Limiter) *leases {
	return &leases{l: l, size: int64(l.lease), maxAge: l.leaseAge, max: l.maxKeys, seed: maphash.MakeSeed(), byID: map[string][]*lease{}}
}

// find returns the lease of a key, and makes it if create is set. It is nil when
// there are too many.
func (m *leases) find(id string, args *lua.Args, create bool) *lease {
	slot := &m.slots[maphash.String(m.seed, id)%leaseSlots]
	if ls := slot.Load(); ls != nil && ls.id == id && ls.params.Params == args.Params {
		return ls
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ls := range m.byID[id] {
		if ls.params.Params == args.Params {
			slot.Store(ls)
			return ls
		}
	}
	if !create || m.closed || m.count >= m.max {
		return nil
	}
	ls := &lease{id: id, params: *args, size: m.size, age: m.maxAge, used: time.Now()}
	m.byID[id] = append(m.byID[id], ls)
	m.count++
	slot.Store(ls)
	if m.timer == nil {
		m.timer = time.AfterFunc(m.period(), m.tick)
	} else if m.count == 1 {
		m.timer.Reset(m.period())
	}
	return ls
}

func (m *leases) period() time.Duration { return max(m.maxAge/leaseSweeps, leaseSweepLeast) }

// drop forgets what is held of a key.
func (m *leases) drop(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ls := range m.byID[id] {
		ls.drop()
	}
}

// tick gives back what is over, in the background, and goes on while there are
// leases.
func (m *leases) tick() {
	if m.l.background.start(func(context.Context) { m.giveBack(m.sweep(time.Now())) }) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.count > 0 && !m.closed {
			m.timer.Reset(m.period())
		}
	}
}

// sweep takes out what is over, and the leases that are not used any more.
func (m *leases) sweep(now time.Time) (back []lua.Taken) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, list := range m.byID {
		kept := slices.DeleteFunc(list, func(ls *lease) bool {
			for _, g := range ls.expired(now, m.closed) {
				if t, ok := ls.unspent(g, m.l.names); ok {
					back = append(back, t)
				}
			}
			if !ls.retire(now, m.maxAge) {
				return false
			}
			m.count--
			m.slots[maphash.String(m.seed, id)%leaseSlots].CompareAndSwap(ls, nil)
			return true
		})
		if len(kept) == 0 {
			delete(m.byID, id)
		} else {
			m.byID[id] = kept
		}
	}
	return back
}

// close gives back everything.
func (m *leases) close() {
	m.mu.Lock()
	m.closed = true
	if m.timer != nil {
		m.timer.Stop()
	}
	m.mu.Unlock()
	m.giveBack(m.sweep(time.Now()))
}

// giveBack returns units to Redis: each at most once, so what is lost with a
// reply stays charged.
func (m *leases) giveBack(items []lua.Taken) {
	groups := map[algo.Kind][]lua.Taken{}
	for _, it := range items {
		groups[it.Params.Kind] = append(groups[it.Params.Kind], it)
	}
	_, single := m.l.rdb.(*redis.Client)
	ctx, cancel := context.WithTimeout(context.Background(), reconcileBudget)
	defer cancel()
	for _, group := range groups {
		for batch := range slices.Chunk(group, perCall(single)) {
			if ctx.Err() != nil {
				return
			}
			m.l.returnUnits(ctx, batch)
		}
	}
}

// perCall is how many keys one script may touch in the background.
func perCall(single bool) int {
	if single {
		return reconcileBatch
	}
	return 1 // in a cluster or a ring they may be on different servers
}

// returnUnits makes one call, under the breaker and the budget.
func (l *Limiter) returnUnits(ctx context.Context, batch []lua.Taken) {
	sh := l.shards.forID(batch[0].Keys.ID())
	permit, ok := sh.breaker.Acquire()
	if !ok {
		return
	}
	c := newCall(l, func(ctx context.Context, c *call) error {
		_, err := c.lua.GiveBack(ctx, 0, batch)
		return err
	})
	err := sh.calls.do(ctx, c, l.budget, nil)
	if l.settle(ctx, permit, err, time.Since(c.sent)) == breaker.ClassOK {
		c.release()
	}
}
