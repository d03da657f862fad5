package inprocess

import "github.com/holdfast-go/holdfast/internal/algo"

// Debt is what was admitted of a key without charging it in Redis, and still
// weighs against the limit.
type Debt struct {
	ID    string
	Limit algo.Params // in Redis
	Uses  []algo.Use

	own algo.Params
	of  *debt // of which it was taken: after a reset the key has another one
}

// Debtor is a key with a debt.
type Debtor struct{ k debtKey }

// ID is the key.
func (d Debtor) ID() string { return d.k.id }

// Kind is the algorithm of its limit.
func (d Debtor) Kind() algo.Kind { return d.k.kind }

type debtKey struct {
	kind algo.Kind
	id   string
}

type debt struct {
	home, own algo.Params
	// state is what weighs: of a bucket the level of the local one, which also holds what was
	// used before Redis was lost, because that drains first there as it does in Redis.
	state   algo.State
	units   int64 // admitted, and not charged: no more weigh
	sending int   // parts of it that are being charged
}

// owed is what weighs of the debt at now.
func (d *debt) owed(now int64) []algo.Use {
	if d.units == 0 {
		return nil
	}
	all := algo.Owed(d.own, &d.state, now)
	if len(all) > 0 && !d.own.Kind.Windowed() { // the level holds more than was admitted here
		all[0].Units = min(all[0].Units, d.units)
	}
	return all
}

// forgive takes n units back of those that were admitted at a time.
func (d *debt) forgive(now, at, admitted, n int64) {
	algo.Forgive(d.own, &d.state, now, at, admitted, n)
	d.units = max(0, d.units-n)
}
