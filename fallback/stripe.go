package fallback

import (
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// A store has up to 64 stripes, but none so small that keys falling unevenly
// would overflow one while others are empty.
const (
	maxStripes    = 64
	keysPerStripe = 64
)

// totals are counts over all stripes.
type totals struct {
	owed   atomic.Int64 // keys with a debt
	unsent atomic.Int64 // blocks that Redis does not know of
}

type stripe struct {
	totals   *totals
	mu       sync.Mutex
	max      int
	debts    map[debtKey]*debt
	keys     [len(algo.Kinds) + 1]map[string]*entry // by algorithm
	idle     idleHeap
	overflow [len(algo.Kinds) + 1]*entry
	_        [64]byte // keeps the locks of neighbours on different cache lines
}

// part is what counts at now of a process's part of a limit, and the time until it has another
// whole unit, 0 if it never has.
func (st *stripe) part(id string, p algo.Params, now int64) (part algo.Params, more int64) {
	if p.Frac == 0 {
		return p, 0
	}
	since := now
	if e := st.keys[p.Kind][id]; e != nil && e.grants.lost != 0 {
		since = e.grants.lost
	}
	return p.In(now, since)
}

// at returns the entry of id: its own, a new one, or the shared one. A peek,
// with a cost of 0, makes no entry.
func (st *stripe) at(id string, p algo.Params, now, n int64) *entry {
	if e := st.keys[p.Kind][id]; e != nil {
		return e
	}
	if n == 0 && (len(st.idle) < st.max || st.idle.idleAt(now) != nil) {
		return &entry{kind: p.Kind}
	}
	if n > 0 {
		if e := st.add(p.Kind, id, now); e != nil {
			return e
		}
	}
	if st.overflow[p.Kind] == nil {
		st.overflow[p.Kind] = &entry{kind: p.Kind}
	}
	return st.overflow[p.Kind]
}

// add makes room for one more key, or returns nil when every key is in use.
func (st *stripe) add(kind algo.Kind, id string, now int64) *entry {
	if len(st.idle) >= st.max {
		old := st.idle.idleAt(now)
		if old == nil {
			return nil
		}
		st.forget(old)
	}
	if st.keys[kind] == nil {
		st.keys[kind] = make(map[string]*entry)
	}
	e := &entry{id: id, kind: kind, idleAt: now, rank: now}
	st.keys[kind][id] = e
	st.idle.push(e)
	return e
}

// forget drops the entry at the top of the heap.
func (st *stripe) forget(top *entry) {
	st.idle.pop()
	delete(st.keys[top.kind], top.id)
	st.sent(top)
}

// sent notes that the block of an entry need not be sent any more.
func (st *stripe) sent(e *entry) {
	if e.unsent != nil {
		e.unsent = nil
		st.totals.unsent.Add(-1)
	}
}

// owe adds units to the debt of id. A level above 0 is that of the bucket of id after them.
// There are at most as many debts in a stripe as keys; beyond that they are forgotten.
func (st *stripe) owe(id string, own algo.Params, now int64, use algo.Use, level int64, home *algo.Params) *debt {
	if own.Kind.Windowed() {
		own.Cap = home.Cap // the part of this window says nothing of what was admitted in those before
	}
	k := debtKey{own.Kind, id}
	d := st.debts[k]
	if d == nil {
		if len(st.debts) >= st.max {
			return nil
		}
		if st.debts == nil {
			st.debts = make(map[debtKey]*debt)
		}
		d = new(debt)
		st.debts[k] = d
		st.totals.owed.Add(1)
	}
	d.home, d.own, d.units = *home, own, d.units+use.Units
	if level > 0 {
		algo.OweLevel(own, &d.state, now, level)
	} else {
		algo.Owe(own, &d.state, now, use.Units, use.Age)
	}
	return d
}

// settle drops a debt of which nothing is left.
func (st *stripe) settle(k debtKey, now int64) {
	d := st.debts[k]
	if d.sending <= 0 && len(d.owed(now)) == 0 {
		delete(st.debts, k)
		st.totals.owed.Add(-1)
	}
}
