package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/wait"
)

// Multi is several limits for one request, all or nothing: per second and per hour;
// per user, per tenant and for all. When one of them denies a request, none of them is
// charged for it.
//
// Parts whose keys are on one server are decided by one atomic call: a standalone
// Redis, or in a cluster keys of one slot. Others are asked in order, and what was
// taken is given back when a later one denies; other callers may be denied because
// of it for that moment, and a bucket may keep a fraction of a unit.
//
// Each part has its own fallback: what Redis cannot decide, its limiter does. The atomic call
// goes through the circuit breaker of the first part's limiter: only its Health and its log
// report that Redis is unavailable. The breakers of the other parts do not see that call.
// Limiters with leases or key shards are asked one by one too. A Multi is safe for
// concurrent use and needs no Close; its limiters do.
type Multi struct {
	parts    []Part
	observed bool // a part has a hook for decisions
	lines    wait.Lines[lineOf]
}

var _ Allower = (*Multi)(nil)

// NewMulti returns the limits as one. The error matches ErrInvalidConfig: there must be a
// part, each with a limiter, a name and, among those of one Redis, a prefix that no
// other has.
func NewMulti(parts ...Part) (*Multi, error) {
	if len(parts) == 0 {
		return nil, invalid("parts", 0, "must be at least 1")
	}
	m := &Multi{parts: slices.Clone(parts)}
	for i, p := range parts {
		switch {
		case p.Name == "":
			return nil, invalid("name", fmt.Sprintf("empty for part %d", i), "must not be empty")
		case p.Limiter == nil:
			return nil, invalid("limiter", fmt.Sprintf("nil for part %q", p.Name), "must not be nil")
		case p.Limiter.redis == nil:
			return nil, invalid("limiter", fmt.Sprintf("one of NewLocal for part %q", p.Name), "must be made by New")
		}
		for _, other := range parts[:i] {
			switch {
			case other.Name == p.Name:
				return nil, invalid("name", p.Name, "must be used for one part only")
			case other.Limiter.redis.decider.redis.Prefix == p.Limiter.redis.decider.redis.Prefix && sameClient(other.Limiter, p.Limiter):
				return nil, invalid("prefix", p.Limiter.redis.decider.redis.Prefix, "is that of the parts %q and %q, which would share their counts: give each a prefix of its own", other.Name, p.Name)
			}
		}
		m.observed = m.observed || p.Limiter.hook != nil
	}
	return m, nil
}

// Allow asks all parts for one unit of their key for key, or for a Cost, or each part for
// the Cost at its place: requests and tokens, say. A Cost of 0 is a peek.
//
// The error is that of a part, with its name, as by Limiter.Allow; then none is
// charged. It matches ErrInvalidConfig when there is neither one Cost nor one for each part.
func (m *Multi) Allow(ctx context.Context, key string, cost ...Cost) (MultiResult, error) {
	return m.decide(ctx, key, cost, nil)
}

// AllowN is Allow with a Cost of n, for those who take an Allower.
func (m *Multi) AllowN(ctx context.Context, key string, n int) (Result, error) {
	res, err := m.decide(ctx, key, []Cost{Cost(n)}, nil)
	return res.Result, err
}

// Wait waits until all parts admit what Allow asks for, all at one time: what some parts could
// admit sooner is not reserved meanwhile. Then it waits for the Delay of parts that shape.
//
// Callers of Wait with one key stand in line as for Limiter.Wait. The line is the Multi's own:
// callers who wait for the limiter of a part alone do not stand in it. When the context's
// deadline leaves too little time, Wait returns a *WaitError at once, and nothing is charged.
// Other errors are those of Allow. A caller whose context ends during the Delay has been
// charged, as Limiter.Wait says.
func (m *Multi) Wait(ctx context.Context, key string, cost ...Cost) (MultiResult, error) {
	var last MultiResult
	link, n := m.parts[0].Limiter.redis.decider.redis, 1
	closed, end := context.WithCancel(context.Background()) // it ends with any part
	defer end()
	for _, p := range m.parts {
		defer context.AfterFunc(p.Limiter.redis.decider.redis.Life(), end)()
	}
	if len(cost) > 0 {
		n = int(slices.Min(cost)) // at least so much of each part
	}
	var w waiter
	w = waiter{
		ctx: ctx, closed: closed.Done(), n: n, own: len(cost) > 1, processes: link.Processes,
		ask: func(ctx context.Context) (Result, error) {
			var err error
			last, err = m.decide(ctx, key, cost, nil)
			for _, p := range last.Parts {
				w.own = w.own || p.Result.Limit.kind == algo.LeakyBucketShaping
			}
			return last.Result, err
		},
		queue: func(units int) (least time.Duration, err error) {
			if err := fits(m.parts, cost); err != nil {
				return 0, err
			}
			for i, p := range m.parts {
				of := p.of(key, cost, i)
				s, err := p.Limiter.enter(ctx, of.key, of.n, p.Limiter.limits.choose(ctx, of.key))
				if err != nil {
					return 0, ofPart(p.Name, err)
				}
				least = max(least, s.least(units))
			}
			return least, nil
		},
	}
	var err error
	last.Result, err = w.wait(&m.lines, lineOf{key: key})
	return last, err
}

// Block denies key for d, as Limiter.Block does, in each part that has key itself as its key. A
// part with a Key function shares its keys with others and is not blocked. The error matches
// ErrInvalidConfig when there is no other part; else it joins those of the parts.
func (m *Multi) Block(ctx context.Context, key string, d time.Duration) error {
	errs, blocked := make([]error, 0, len(m.parts)), 0
	for _, p := range m.parts {
		if p.Key != nil {
			continue
		}
		blocked++
		if err := p.Limiter.Block(ctx, key, d); err != nil {
			errs = append(errs, ofPart(p.Name, err))
		}
	}
	if blocked == 0 {
		return invalid("parts", len(m.parts), "must have one without a Key function, which can be blocked")
	}
	return errors.Join(errs...)
}

// fits returns an error unless there is a cost for each part.
func fits(parts []Part, cost []Cost) error {
	if len(cost) > 1 && len(cost) != len(parts) {
		return invalid("costs", len(cost), "must be one for all parts, or one for each of %d", len(parts))
	}
	return nil
}

// decide decides, and calls the hooks of the parts.
func (m *Multi) decide(ctx context.Context, key string, cost []Cost, receipts []receipt) (res MultiResult, err error) {
	if err := fits(m.parts, cost); err != nil {
		return MultiResult{}, err
	}
	start := time.Now()
	a := newMultiDecision(m.parts, key, cost, receipts)
	failed, err := a.decide(ctx)
	if err != nil {
		err = ofPart(m.parts[failed].Name, err)
	} else {
		res = a.result()
	}
	if m.observed {
		a.callHooks(ctx, res.Allowed, failed, err, time.Since(start))
	}
	return res, err
}

// MultiReservation is a Reservation of each part of a Multi.
type MultiReservation struct {
	MultiResult
	parts []*Reservation
	of    []Part
}

// Reserve asks as Allow does, for units that may be given back.
func (m *Multi) Reserve(ctx context.Context, key string, cost ...Cost) (*MultiReservation, error) {
	receipts := make([]receipt, len(m.parts))
	res, err := m.decide(ctx, key, cost, receipts)
	if err != nil {
		return nil, err
	}
	r := &MultiReservation{MultiResult: res, of: m.parts}
	if !res.Allowed {
		return r, nil
	}
	for i, p := range res.Parts {
		r.parts = append(r.parts, &Reservation{
			Result: p.Result, of: m.parts[i].Limiter, key: m.parts[i].of(key, cost, i).key, receipt: receipts[i], cost: costAt(cost, i),
		})
	}
	return r, nil
}

// Cancel gives back what was not settled yet, as Reservation.Cancel does. The error
// is ErrSettled when the request was denied or every part had been settled, or what giving
// back met with.
func (r *MultiReservation) Cancel(ctx context.Context) error {
	return r.Settle(ctx, 0)
}

// Settle says what the request cost really: one Cost for all parts, or one for each, as in
// Reserve. The errors are those of Cancel and of Reservation.Settle, and ErrInvalidConfig
// as in Allow.
func (r *MultiReservation) Settle(ctx context.Context, cost ...Cost) error {
	if !r.Allowed {
		return ErrSettled
	}
	if err := fits(r.of, cost); err != nil {
		return err
	}
	errs := make([]error, 0, len(r.parts))
	settled := 0
	for i, p := range r.parts {
		switch err := p.Settle(ctx, costAt(cost, i)); {
		case errors.Is(err, ErrSettled):
			settled++
		case err != nil:
			errs = append(errs, ofPart(r.of[i].Name, err))
		}
	}
	if settled == len(r.parts) {
		return ErrSettled
	}
	return errors.Join(errs...)
}
