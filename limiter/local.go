package limiter

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// Local is a limiter of this process alone, without Redis: the same algorithms
// and the same results, in bounded memory. It is safe for concurrent use and
// runs no goroutine. Make one with NewLocal; the zero value is not usable.
type Local struct {
	limits  limits
	store   *fallback.Store
	hook    decisionHook
	closing sync.Once
	closed  chan struct{}
}

var _ Allower = (*Local)(nil)

// NewLocal returns a limiter for this process. The error matches ErrInvalidConfig.
func NewLocal(limit Limit, opts ...LocalOption) (*Local, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	store, err := fallback.NewStore(c.MaxLocalKeys)
	if err != nil {
		return nil, err
	}
	l := &Local{store: store, hook: c.Decision, closed: make(chan struct{})}
	if err := l.limits.set(limit, tuningOf(c)); err != nil {
		return nil, err
	}
	return l, nil
}

// Limit returns the limiter's limit.
func (l *Local) Limit() Limit { return l.limits.live.Load().limit }

// SetLimit changes the limiter's limit from the next decision on, as Limiter.SetLimit
// does. The error matches ErrInvalidConfig, and then nothing has changed.
func (l *Local) SetLimit(limit Limit) error { return l.limits.change(limit) }

// Allow asks for one unit of key, or for a Cost. The errors are those of Limiter.Allow
// that do not concern Redis.
func (l *Local) Allow(ctx context.Context, key string, opts ...CallOption) (Result, error) {
	limit, n := costOf(opts)
	return l.decide(ctx, limit, key, n, 0, nil)
}

// AllowN is Allow with a Cost of n.
func (l *Local) AllowN(ctx context.Context, key string, n int) (Result, error) {
	return l.decide(ctx, Limit{}, key, n, 0, nil)
}

// Peek looks without consuming: it is a cost of 0.
func (l *Local) Peek(ctx context.Context, key string, limit ...Limit) (Result, error) {
	return l.decide(ctx, limitOf(limit), key, 0, 0, nil)
}

// Wait waits as Limiter.Wait does.
func (l *Local) Wait(ctx context.Context, key string, opts ...CallOption) (Result, error) {
	limit, n := costOf(opts)
	return waitFor(ctx, l.closed, func(most time.Duration) (Result, error) {
		return l.decide(ctx, limit, key, n, most, nil)
	})
}

// Reserve asks for n units of key, as Limiter.Reserve does.
func (l *Local) Reserve(ctx context.Context, key string, n int, limit ...Limit) (*Reservation, error) {
	r := &Reservation{of: l, cost: n}
	var err error
	if r.Result, err = l.decide(ctx, limitOf(limit), key, n, 0, &r.receipt); err != nil {
		return nil, err
	}
	return r, nil
}

// decide decides under a limit, of which the zero value is the limiter's own, for a caller
// that can wait for so long, 0 for as long as it takes; and calls the hook.
func (l *Local) decide(ctx context.Context, limit Limit, key string, n int, most time.Duration, rc *receipt) (res Result, err error) {
	s, err := l.limits.use(ctx, limit)
	if err != nil {
		return Result{}, err
	}
	s = s.boundedBy(most)
	start := l.hook.begin(n)
	if err = l.check(ctx, s, key, n); err == nil {
		rc.of(s, key)
		res = s.result(l.store.Take(key, s.args.Params, int64(n), nil, rc.forLocal()), SourceLocal)
	}
	l.hook.decided(ctx, start, key, n, res, err)
	return res, err
}

func (l *Local) giveUp(_ context.Context, rc *receipt, n int) error {
	l.store.GiveBack(rc.key, &rc.local, int64(n))
	return nil
}

func (l *Local) charge(_ context.Context, rc *receipt, n int) error {
	l.store.Charge(rc.key, rc.s.args.Params, int64(n), nil)
	return nil
}

// Refund gives n units of key back that were taken just now, as Limiter.Refund
// does.
func (l *Local) Refund(ctx context.Context, key string, n int, limit ...Limit) error {
	s, err := l.enter(ctx, key, n, limit)
	if err == nil && n > 0 {
		l.store.Refund(key, s.args.Params, int64(n))
	}
	return err
}

// Block denies key for d under one algorithm, as Limiter.Block does. While every
// remembered key is in use, the block of a key that is not among them is lost.
func (l *Local) Block(ctx context.Context, key string, d time.Duration, limit ...Limit) error {
	us, err := blockTime(d)
	if err != nil {
		return err
	}
	s, err := l.enter(ctx, key, 0, limit)
	if err == nil {
		l.store.Block(key, s.args.Params, us)
	}
	return err
}

// Reset makes key as if never used.
func (l *Local) Reset(ctx context.Context, key string) error {
	_, err := l.enter(ctx, key, 0, nil)
	if err == nil {
		l.store.Reset(key)
	}
	return err
}

// Close fails later calls, and those that wait, with ErrClosed. Closing twice is
// harmless.
func (l *Local) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return nil
}

// enter returns the limit of a call that is no decision, if the call may be made.
func (l *Local) enter(ctx context.Context, key string, n int, limit []Limit) (*spec, error) {
	s, err := l.limits.use(ctx, limitOf(limit))
	if err == nil {
		err = l.check(ctx, s, key, n)
	}
	return s, err
}

func (l *Local) check(ctx context.Context, s *spec, key string, n int) error {
	if err := s.check(key, n); err != nil {
		return err
	}
	select {
	case <-l.closed:
		return ErrClosed
	default:
		return ctx.Err()
	}
}
