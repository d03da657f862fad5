package fallback

import "github.com/holdfast-go/holdfast/internal/algo"

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

// Debtors returns the keys that have a debt.
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
	return out
}

// TakeDebt removes the debt of a key, and returns it if it still weighs.
func (s *Store) TakeDebt(of Debtor) (Debt, bool) {
	sh := s.shard(of.k.id)
	now := s.now()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	d := sh.debts[of.k]
	if d == nil {
		return Debt{}, false
	}
	delete(sh.debts, of.k)
	s.owed.Add(-1)
	units := algo.Owed(d.own, &d.state, now)
	return Debt{ID: of.k.id, Limit: d.home, Units: units, own: d.own}, units > 0
}

// Return owes units of a debt again that was taken, and that Redis was not charged
// with.
func (s *Store) Return(d Debt, units int64) {
	sh := s.shard(d.ID)
	now := s.now()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s.owe(sh, d.ID, d.own, now, units, &d.Limit)
}
