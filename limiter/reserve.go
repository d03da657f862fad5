package limiter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// Reservation is a decision whose units can be given back: for work that may not
// take place, or whose cost is known only afterwards. It remembers where they were
// taken, in Redis, in this process or from a lease, and when, and gives them back
// there; a key never has more than its limit, whatever is given back.
//
// What can still be given back depends on the algorithm:
//
//   - FixedWindow, SlidingWindowLog, SlidingWindowCounter: all of it, while the
//     window in which it was taken counts.
//   - TokenBucket, LeakyBucket, GCRA: what cannot have drained since. When the
//     limit produces r units per second, then of n units taken t seconds ago at
//     most n - r·t: the bucket may have been full meanwhile, and what was not
//     refilled then would be granted twice.
//   - LeakyBucketShaping: nothing. Those behind already know their place.
//
// Units that were taken in this process during an outage can be given back until Redis
// has been charged with them.
//
// It is settled once, by Cancel or by Settle; one that is never settled keeps what
// it took. It is safe for concurrent use. One that a test makes by hand, with a Result
// alone, gives nothing back.
type Reservation struct {
	// Result is the decision. When it is not Allowed, nothing was taken.
	Result
	// Denied and Parts are those of the MultiResult of a Multi.
	Denied string
	Parts  []PartResult

	first   taken   // of a Limiter
	parts   []taken // of a Multi
	settled atomic.Bool
}

// taken is what a reservation has taken of one limiter.
type taken struct {
	of      *Limiter
	part    string // its name; "" is no part
	key     string
	cost    int
	source  Source
	receipt receipt
}

// keeper is a limiter that takes units back.
type keeper interface {
	// giveBack gives n of the units of a receipt back.
	giveBack(ctx context.Context, rc *receipt, n int) error
	// charge takes n more, as many as there is room for.
	charge(ctx context.Context, rc *receipt, n int) error
}

// Cancel gives everything back. It is called with a context that may have ended:
// only the limiter's budget bounds it, of a Multi the longest of its parts. When Redis cannot be asked, the units are
// given back when it can.
//
// The error is ErrSettled after Cancel or Settle and when the request was denied; ErrClosed
// when the limiter was closed, which then takes nothing back, one of NewLocal too; or
// ErrUnavailable when a reply was lost, so that it is not known whether the units were given
// back. They are not given back twice. The errors of the parts of a Multi are joined.
func (r *Reservation) Cancel(ctx context.Context) error { return r.Settle(ctx, 0) }

// Settle makes the cost what it really was, in one call for each limiter: units beyond it are given back as
// by Cancel, and units that are missing are charged, as far as there is room for them, also
// from the critical headroom. That there is too little room is not an error, nor is a reply to that
// which was lost: perhaps they are charged, and no one charges them again. Under
// fallback.Open what is missing is not charged while Redis cannot be reached. Of a Multi there
// is one cost for all parts, or one for each. Without a cost all that was taken is kept.
//
// The errors are those of Cancel, ErrInvalidCost for a cost below 0, and ErrInvalidConfig for
// another number of costs, which settle nothing.
func (r *Reservation) Settle(ctx context.Context, cost ...int) error {
	if !r.Allowed { // whose parts are not known any more
		return ErrSettled
	}
	n := max(1, len(r.parts))
	if len(cost) > 1 && len(cost) != n {
		return invalidCosts(len(cost), n)
	}
	for _, c := range cost {
		if c < 0 {
			return fmt.Errorf("%w: cost is %d: must not be negative", ErrInvalidCost, c)
		}
	}
	if r.settled.Swap(true) {
		return ErrSettled
	}
	ctx = context.WithoutCancel(ctx)
	settle := func(t *taken, i int) error {
		c := t.cost
		if len(cost) > 0 {
			c = cost[min(i, len(cost)-1)]
		}
		return ofPart(t.part, t.settle(ctx, c))
	}
	if r.parts == nil {
		return settle(&r.first, 0)
	}
	return errors.Join(sideBySide(n, func(i int) error { return settle(&r.parts[i], i) })...)
}

// settle makes the cost of what was taken another one.
func (t *taken) settle(ctx context.Context, cost int) error {
	switch {
	case t.source == SourceOpen || cost == t.cost || t.of == nil:
		return nil
	case cost < t.cost:
		defer t.of.callLine(t.key)
		return t.of.engine.giveBack(ctx, &t.receipt, t.cost-cost)
	}
	return t.of.engine.charge(ctx, &t.receipt, cost-t.cost)
}

// CountFailed counts only what failed: it reserves what the options ask for, of a Limiter or a
// Multi, calls work, and gives the units back unless work says that it failed, or panics. So logins may be
// limited by the wrong passwords, and as many may be tried at the same time as are left. Work is not
// called when the request is denied, or there is an error, which is one of Reserve. Units that cannot be given back stay
// charged, which is not an error.
func CountFailed(ctx context.Context, of interface {
	Reserve(ctx context.Context, key string, opts ...CallOption) (*Reservation, error)
}, key string, work func(ctx context.Context) (failed bool), opts ...CallOption) (MultiResult, error) {
	r, err := of.Reserve(ctx, key, opts...)
	switch {
	case err != nil:
		return MultiResult{}, err
	case r.Allowed && !work(ctx):
		_ = r.Cancel(ctx)
	}
	return MultiResult{r.Result, r.Denied, r.Parts}, nil
}
