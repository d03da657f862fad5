// Package lease holds units that Redis has charged ahead of their use, so that they are
// spent without a call. A lease has at most two grants, an older and a newer one; what is
// not spent in time is given back.
package lease

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/repeat"
)

const (
	// slots is how many leases are found without a lock.
	slots = 1024
	// stripes bounds how many leases one lock holds up while they are swept.
	stripes = 64
	// sweepsPerAge is how many times in a lease's age what is over is given back.
	sweepsPerAge = 4
	sweepLeast   = time.Millisecond
)

// Table has the leases of a limiter: at most one per key and limit. It is safe for
// concurrent use. Make one with New.
type Table struct {
	cfg Config

	seed    maphash.Seed
	slots   [slots]atomic.Pointer[Lease]
	stripes [stripes]stripe
	count   atomic.Int64
	sweeps  repeat.Task // while there are leases
	closed  atomic.Bool
}

type stripe struct {
	mu   sync.Mutex
	byID map[string][]*Lease
}

// New returns an empty table.
func New(c Config) *Table {
	t := &Table{cfg: c, seed: maphash.MakeSeed()}
	t.sweeps = repeat.Task{Every: max(c.Age/sweepsPerAge, sweepLeast), Start: c.Start, Run: func(context.Context) (more bool) {
		t.cfg.Outbox.GiveBack(t.sweep(time.Now(), t.closed.Load()))
		return t.count.Load() > 0
	}}
	for i := range t.stripes {
		t.stripes[i].byID = make(map[string][]*Lease)
	}
	return t
}

// Find returns the lease of an encoded id, and makes it if create is set. It is nil when
// there are too many.
func (t *Table) Find(id string, args *lua.Args, create bool) *Lease {
	h := maphash.String(t.seed, id)
	slot := &t.slots[h%slots]
	if ls := slot.Load(); ls != nil && ls.id == id && ls.params.Params == args.Params {
		return ls
	}
	st := &t.stripes[h%stripes]
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, ls := range st.byID[id] {
		if ls.params.Params == args.Params {
			slot.Store(ls)
			return ls
		}
	}
	if !create || t.closed.Load() {
		return nil
	}
	if t.count.Add(1) > t.cfg.Max {
		t.count.Add(-1)
		return nil
	}
	now := time.Now()
	ls := &Lease{cfg: &t.cfg, id: id, params: *args, made: now, used: now}
	st.byID[id] = append(st.byID[id], ls)
	slot.Store(ls)
	t.sweeps.Begin()
	return ls
}

// Drop forgets what is held of an encoded id.
func (t *Table) Drop(id string) {
	st := &t.stripes[maphash.String(t.seed, id)%stripes]
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, ls := range st.byID[id] {
		ls.drop()
	}
}

// GiveBackSoon gives back everything, without waiting for that: what is asked for from now on may be under another limit.
func (t *Table) GiveBackSoon() {
	t.cfg.Outbox.GiveBackSoon(t.sweep(time.Now(), true))
}

// sweep takes out what is over, or all, and the leases that are not used any more.
func (t *Table) sweep(now time.Time, all bool) (back []lua.Taken) {
	for i := range t.stripes {
		back = append(back, t.sweepStripe(&t.stripes[i], now, all)...)
	}
	// In an order that is the same in each run.
	slices.SortFunc(back, func(a, b lua.Taken) int { return strings.Compare(a.Keys.ID(), b.Keys.ID()) })
	return back
}

func (t *Table) sweepStripe(st *stripe, now time.Time, all bool) (back []lua.Taken) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for id, list := range st.byID {
		kept := slices.DeleteFunc(list, func(ls *Lease) bool {
			units, unused := ls.sweep(now, all)
			back = append(back, units...)
			if !unused {
				return false
			}
			t.count.Add(-1)
			t.slots[maphash.String(t.seed, id)%slots].CompareAndSwap(ls, nil)
			return true
		})
		if len(kept) == 0 {
			delete(st.byID, id)
		} else {
			st.byID[id] = kept
		}
	}
	return back
}

// Close gives back everything.
func (t *Table) Close() {
	t.closed.Store(true)
	t.sweeps.End()
	t.cfg.Outbox.GiveBack(t.sweep(time.Now(), true))
}
