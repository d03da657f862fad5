package inprocess

import (
	"hash/maphash"
	"math"
	"math/bits"

	"github.com/holdfast-go/holdfast/internal/algo"
)

const (
	// maxSeen is of how many keys at most a store notes what Redis says of them, in 56 bytes each.
	maxSeen = 1 << 15
	// ways is how many places a key may have.
	ways = 4
)

// seen is what Redis said last of a key without a state in this process: the state begins with
// it. While Redis decides, that is all there is of a key, so that the memory does not grow with
// the keys. The zero value is of no key.
type seen struct {
	hash  uint64 // of the id and the algorithm
	cap   int64  // of which limit
	left  int64  // how much was left
	until int64  // and how long that matters
	// As in grants, while Redis decides.
	units, most float64
	at          int64
}

func (x *seen) grants() grants { return grants{units: x.units, most: x.most, at: x.at} }

func (x *seen) keep(g grants) { x.units, x.most, x.at = g.units, g.most, g.at }

// table is a fixed number of them, which is made when the first one comes.
type table []seen

// find returns what is noted under a hash, nil without.
func (t table) find(hash uint64) *seen {
	if t == nil {
		return nil
	}
	set := t.set(hash)
	for i := range set {
		if set[i].hash == hash {
			return &set[i]
		}
	}
	return nil
}

// set is the places of a hash. Its upper bits have chosen the stripe.
func (t table) set(hash uint64) []seen {
	i := hash & uint64(len(t)/ways-1) * ways
	return t[i : i+ways]
}

// room returns an empty place for a hash, in which that was which matters for the shortest time:
// at most until a time, else nil.
func (st *stripe) room(hash uint64, until int64) *seen {
	if st.seen == nil {
		keys := min(st.max, maxSeen/st.of)
		st.seen = make(table, max(ways, 1<<bits.Len64(uint64(keys-1))))
	}
	set := st.seen.set(hash)
	x := &set[0]
	for i := range set {
		if set[i].until < x.until {
			x = &set[i]
		}
	}
	if x.until > until {
		return nil
	}
	*x = seen{hash: hash}
	return x
}

// said is what Redis says now: how much is left of which limit, and until when that matters. Where only lower it
// replaces what was said before, unless that left less of its limit: a replica may be behind, and another limit may have more.
func said(limit, left, until *int64, lower bool, p *algo.Params, d *algo.Decision, now int64) {
	end := now + d.ResetAfter
	if lower && float64(*left)*float64(p.Cap) < float64(d.Remaining)*float64(*limit) {
		*until = max(*until, end)
		return
	}
	*limit, *left, *until = p.Cap, d.Remaining, end
}

// see notes what Redis said of a key without an entry: see Store.Observe.
func (st *stripe) see(hash uint64, p *algo.Params, d algo.Decision, granted, now int64) {
	x := st.seen.find(hash)
	if x == nil {
		if d.ResetAfter == 0 {
			return
		}
		x = st.room(hash, math.MaxInt64)
	}
	said(&x.cap, &x.left, &x.until, granted <= 0 && x.until > now, p, &d, now)
	if granted > 0 {
		g := x.grants()
		g.add(*p, granted, now, 0)
		x.keep(g)
	}
}

// retire keeps what was granted of a key whose entry is forgotten, where a place is free.
func (st *stripe) retire(e *entry, now int64) {
	if e.outside == nil || e.grants.units == 0 {
		return
	}
	g := e.grants
	if e.lost != 0 { // the time in which this process decided alone does not count
		g.at += now - e.lost
	}
	if x := st.room(hashOf(e.kind, maphash.String(st.seed, e.id)), now); x != nil {
		x.until = 1 // it is fully reset
		x.keep(g)
	}
}

// recall lets e begin with what Redis said of its key, and returns that.
func (st *stripe) recall(e *entry, hash uint64) *seen {
	x := st.seen.find(hash)
	if x != nil {
		e.outside = new(outside)
		e.seenCap, e.seenLeft, e.seenUntil, e.restart, e.grants = x.cap, x.left, x.until, true, x.grants()
		e.idleAt = max(e.idleAt, x.until)
	}
	return x
}
