package limiter

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/inprocess"
)

// local decides in this process alone.
type local struct {
	store  *inprocess.Store
	closed atomic.Bool // takes less time to read than ended
	ended  chan struct{}
}

func (e *local) enter(ctx context.Context, s *spec, key string, n int) error {
	if err := s.check(key, n); err != nil {
		return err
	}
	if err := e.open(); err != nil {
		return err
	}
	return ctx.Err()
}

// open returns ErrClosed once the limiter is closed.
func (e *local) open() error {
	if e.closed.Load() {
		return ErrClosed
	}
	return nil
}

// decide decides on what has entered. With fewer, it may admit fewer units than n, and says
// how many.
func (e *local) decide(s *spec, key string, n int, fewer bool, rc *receipt, res *Result) {
	rc.of(s, key)
	if fewer {
		var out algo.Decision
		out, n = take(e.store, key, &s.args.Params, n, fewer, nil, rc)
		s.result(res, &out, SourceLocal)
		res.Admitted = n
		return
	}
	var d algo.Decision
	e.store.TakeInto(&d, key, &s.args.Params, int64(n), nil, rc.forLocal())
	s.result(res, &d, SourceLocal)
}

// take charges n units in a store, or fewer where they will do, and returns how many.
func take(store *inprocess.Store, id string, p *algo.Params, n int, fewer bool, owed *algo.Params, rc *receipt) (algo.Decision, int) {
	out := store.Take(id, p, int64(n), owed, rc.forLocal())
	for fewer && !out.Allowed && n > 1 {
		n = max(1, min(n-1, int(out.Remaining-p.Keep)))
		out = store.Take(id, p, int64(n), owed, rc.forLocal())
	}
	if !out.Allowed {
		n = 0
	}
	return out, n
}

func (e *local) giveBack(_ context.Context, rc *receipt, n int) error {
	err := e.open()
	if err == nil {
		e.store.GiveBack(rc.key, &rc.local, int64(n))
	}
	return err
}

func (e *local) charge(_ context.Context, rc *receipt, n int) error {
	err := e.open()
	if err == nil {
		e.store.Charge(rc.key, rc.s.args.Params, int64(n), nil)
	}
	return err
}

func (e *local) refund(_ context.Context, s *spec, key string, n int64) error {
	e.store.Refund(key, s.args.Params, n, 0)
	return nil
}

func (e *local) block(_ context.Context, s *spec, key string, us int64) error {
	e.store.Block(key, s.args.Params, us)
	return nil
}

func (e *local) reset(_ context.Context, _ *spec, key string) error {
	e.store.Reset(key)
	return nil
}

func (*local) answers() time.Duration { return 0 }

func (*local) changed(Limit) {}

func (e *local) health() Health { return Health{LocalKeys: e.store.Len()} }

func (e *local) done() <-chan struct{} { return e.ended }

func (e *local) close() {
	if !e.closed.Swap(true) {
		close(e.ended)
	}
}
