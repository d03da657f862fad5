package inprocess

import (
	"hash/maphash"
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
	// blocked is when the last of all blocks ends, so that no lock is taken where there are none.
	blocked atomic.Int64
}

type stripe struct {
	totals *totals
	seed   maphash.Seed
	of     int // how many stripes there are
	seen   table
	mu     sync.Mutex
	max    int
	debts  map[debtKey]*debt
	keys   map[uint64]*entry // by hashOf
	idle   idleHeap
	shared map[limit]*entry // of keys without a place
	_      [64]byte         // keeps the locks of neighbours on different cache lines
}

// limit is what keys have in common that share a state: in that of a faster limit, what a slow one has admitted would
// soon be over. It is the whole limit, whatever the part of it is at the time.
type limit struct {
	kind            algo.Kind
	units, num, den int64
	calendar        *algo.Calendar
}

// maxShared bounds the shared states of a stripe; beyond that, an algorithm without one gets one.
const maxShared = 64

// get returns the entry of an id, by its hash, nil without.
func (st *stripe) get(kind algo.Kind, id string, h uint64) *entry {
	e := st.keys[hashOf(kind, h)]
	for e != nil && (e.id != id || e.kind != kind) {
		if e.outside == nil {
			return nil
		}
		e = e.next
	}
	return e
}

// find returns the entry of id under p: its own, or a shared one where every key is in use, or nil where
// it would be a new one.
func (st *stripe) find(p *algo.Params, id string, h uint64, now int64) *entry {
	e := st.get(p.Kind, id, h)
	if e != nil || st.roomy(now) {
		return e
	}
	if p.Whole != nil {
		p = p.Whole
	}
	of := limit{p.Kind, p.Cap, p.Num, p.Den, p.Calendar}
	if e = st.shared[of]; e == nil {
		e = st.share(of, now)
	}
	return e
}

// share returns a new shared state. Where there are too many in use, it is that of another limit which is fully
// reset last.
func (st *stripe) share(of limit, now int64) (e *entry) {
	if len(st.shared) >= maxShared {
		for k, x := range st.shared {
			if x.idleAt <= now {
				delete(st.shared, k)
			} else if k.kind == of.kind && (e == nil || x.idleAt > e.idleAt) {
				e = x
			}
		}
	}
	if e != nil && len(st.shared) >= maxShared {
		return e
	}
	if st.shared == nil {
		st.shared = make(map[limit]*entry)
	}
	e = newEntry(of.kind)
	st.shared[of] = e
	return e
}

// roomy reports whether there is a place for one more key.
func (st *stripe) roomy(now int64) bool {
	return len(st.idle) < st.max || st.idle.idleAt(now) != nil
}

// at returns e, or a new entry of id where find returned none. A peek, with a cost of 0, leaves no
// entry behind.
func (st *stripe) at(e *entry, id string, h uint64, p *algo.Params, now, n int64) *entry {
	switch {
	case e != nil:
		return e
	case n > 0:
		return st.add(p.Kind, id, h, now)
	}
	e = newEntry(p.Kind)
	st.recall(e, hashOf(p.Kind, h))
	return e
}

// take is Store.TakeInto.
func (st *stripe) take(d *algo.Decision, id string, h uint64, now int64, p *algo.Params, n int64, home *algo.Params, rc *Receipt) {
	e := st.find(p, id, h, now)
	var more, unit int64
	if p.Frac != 0 {
		var part algo.Params
		unit = p.Unit(now)
		part, more = e.part(p, now)
		p = &part
	}
	if n > 0 && n+p.Keep > p.Cap {
		st.at(e, id, h, p, now, 0).denied(d, p, now, n, more)
		return
	}
	if e == nil {
		e = st.at(e, id, h, p, now, n)
	}
	e.alone(p, now)
	e.decide(d, p, now, n)
	if !d.Allowed || n == 0 {
		return
	}
	e.idleAt = max(e.idleAt, now+unit)
	var owed *debt
	if home != nil {
		owed = st.owe(id, *p, now, algo.Use{Units: n}, e.level(p, now), home)
	}
	if rc != nil {
		*rc = Receipt{entry: e, age: e.age, debt: owed, params: *p, at: now, units: n}
	}
}

// add makes room for one more key, or returns nil when every key is in use.
func (st *stripe) add(kind algo.Kind, id string, h uint64, now int64) *entry {
	if len(st.idle) >= st.max {
		old := st.idle.idleAt(now)
		if old == nil {
			return nil
		}
		st.forget(old, now)
	}
	if st.keys == nil {
		st.keys = make(map[uint64]*entry)
	}
	h = hashOf(kind, h)
	e := newEntry(kind)
	e.id, e.idleAt, e.rank = id, now, now
	if x := st.recall(e, h); x != nil {
		*x = seen{}
	}
	if same := st.keys[h]; same != nil {
		e.out().next = same
	}
	st.keys[h] = e
	st.idle.push(e)
	return e
}

// forget drops the entry at the top of the heap.
func (st *stripe) forget(top *entry, now int64) {
	st.retire(top, now)
	st.idle.pop()
	st.unlink(top, hashOf(top.kind, maphash.String(st.seed, top.id)))
	st.sent(top)
}

// unlink takes an entry out of those of its hash.
func (st *stripe) unlink(e *entry, h uint64) {
	var next *entry
	if e.outside != nil {
		next = e.next
	}
	before := st.keys[h]
	switch {
	case before != e:
		for before.next != e {
			before = before.next
		}
		before.next = next
	case next != nil:
		st.keys[h] = next
	default:
		delete(st.keys, h)
	}
}

// hashOf is that of an id with hash h under an algorithm, never 0.
func hashOf(kind algo.Kind, h uint64) uint64 { return max(1, h^uint64(kind)<<32) }

// sent notes that the block of an entry need not be sent any more.
func (st *stripe) sent(e *entry) {
	if e.outside != nil && e.unsent != nil {
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
