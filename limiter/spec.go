package limiter

import (
	"fmt"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// spec is a validated limit, ready to be sent and to be decided by.
type spec struct {
	limit Limit
	args  lua.Args
	scale *atomic.Pointer[scaled]
	parts []spec // where keys are split
}

// scaled is what a share leaves of a limit.
type scaled struct {
	share  float64
	params algo.Params
}

func newSpec(l Limit, keyShards int) (spec, error) {
	p, err := l.params()
	if err != nil {
		return spec{}, err
	}
	s := makeSpec(l, p)
	return s, s.split(keyShards)
}

func makeSpec(l Limit, p algo.Params) spec {
	return spec{limit: l, args: lua.NewArgs(p), scale: new(atomic.Pointer[scaled])}
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
	own, err := newSpec(last, len(s.parts))
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
