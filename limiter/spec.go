package limiter

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/critical"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/wait"
)

// tuning is what the options say of how limits are applied.
type tuning struct {
	keyShards int
	lease     int // units; 0 is none
	leaseAge  time.Duration
	headroom  float64
}

// leasable returns p as it must be charged when what is charged may be spent
// later, and whether that leaves room for a lease.
func (t *tuning) leasable(p algo.Params) (algo.Params, bool) {
	if t.lease == 0 {
		return p, false
	}
	q, ok := p.Late(t.leaseAge.Microseconds())
	return q, ok && (q.Cap-q.Keep)/int64(max(1, t.keyShards)) >= int64(t.lease)
}

// spec is a validated limit, ready to be sent and to be decided by.
type spec struct {
	limit  Limit
	args   lua.Args
	leased bool
	parts  []spec // where keys are split
	// critical is the same without the headroom, where there is one.
	critical *spec
	// answer is the time that boundedBy has kept.
	answer time.Duration

	tuning tuning
}

func newSpec(l Limit, t tuning) (*spec, error) {
	p, err := l.params()
	if err != nil {
		return nil, err
	}
	s, ok := &spec{limit: l, tuning: t}, true
	if t.headroom > 0 {
		p, ok = p.Reserve(t.headroom)
	}
	q, fits := t.leasable(p)
	if t.headroom > 0 {
		all := t
		all.headroom = 0
		if !fits {
			all.lease = 0 // both are charged under one burst, or leased units are spent beside a full one
		}
		if s.critical, err = newSpec(l, all); err != nil {
			return nil, err
		}
	}
	switch {
	case !ok:
		return nil, invalid("critical headroom", t.headroom, "leaves no unit to one of the two sides of %v; use a larger burst", l)
	case fits:
		p, s.leased = q, true
	}
	s.args = lua.NewArgs(p)
	return s, s.split()
}

// split gives s its parts: each a limit of its own, which together are
// exactly s.
func (s *spec) split() error {
	n := s.tuning.keyShards
	switch {
	case n <= 1:
		return nil
	case s.args.Kind == algo.LeakyBucketShaping:
		return invalid("key shards", n, "cannot be used with leaky bucket shaping, whose starts would not be evenly spaced")
	case int64(n) > s.args.Cap:
		return invalid("key shards", n, "must be at most the limit's burst, or the units of its window: each has a part of it")
	}
	s.parts = make([]spec, n)
	for i := range s.parts {
		p, err := s.args.Part(int64(i), int64(n))
		if err != nil {
			return invalid("key shards", n, "makes parts too small for exact arithmetic: %v", err)
		}
		s.parts[i] = spec{limit: s.limit, args: lua.NewArgs(p), tuning: s.tuning, leased: s.leased}
	}
	return nil
}

// checkLease rejects a limit without room for the lease that the limiter has.
func (s *spec) checkLease() error {
	if s.leased || s.tuning.lease == 0 {
		return nil
	}
	rule := "must fit into the limit's units, for each key shard"
	switch {
	case s.limit.kind == algo.LeakyBucketShaping:
		rule = "cannot be used with leaky bucket shaping, which gives each request a delay of its own"
	case !s.limit.kind.Windowed():
		rule = "must fit into the burst, less what the rate produces in the lease's age, for each key shard"
	}
	return invalid("lease", s.tuning.lease, rule)
}

// of returns the spec for a call, which may use the headroom if it is critical.
func (s *spec) of(ctx context.Context) *spec {
	if s.critical != nil && critical.Is(ctx) {
		return s.critical
	}
	return s
}

// check rejects what no limiter could ever admit, before anything is asked.
func (s *spec) check(key string, n int) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: key is empty", ErrInvalidKey)
	case n < 0:
		return fmt.Errorf("%w: cost is %d: must not be negative", ErrInvalidCost, n)
	case s.parts != nil && int64(n) > s.mostAtOnce():
		return fmt.Errorf("%w: cost is %d, but a part of %v admits at most %d at once, with %d key shards", ErrCostExceedsLimit, n, s.limit, s.mostAtOnce(), len(s.parts))
	case int64(n) > s.most() && int64(n) <= s.args.Cap:
		return fmt.Errorf("%w: cost is %d, but %v admits at most %d at once; the rest is for critical calls", ErrCostExceedsLimit, n, s.limit, s.most())
	case int64(n) > s.most():
		return fmt.Errorf("%w: cost is %d, but %v admits at most %d at once", ErrCostExceedsLimit, n, s.limit, s.most())
	}
	return nil
}

// most is the largest cost that can be admitted.
func (s *spec) most() int64 { return s.args.Cap - s.args.Keep }

// mostAtOnce is the largest cost that can be admitted, of which part of a key ever.
func (s *spec) mostAtOnce() int64 {
	if s.parts != nil {
		return s.parts[len(s.parts)-1].most()
	}
	return s.most()
}

// beyond reports that n units are more than a process with a claim can ever admit at once.
func (s *spec) beyond(claim float64, n int) bool {
	if s.parts != nil {
		s = &s.parts[0]
	}
	p := s.args.Scale(claim)
	if p.Frac > 0 {
		p.Cap++ // in some windows
	}
	return int64(n)+p.Keep > p.Cap
}

// least is the least time in which n units are admitted, if there is a spec.
func (s *spec) least(n int) time.Duration {
	if s == nil {
		return 0
	}
	if s.critical != nil {
		s = s.critical // critical callers ahead take all of the limit
	}
	return algo.Duration(s.args.Least(int64(n)))
}

// boundedBy returns the spec for a call that has said how long a Delay it can wait for, with
// wait.WithMostDelay: a place in the queue that comes too late must not be taken. It keeps
// the time for the answer, which takes up to answer: a place that fits before it fits after it.
func (s *spec) boundedBy(ctx context.Context, answer time.Duration) *spec {
	if s.args.Kind != algo.LeakyBucketShaping {
		return s
	}
	most, ok := wait.MostDelay(ctx)
	if !ok {
		return s
	}
	if deadline, has := ctx.Deadline(); has {
		left := time.Until(deadline)
		answer = min(answer, left/2)
		most = min(most, left-answer)
	}
	if most >= algo.Duration(s.args.FillTime()) {
		return s // no Delay is longer
	}
	bounded := *s
	bounded.answer, bounded.args.MaxDelay = answer, max(1, most.Microseconds())
	bounded.args = lua.NewArgs(bounded.args.Params)
	return &bounded
}

// local returns the parameters for a process with a claim, and its phase.
func (s *spec) local(claim float64, phase int64) algo.Params {
	p := s.args.Scale(claim)
	p.Phase = phase
	return p
}

// result makes res, which is empty, that of a decision in microseconds.
func (s *spec) result(res *Result, d *algo.Decision, from Source) {
	res.Allowed = d.Allowed
	res.Limit = s.limit
	res.Remaining = int(max(0, d.Remaining-s.args.Keep))
	res.RetryAfter = algo.Duration(d.RetryAfter)
	res.ResetAfter = algo.Duration(d.ResetAfter)
	res.Delay = algo.Duration(d.Delay)
	res.Source = from
	if most := s.args.MaxDelay; most > 0 && !d.Allowed && d.ResetAfter > most {
		res.RetryAfter = res.ResetAfter + s.answer // it would start as late if it asked again
	}
}

// limits holds the limit of a limiter, which may change.
type limits struct {
	live atomic.Pointer[spec]
	of   func(ctx context.Context, key string) Limit // WithLimitFor; nil is none
	// others are the specs of limits of calls and keys, the first mostLimits of them.
	others sync.Map
	kept   atomic.Int64
}

// mostLimits is how many limits beside the limiter's own are kept ready.
const mostLimits = 1024

// configure sets the limit and what the options say of limits.
func (p *limits) configure(l Limit, c *config) error {
	p.of, _ = c.LimitFor.(func(context.Context, string) Limit)
	return p.set(l, tuningOf(c))
}

// choose returns the limit of a call on a key: its own, else that of the key, else the zero
// value.
func (p *limits) choose(ctx context.Context, key string, own Limit) Limit {
	if p.of != nil && own == (Limit{}) {
		return p.of(ctx, key)
	}
	return own
}

// last returns the last of the limits of a call, or the zero value.
func last(own []Limit) (l Limit) {
	if len(own) > 0 {
		l = own[len(own)-1]
	}
	return l
}

// set changes the limit, unless it breaks a rule.
func (p *limits) set(l Limit, t tuning) error {
	s, err := newSpec(l, t)
	if err == nil {
		err = s.checkLease()
	}
	if err == nil {
		p.live.Store(s)
	}
	return err
}

// line names the line of a key's callers with a limit of their own, or the zero value.
func (p *limits) line(key string, l Limit) lineOf {
	if l == p.live.Load().limit {
		l = Limit{}
	}
	return lineOf{key, l}
}

// use returns the spec that a call with a limit of its own is decided by; the zero value
// is the limiter's.
func (p *limits) use(ctx context.Context, l Limit) (*spec, error) {
	s := p.live.Load()
	if l.kind != 0 && l != s.limit { // a Limit that is not the zero value has a kind
		known, ok := p.others.Load(l)
		if !ok {
			other, err := newSpec(l, s.tuning)
			if err != nil {
				return nil, err
			}
			if known = other; p.kept.Add(1) <= mostLimits {
				p.others.Store(l, other)
			}
		}
		s = known.(*spec)
	}
	return s.of(ctx), nil
}
