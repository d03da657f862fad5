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
	state     algo.State
	sending   int // parts of it that are being charged
	full      int64
}

// drained is the time as of which the debt has drained. While a bucket in Redis refills what
// was used there before, it does not refill what was used here.
func (d *debt) drained(now int64) int64 {
	if d.own.Kind.Bucket() {
		return max(now, d.full)
	}
	return now
}
