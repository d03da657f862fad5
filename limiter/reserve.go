package limiter

import (
	"context"
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
// it took. It is safe for concurrent use.
type Reservation struct {
	// Result is the decision. When it is not Allowed, nothing was taken.
	Result

	of      *Limiter
	key     string
	receipt receipt
	cost    int
	settled atomic.Bool
}

// keeper is a limiter that takes units back.
type keeper interface {
	// giveBack gives n of the units of a receipt back.
	giveBack(ctx context.Context, rc *receipt, n int) error
	// charge takes n more, as many as there is room for.
	charge(ctx context.Context, rc *receipt, n int) error
}

// Cancel gives everything back. It is called with a context that may have ended:
// only the limiter's budget bounds it. When Redis cannot be asked, the units are
// given back when it can.
//
// The error is ErrSettled after Cancel or Settle and when the request was denied; ErrClosed
// when the limiter was closed, which then takes nothing back, one of NewLocal too; or
// ErrUnavailable when a reply was lost, so that it is not known whether the units were given
// back. They are not given back twice.
func (r *Reservation) Cancel(ctx context.Context) error { return r.Settle(ctx, 0) }

// Settle makes the cost what it really was, in one call: units beyond it are given back as
// by Cancel, and units that are missing are charged, as far as there is room for them, also
// from the critical headroom. That there is too little room is not an error. Under
// fallback.Open what is missing is not charged while Redis cannot be reached. The errors are
// those of Cancel, and ErrInvalidCost for a cost below 0, which settles nothing.
func (r *Reservation) Settle(ctx context.Context, cost int) error {
	switch {
	case cost < 0:
		return fmt.Errorf("%w: cost is %d: must not be negative", ErrInvalidCost, cost)
	case !r.Allowed || r.settled.Swap(true):
		return ErrSettled
	case r.Source == SourceOpen || cost == r.cost:
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	if cost < r.cost {
		defer r.of.callLine(r.key)
		return r.of.engine.giveBack(ctx, &r.receipt, r.cost-cost)
	}
	return r.of.engine.charge(ctx, &r.receipt, cost-r.cost)
}
