package fallback

import (
	"cmp"
	"slices"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// Debt is what was admitted of a key without charging it in Redis, and still
// weighs against the limit.
type Debt struct {
	ID    string
	Limit algo.Params // in Redis
	Units int64

	own algo.Params
}

type debtKey struct {
	kind algo.Kind
	id   string
}

type debt struct {
	home, own algo.Params
	state     algo.State
	sending   int // parts of it that are being charged
}

// owe adds n units to the debt of id. There are at most as many debts in a
// shard as keys; beyond that they are forgotten.
func (s *Store) owe(sh *shard, id string, own algo.Params, now, n int64, home *algo.Params) *debt {
	k := debtKey{own.Kind, id}
	d := sh.debts[k]
	if d == nil {
		if len(sh.debts) >= sh.max {
			return nil
		}
		if sh.debts == nil {
			sh.debts = make(map[debtKey]*debt)
		}
		d = new(debt)
		sh.debts[k] = d
		s.owed.Add(1)
	}
	d.home, d.own = *home, own
	algo.Owe(own, &d.state, now, n)
	return d
}

// Owed returns how many keys have a debt, at the cost of an atomic load.
func (s *Store) Owed() int { return int(s.owed.Load()) }

// Debtor is a key with a debt.
type Debtor struct{ k debtKey }

// ID is the key.
func (d Debtor) ID() string { return d.k.id }

// Debtors returns the keys that have a debt, sorted: a map has another order each time.
func (s *Store) Debtors() []Debtor {
	if s.owed.Load() == 0 {
		return nil
	}
	var out []Debtor
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for k := range sh.debts {
			out = append(out, Debtor{k})
		}
		sh.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b Debtor) int {
		return cmp.Or(cmp.Compare(a.k.id, b.k.id), cmp.Compare(a.k.kind, b.k.kind))
	})
	return out
}

// TakeDebt returns the debt of a key if it still weighs, to be charged. What was taken is
// not owed any more, but Redis does not know of it until Settled.
func (s *Store) TakeDebt(of Debtor) (Debt, bool) {
	sh := s.shard(of.k.id)
	now := s.now()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	d := sh.debts[of.k]
	if d == nil {
		return Debt{}, false
	}
	units := algo.Owed(d.own, &d.state, now)
	d.state = algo.State{}
	if units == 0 {
		s.settle(sh, of.k, now)
		return Debt{}, false
	}
	d.sending++
	return Debt{ID: of.k.id, Limit: d.home, Units: units, own: d.own}, true
}

// Settled says what came of a debt that was taken: units of it were not charged, and are
// owed again.
func (s *Store) Settled(d Debt, units int64) {
	sh := s.shard(d.ID)
	now := s.now()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	k := debtKey{d.own.Kind, d.ID}
	if sh.debts[k] == nil {
		return // the key was reset
	}
	sh.debts[k].sending--
	if units > 0 {
		s.owe(sh, d.ID, d.own, now, units, &d.Limit)
	}
	s.settle(sh, k, now)
}

// settle drops a debt of which nothing is left.
func (s *Store) settle(sh *shard, k debtKey, now int64) {
	if d := sh.debts[k]; d.sending <= 0 && algo.Owed(d.own, &d.state, now) == 0 {
		delete(sh.debts, k)
		s.owed.Add(-1)
	}
}
