package limiter

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// spec is a validated limit, ready to be sent and to be decided by.
type spec struct {
	limit Limit
	args  lua.Args
	scale *atomic.Pointer[scaled]
	parts []spec // where keys are split
	// critical is the same without the reserve, where there is one.
	critical *spec

	tuning
	leased bool
}

// tuning is what the options say of how limits are applied.
type tuning struct {
	keyShards int
	lease     int // units; 0 is none
	leaseAge  time.Duration
	reserve   float64
}

// scaled is what a share leaves of a limit.
type scaled struct {
	share  float64
	params algo.Params
}

func newSpec(l Limit, t tuning) (spec, error) {
	p, err := l.params()
	if err != nil {
		return spec{}, err
	}
	s := spec{limit: l, tuning: t}
	if t.reserve > 0 {
		critical := t
		critical.reserve = 0
		all, err := newSpec(l, critical)
		if err != nil {
			return spec{}, err
		}
		s.critical = &all
		var ok bool
		if p, ok = p.Reserve(t.reserve); !ok {
			return spec{}, &ConfigError{"reserve", t.reserve, fmt.Sprintf("leaves no unit to one of the two sides of %v; use a larger burst", l)}
		}
	}
	if q, fits := t.leasable(p); fits {
		p, s.leased = q, true
	}
	s.set(p)
	return s, s.split()
}

func (s *spec) set(p algo.Params) {
	s.args, s.scale = lua.NewArgs(p), new(atomic.Pointer[scaled])
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

// policies holds the limit of a limiter, which may change.
type policies struct{ live atomic.Pointer[spec] }

// Limit returns the limiter's limit.
func (p *policies) Limit() Limit { return p.live.Load().limit }

// SetLimit changes the limiter's limit from the next decision on, in this process.
// What was counted stays where that is meaningful, as with UseLimit: a raise takes
// effect at once, and a cut denies until use has fallen below it. The error is a
// *ConfigError, and then nothing has changed.
func (p *policies) SetLimit(l Limit) error {
	s, err := newSpec(l, p.live.Load().tuning)
	if err != nil {
		return err
	}
	if s.lease > 0 && !s.leased {
		return leaseError(&s)
	}
	p.live.Store(&s)
	return nil
}

// spec is what a call without options is decided by.
func (p *policies) spec(ctx context.Context) *spec { return p.live.Load().of(ctx) }

// forCall returns the spec that a call is decided by.
func (p *policies) forCall(ctx context.Context, opts []CallOption) (*spec, error) {
	s := p.live.Load()
	if len(opts) > 0 && opts[len(opts)-1].limit != s.limit {
		own, err := newSpec(opts[len(opts)-1].limit, s.tuning)
		if err != nil {
			return nil, err
		}
		s = &own
	}
	return s.of(ctx), nil
}

// of returns the spec for a call, which may use the reserve if it is critical.
func (s *spec) of(ctx context.Context) *spec {
	if s.critical != nil && isCritical(ctx) {
		return s.critical
	}
	return s
}

// check refuses what no limiter could ever admit, before anything is asked.
func (s *spec) check(key string, n int) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: key is empty", ErrInvalidKey)
	case n < 0:
		return fmt.Errorf("%w: cost is %d: must not be negative", ErrInvalidCost, n)
	case n == 0:
		return nil
	case s.parts != nil && int64(n) > s.parts[len(s.parts)-1].most():
		return fmt.Errorf("%w: cost is %d, but a part of %v admits at most %d at once, with %d key shards", ErrCostExceedsLimit, n, s.limit, s.parts[len(s.parts)-1].most(), len(s.parts))
	case int64(n) > s.most() && int64(n) <= s.args.Cap:
		return fmt.Errorf("%w: cost is %d, but %v admits at most %d at once; the rest is for critical calls", ErrCostExceedsLimit, n, s.limit, s.most())
	case int64(n) > s.most():
		return fmt.Errorf("%w: cost is %d, but %v admits at most %d at once", ErrCostExceedsLimit, n, s.limit, s.most())
	}
	return nil
}

// most is the largest cost that can be admitted.
func (s *spec) most() int64 { return s.args.Cap - s.args.Keep }

// withMaxDelay returns the spec for a caller that cannot wait longer than us
// microseconds.
func (s *spec) withMaxDelay(us int64) *spec {
	bounded := *s
	bounded.args = s.args.WithMaxDelay(us)
	return &bounded
}

// local returns the parameters for a process with the given share.
func (s *spec) local(share float64) algo.Params {
	last := s.scale.Load()
	if last == nil || last.share != share {
		last = &scaled{share, s.args.Params.Scale(share)}
		s.scale.Store(last)
	}
	p := last.params
	p.MaxDelay = s.args.MaxDelay
	return p
}
