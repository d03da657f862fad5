// Package inprocess holds the limiters of one process: those of limiter.NewLocal, and those
// that decide by the policy fallback.Local while Redis cannot. They run the same algorithms
// as the scripts in Redis, in bounded memory.
package inprocess

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// DefaultMaxKeys is how many keys a store remembers by default: at
// about 200 bytes each, 20 MB. The sliding window log needs 16 more for each time
// at which it admitted something within the window.
const DefaultMaxKeys = 100_000

// Store decides in process, for many keys. It remembers at most a fixed number
// of keys. A key whose state equals that of a key never used is forgotten
// first, which costs nothing; while every remembered key is in use, keys beyond
// the cap share one state per stripe and limit, so that a flood of keys neither grows the
// memory nor opens the limit, and other keys are still served.
//
// A Store is safe for concurrent use and has no goroutine. Make one with
// NewStore.
type Store struct {
	seed    maphash.Seed
	now     func() int64
	stripes []stripe
	totals  totals
}

// NewStore returns a store for at most maxKeys keys, which must be at least 1.
func NewStore(maxKeys int) *Store {
	return newStore(maxKeys, newClock())
}

func newStore(maxKeys int, now func() int64) *Store {
	s := &Store{seed: maphash.MakeSeed(), now: now, stripes: make([]stripe, min(maxStripes, max(1, maxKeys/keysPerStripe)))}
	for i := range s.stripes {
		s.stripes[i].totals, s.stripes[i].seed, s.stripes[i].of = &s.totals, s.seed, len(s.stripes)
		s.stripes[i].max = maxKeys / len(s.stripes)
		if i < maxKeys%len(s.stripes) {
			s.stripes[i].max++
		}
	}
	return s
}

// lock returns the stripe of an id, locked, the hash of the id, and the time.
func (s *Store) lock(id string) (*stripe, uint64, int64) {
	now, h := s.now(), maphash.String(s.seed, id)
	i, _ := bits.Mul64(h, uint64(len(s.stripes))) // a part of the range of the hash each
	st := &s.stripes[i]
	st.mu.Lock()
	return st, h, now
}

// each calls fn with each stripe, locked.
func (s *Store) each(fn func(*stripe)) {
	for i := range s.stripes {
		st := &s.stripes[i]
		st.mu.Lock()
		fn(st)
		st.mu.Unlock()
	}
}

// Decide charges a cost of n, which may be 0, to id under p. A cost above p.Cap
// is denied: it is more than this process may ever admit at once.
func (s *Store) Decide(id string, p algo.Params, n int64) algo.Decision {
	return s.Take(id, &p, n, nil, nil)
}

// Peek returns what Decide would return, and changes nothing but what a denial changes. What would be
// admitted has the Remaining of now.
func (s *Store) Peek(id string, p algo.Params, n int64) (d algo.Decision) {
	st, h, now := s.lock(id)
	defer st.mu.Unlock()
	e := st.find(&p, id, h, now)
	p, more := e.part(&p, now)
	e = st.at(e, id, h, &p, now, 0)
	e.decide(&d, &p, now, 0)
	if n > 0 && (!d.Allowed || d.Remaining < n+p.Keep) {
		e.denied(&d, &p, now, n, more)
	}
	return d
}

// Take is Decide with two more uses. With home, the limit in Redis, what is admitted is a
// debt under that limit, until it is taken by TakeDebt. With rc, it can be given back.
func (s *Store) Take(id string, p *algo.Params, n int64, home *algo.Params, rc *Receipt) (d algo.Decision) {
	s.TakeInto(&d, id, p, n, home, rc)
	return d
}

// TakeInto is Take without copies of the decision, of which each takes as long as one step of an
// algorithm: the processor waits for what it has just written. It sets all of d.
func (s *Store) TakeInto(d *algo.Decision, id string, p *algo.Params, n int64, home *algo.Params, rc *Receipt) {
	st, h, now := s.lock(id)
	st.take(d, id, h, now, p, n, home, rc)
	st.mu.Unlock()
}

// Reset forgets id: its state and its block under every algorithm.
func (s *Store) Reset(id string) {
	st, h, _ := s.lock(id)
	defer st.mu.Unlock()
	for _, kind := range algo.Kinds {
		if x := st.seen.find(hashOf(kind, h)); x != nil {
			*x = seen{}
		}
		if d := (debtKey{kind, id}); st.debts[d] != nil { // also of a key without an entry
			delete(st.debts, d)
			s.totals.owed.Add(-1)
		}
		e := st.get(kind, id, h)
		if e == nil {
			continue
		}
		// The entry stays in the heap as one that costs nothing to forget.
		st.sent(e)
		e.clear()
		st.idle.lower(e)
	}
}

// Len returns how many keys are remembered.
func (s *Store) Len() int {
	n := 0
	s.each(func(st *stripe) { n += len(st.idle) })
	return n
}

// Receipt is for units that Take admitted. The zero value is for none.
type Receipt struct {
	entry  *entry
	age    uint32
	debt   *debt
	params algo.Params
	at     int64
	units  int64
}

// GiveBack returns n of the units of rc to id, as algo.GiveBack does, and reports
// how many that were. They are not owed any more either. A state that has begun again since
// takes nothing back: Redis has decided again, or the key was reset. A receipt must
// be used once.
func (s *Store) GiveBack(id string, rc *Receipt, n int64) int64 {
	if rc.entry == nil {
		return 0
	}
	st, _, now := s.lock(id)
	defer st.mu.Unlock()
	if d := rc.debt; d != nil && st.debts[debtKey{rc.params.Kind, id}] == d {
		d.forgive(now, rc.at, rc.units, n)
	}
	e := rc.entry
	if e.age != rc.age || e.restarts() {
		return 0
	}
	return e.giveBack(&rc.params, now, rc.at, rc.units, n)
}

// Refund returns n units of id, under p, that were taken just now by any caller. Up to most of them
// are not owed any more: it returns how many were.
func (s *Store) Refund(id string, p algo.Params, n, most int64) (forgiven int64) {
	st, h, now := s.lock(id)
	defer st.mu.Unlock()
	if d := st.debts[debtKey{p.Kind, id}]; d != nil && most > 0 {
		forgiven = min(most, d.units)
		d.forgive(now, now, most, most)
	}
	e := st.get(p.Kind, id, h)
	switch {
	case e == nil || e.restarts():
	case p.Kind == algo.TokenBucket:
		e.giveBack(&p, now, now, n, n)
	default:
		algo.Refund(p, e.state, now, n)
	}
	return forgiven
}

// Charge takes up to n units of id, as many as there is room for, whatever they
// are kept for. With a home all of them are owed, up to that limit.
func (s *Store) Charge(id string, p algo.Params, n int64, home *algo.Params) {
	st, h, now := s.lock(id)
	defer st.mu.Unlock()
	e, unit := st.find(&p, id, h, now), p.Unit(now)
	p, _ = e.part(&p, now)
	p.Keep = 0
	e = st.at(e, id, h, &p, now, min(n, p.Cap))
	e.alone(&p, now)
	e.debit(&p, now, n)
	e.idleAt = max(e.idleAt, now+unit)
	if home != nil { // more than the limit weighs no more, and sums of it may be too large
		st.owe(id, p, now, algo.Use{Units: min(n, home.Cap)}, e.level(&p, now), home)
	}
}

// Observe notes what Redis said of id under the limit p: should Redis be lost,
// this process starts from its part of what was left, and not from full.
//
// granted is how many units Redis has charged for this process, and 0 for an answer that
// charged nothing. Only one that charged describes the key as it is, and the local state
// begins again. Any other, and any while local use is not charged in Redis, may lower what
// is left here, and never raises it: Redis may be answering reads alone. Redis was away until
// ago µs ago, and that time does not count for what it granted.
func (s *Store) Observe(id string, p algo.Params, d algo.Decision, granted, ago int64) {
	charged := granted > 0
	st, h, now := s.lock(id)
	defer st.mu.Unlock()
	e := st.get(p.Kind, id, h)
	if e == nil {
		if idle := st.idle.idleAt(now); idle != nil {
			st.forget(idle, now) // of an outage
		}
		st.see(hashOf(p.Kind, h), &p, d, granted, now)
		return
	}
	o := e.out()
	if charged && (st.debts == nil || st.debts[debtKey{p.Kind, id}] == nil) {
		o.restart = true
	}
	said(&o.seenCap, &o.seenLeft, &o.seenUntil, !charged && o.restart && o.seenUntil > now, &p, &d, now)
	e.idleAt = max(e.idleAt, now+d.ResetAfter)
	if charged {
		o.grants.add(p, granted, now, e.away(now, ago))
		o.lost = 0
	}
}

// Granted returns the part of the limit p of id that Redis granted this process lately, or
// had granted when this process began to decide alone, if Redis was away since, until ago µs ago. It errs low: what is forgotten is 0, and so
// is that of a key without a place, which would become less with time: a part that changes within a
// window has another unit there each time (see algo.Params.In).
func (s *Store) Granted(id string, p algo.Params, ago int64) float64 {
	st, h, now := s.lock(id)
	defer st.mu.Unlock()
	if e := st.get(p.Kind, id, h); e != nil {
		if e.outside == nil {
			return 0
		}
		return e.grants.part(p, now, e.away(now, ago))
	}
	x := st.seen.find(hashOf(p.Kind, h))
	if x == nil || !st.roomy(now) {
		return 0
	}
	g := x.grants()
	return g.part(p, now, 0)
}

// Returned notes that n units of id, which Redis granted this process, were given back.
func (s *Store) Returned(kind algo.Kind, id string, n int64) {
	st, h, _ := s.lock(id)
	defer st.mu.Unlock()
	if e := st.get(kind, id, h); e != nil {
		if e.outside != nil {
			e.grants.give(n)
		}
	} else if x := st.seen.find(hashOf(kind, h)); x != nil {
		g := x.grants()
		g.give(n)
		x.keep(g)
	}
}

// Block denies id for d microseconds under the algorithm of p, unless it is blocked for
// longer already, and returns the time left. Until Sent it counts as unknown to Redis.
// While every remembered key is in use, a block of a key not among them is not
// remembered: 0.
func (s *Store) Block(id string, p algo.Params, d int64) int64 {
	st, h, now := s.lock(id)
	defer st.mu.Unlock()
	e := st.get(p.Kind, id, h)
	if e == nil {
		if e = st.add(p.Kind, id, h, now); e == nil {
			return 0
		}
	}
	longer := d > e.blocked(now)
	left := algo.Block(e.blocks(), now, d)
	e.idleAt = max(e.idleAt, now+left)
	for end := st.totals.blocked.Load(); end < now+left && !st.totals.blocked.CompareAndSwap(end, now+left); {
		end = st.totals.blocked.Load()
	}
	if longer {
		o := e.out()
		if o.unsent == nil {
			s.totals.unsent.Add(1)
		}
		o.unsent = &p
	}
	return left
}

// Sent notes that Redis blocks id for another left µs. A block that is longer here is
// still to be sent.
func (s *Store) Sent(kind algo.Kind, id string, left int64) {
	st, h, now := s.lock(id)
	defer st.mu.Unlock()
	if e := st.get(kind, id, h); e != nil && left >= e.blocked(now) {
		st.sent(e)
	}
}

// Unsent returns the time left of a block of id that Redis does not know of, 0
// without, at the cost of an atomic load when there are none.
func (s *Store) Unsent(kind algo.Kind, id string) int64 {
	if s.totals.unsent.Load() == 0 {
		return 0
	}
	st, h, now := s.lock(id)
	defer st.mu.Unlock()
	e := st.get(kind, id, h)
	if e == nil || e.outside == nil || e.unsent == nil {
		return 0
	}
	left := e.blocked(now)
	if left == 0 {
		st.sent(e) // it is over
	}
	return left
}

// Blocked returns the time left of a block of id by this process, without a lock while no key is blocked.
func (s *Store) Blocked(kind algo.Kind, id string) int64 {
	if end := s.totals.blocked.Load(); end == 0 || end <= s.now() {
		return 0
	}
	st, h, now := s.lock(id)
	defer st.mu.Unlock()
	if e := st.get(kind, id, h); e != nil {
		return e.blocked(now)
	}
	return 0
}

// UnsentBlock is a block that Redis does not know of.
type UnsentBlock struct {
	ID    string
	Limit algo.Params // in Redis
}

// UnsentAny reports whether there is one.
func (s *Store) UnsentAny() bool { return s.totals.unsent.Load() > 0 }

// UnsentBlocks returns those there are.
func (s *Store) UnsentBlocks() (out []UnsentBlock) {
	if !s.UnsentAny() {
		return nil
	}
	s.each(func(st *stripe) {
		for _, e := range st.idle {
			if e.outside != nil && e.unsent != nil {
				out = append(out, UnsentBlock{e.id, *e.unsent})
			}
		}
	})
	return out
}

// Owed returns how many keys have a debt, at the cost of an atomic load.
func (s *Store) Owed() int { return int(s.totals.owed.Load()) }

// Debtors returns the keys that have a debt, sorted: a map has another order each time.
func (s *Store) Debtors() []Debtor {
	if s.totals.owed.Load() == 0 {
		return nil
	}
	var out []Debtor
	s.each(func(st *stripe) {
		for k := range st.debts {
			out = append(out, Debtor{k})
		}
	})
	slices.SortFunc(out, func(a, b Debtor) int {
		return cmp.Or(cmp.Compare(a.k.id, b.k.id), cmp.Compare(a.k.kind, b.k.kind))
	})
	return out
}

// TakeDebt returns the debt of a key if it still weighs, to be charged. What was taken is
// not owed any more, but Redis does not know of it until Settled.
func (s *Store) TakeDebt(of Debtor) (Debt, bool) {
	st, _, now := s.lock(of.k.id)
	defer st.mu.Unlock()
	d := st.debts[of.k]
	if d == nil {
		return Debt{}, false
	}
	uses := d.owed(now)
	d.state, d.units = algo.State{}, 0
	if len(uses) == 0 {
		st.settle(of.k, now)
		return Debt{}, false
	}
	d.sending++
	return Debt{ID: of.k.id, Limit: d.home, Uses: uses, own: d.own, of: d}, true
}

// Settled says what came of a debt that was taken: some of it was not charged, and is owed
// again.
func (s *Store) Settled(d Debt, back []algo.Use) {
	st, _, now := s.lock(d.ID)
	defer st.mu.Unlock()
	k := debtKey{d.own.Kind, d.ID}
	if st.debts[k] != d.of {
		return // the key was reset
	}
	d.of.sending--
	for _, use := range back {
		st.owe(d.ID, d.own, now, use, 0, &d.Limit)
	}
	st.settle(k, now)
}

// newClock returns the time in microseconds of the epoch. It starts from the
// wall clock, so that windows are aligned to the epoch, and goes on by the
// monotonic one, so that it never steps back.
func newClock() func() int64 {
	start := time.Now()
	base := start.UnixMicro()
	return func() int64 { return base + time.Since(start).Microseconds() }
}
