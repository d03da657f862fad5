package limiter

import (
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

	tuning
	leased bool
}

// tuning is what the options say of how limits are applied.
type tuning struct {
	keyShards int
	lease     int // units; 0 is none
	leaseAge  time.Duration
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
	return q, ok && q.Cap/int64(max(1, t.keyShards)) >= int64(t.lease)
}

// forCall returns the spec that a call is decided by.
func (s *spec) forCall(opts []CallOption) (*spec, error) {
	if len(opts) == 0 {
		return s, nil
	}
	last := opts[len(opts)-1].limit
	if last == s.limit {
		return s, nil
	}
	own, err := newSpec(last, s.tuning)
	return &own, err
}

// check refuses what no limiter could ever admit, before anything is asked.
func (s *spec) check(key string, n int) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: key is empty", ErrInvalidKey)
	case n < 0:
		return fmt.Errorf("%w: cost is %d: must not be negative", ErrInvalidCost, n)
	case s.parts != nil && int64(n) > s.parts[len(s.parts)-1].args.Cap:
		return fmt.Errorf("%w: cost is %d, but a part of %v admits at most %d at once, with %d key shards", ErrCostExceedsLimit, n, s.limit, s.parts[len(s.parts)-1].args.Cap, len(s.parts))
	case int64(n) > s.args.Cap:
		return fmt.Errorf("%w: cost is %d, but %v admits at most %d at once", ErrCostExceedsLimit, n, s.limit, s.args.Cap)
	}
	return nil
}

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
