package limiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
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
	clients  []int // of each part, the first part that has the same
	observed bool  // a part has a hook for decisions
	unused   sync.Pool
	lines    wait.Lines[lineOf]
}

var _ Allower = (*Multi)(nil)

// NewMulti returns the limits as one. The error matches ErrInvalidConfig: there must be a
// part, each with a limiter of New, a name and, among those of one Redis, a prefix that no
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
		m.clients = append(m.clients, i)
		for j, other := range parts[:i] {
			same := sameClient(other.Limiter, p.Limiter)
			if same {
				m.clients[i] = min(m.clients[i], j)
			}
			switch {
			case other.Name == p.Name:
				return nil, invalid("name", p.Name, "must be used for one part only")
			case other.Limiter.redis.decider.redis.Prefix == p.Limiter.redis.decider.redis.Prefix && same:
				return nil, invalid("prefix", p.Limiter.redis.decider.redis.Prefix, "must not be that of both %q and %q, which would share their counts: give each part a limiter with a prefix of its own by WithPrefix", other.Name, p.Name)
			}
		}
		m.observed = m.observed || p.Limiter.hook != nil
	}
	return m, nil
}

// Allow asks all parts for one unit of their key for key, or for a Cost, or each part for
// the Cost at its place: requests and tokens, say. A Cost of 0 is a peek. In the same way a
// Limit for each part may be given, in their order, of which the zero Limit is the part's own.
//
// The error is that of a part, with its name, as by Limiter.Allow; then none is
// charged. It matches ErrInvalidConfig when there is neither one Cost nor one for each part, or
// not a Limit for each.
func (m *Multi) Allow(ctx context.Context, key string, opts ...CallOption) (MultiResult, error) {
	return m.decide(ctx, key, opts, nil)
}

// AllowN is Allow with a Cost of n, for those who take an Allower.
func (m *Multi) AllowN(ctx context.Context, key string, n int) (Result, error) {
	res, err := m.decide(ctx, key, []CallOption{Cost(n)}, nil)
	return res.Result, err
}

// Wait waits until all parts admit what Allow asks for, all at one time: what some parts could
// admit sooner is not reserved meanwhile. Then it waits for the Delay of parts that shape. What
// was admitted is reserved, as by Reserve.
//
// Callers of Wait with one key stand in line as for Limiter.Wait. The line is the Multi's own:
// callers who wait for the limiter of a part alone do not stand in it. When the context's
// deadline leaves too little time, Wait returns a *WaitError as soon as it knows that, and nothing
// is charged. Lines of other keys may take the units of a part that they share, so a caller may
// learn of it after a wait. Other errors are those of Allow. A caller whose context ends during the
// Delay has been charged, as Limiter.Wait says.
func (m *Multi) Wait(ctx context.Context, key string, opts ...CallOption) (*Reservation, error) {
	if err := check(m.parts, opts); err != nil {
		return nil, err
	}
	r := new(Reservation)
	link := m.parts[0].Limiter.redis.decider.redis
	closed, end := context.WithCancel(context.Background()) // it ends with any part
	defer end()
	for _, p := range m.parts {
		defer context.AfterFunc(p.Limiter.redis.decider.redis.Life(), end)()
	}
	few, least := fewer(opts), math.MaxInt // at least so much of each part
	for i := range m.parts {
		least = min(least, m.parts[i].of(key, opts, i).n)
	}
	if few {
		least = min(least, 1)
	}
	var w waiter
	w = waiter{
		ctx: ctx, closed: closed.Done(), n: least, own: len(opts) > 1, processes: link.Processes,
		ask: func(ctx context.Context) (Result, error) {
			var err error
			r, err = m.reserve(ctx, key, opts)
			for _, p := range r.Parts {
				w.own = w.own || p.Result.Limit.kind == algo.LeakyBucketShaping
			}
			return r.Result, err
		},
		queue: func(units int) (least time.Duration, err error) {
			for i, p := range m.parts {
				of := p.of(key, opts, i)
				if few {
					of.n = min(of.n, 1)
				}
				s, err := p.Limiter.enter(ctx, of.key, of.n, p.Limiter.limits.choose(ctx, of.key, of.limit))
				if err != nil {
					return 0, ofPart(p.Name, err)
				}
				least = max(least, s.least(units))
			}
			return least, nil
		},
	}
	if err := w.wait(&m.lines, lineOf{key: key}); err != nil {
		return nil, err
	}
	return r, nil
}

// Block denies key for d, as Limiter.Block does, in each part that has key itself as its key. A
// part with a Key function shares its keys with others and is not blocked. The error matches
// ErrInvalidConfig when there is no other part; else it joins those of the parts.
func (m *Multi) Block(ctx context.Context, key string, d time.Duration) error {
	whole := slices.DeleteFunc(slices.Clone(m.parts), func(p Part) bool { return p.Key != nil })
	if len(whole) == 0 {
		return invalid("parts", len(m.parts), "must have one without a Key function, which can be blocked")
	}
	return errors.Join(sideBySide(len(whole), func(i int) error {
		return ofPart(whole[i].Name, whole[i].Limiter.Block(ctx, key, d))
	})...)
}

// decide decides, and calls the hooks of the parts.
func (m *Multi) decide(ctx context.Context, key string, opts []CallOption, receipts []receipt) (res MultiResult, err error) {
	if err := check(m.parts, opts); err != nil {
		return MultiResult{}, err
	}
	start := time.Now()
	a := m.begin(key, opts, receipts)
	defer m.finished(a)
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

// Reserve asks as Allow does, for units that may be given back.
func (m *Multi) Reserve(ctx context.Context, key string, opts ...CallOption) (*Reservation, error) {
	r, err := m.reserve(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// reserve decides, and notes where units were taken.
func (m *Multi) reserve(ctx context.Context, key string, opts []CallOption) (*Reservation, error) {
	receipts := make([]receipt, len(m.parts))
	res, err := m.decide(ctx, key, opts, receipts)
	r := &Reservation{Result: res.Result, Denied: res.Denied, Parts: res.Parts}
	if err != nil || !res.Allowed {
		return r, err
	}
	r.parts = make([]taken, len(m.parts))
	for i, p := range res.Parts {
		part := &m.parts[i]
		r.parts[i] = taken{
			of: part.Limiter, part: part.Name, key: part.of(key, opts, i).key,
			cost: p.Admitted, source: p.Source, receipt: receipts[i],
		}
	}
	return r, nil
}
