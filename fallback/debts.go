package fallback

import "github.com/holdfast-go/holdfast/internal/algo"

// Debt is what was admitted of a key without charging it in Redis, and still
// weighs against the limit.
type Debt struct {
	ID    string
	Limit algo.Params // in Redis
	Units int64
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

// TakeDebts removes the debts of the keys that the filter accepts and returns
// those that still weigh. What is taken is not owed any more, whatever becomes
// of it: a debt is sent once.
func (s *Store) TakeDebts(accept func(id string) bool) []Debt {
	var out []Debt
	now := s.now()
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for k, d := range sh.debts {
			if !accept(k.id) {
				continue
			}
			delete(sh.debts, k)
			s.owed.Add(-1)
			if units := algo.Owed(d.own, &d.state, now); units > 0 {
				out = append(out, Debt{ID: k.id, Limit: d.home, Units: units})
			}
		}
		sh.mu.Unlock()
	}
	return out
}
