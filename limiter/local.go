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
	policies
	store   *fallback.Store
	hooks   Hooks
	closing sync.Once
	closed  chan struct{}
}

var _ Allower = (*Local)(nil)

// NewLocal returns a limiter for this process. The error is a *ConfigError.
func NewLocal(limit Limit, opts ...LocalOption) (*Local, error) {
	c := newConfig()
	if err := apply(opts, func(o LocalOption) error { return o.forLocal(c) }); err != nil {
		return nil, err
	}
	s, err := newSpec(limit, c.tuning)
	if err != nil {
		return nil, err
	}
	store, err := fallback.NewStore(c.maxKeys)
	if err != nil {
		return nil, err
	}
	l := &Local{store: store, hooks: c.hooks, closed: make(chan struct{})}
	l.live.Store(&s)
	return l, nil
}

// Allow is AllowN with a cost of 1.
func (l *Local) Allow(ctx context.Context, key string, opts ...CallOption) (Result, error) {
	return l.Decide(ctx, key, 1, opts...)
}

// AllowN is Decide without options.
func (l *Local) AllowN(ctx context.Context, key string, n int) (Result, error) {
	return l.decide(ctx, l.spec(ctx), key, n, nil)
}

// Peek looks without consuming: it is a cost of 0.
func (l *Local) Peek(ctx context.Context, key string, opts ...CallOption) (Result, error) {
	return l.Decide(ctx, key, 0, opts...)
}

// Decide asks for n units of key. The errors are those of Limiter.Decide that do
// not concern Redis.
func (l *Local) Decide(ctx context.Context, key string, n int, opts ...CallOption) (Result, error) {
	s, err := l.forCall(ctx, opts)
	if err != nil {
		return Result{}, err
	}
	return l.decide(ctx, s, key, n, nil)
}

// Wait is WaitN with a cost of 1.
func (l *Local) Wait(ctx context.Context, key string, opts ...CallOption) (Result, error) {
	return l.WaitN(ctx, key, 1, opts...)
}

// WaitN waits as Limiter.WaitN does.
func (l *Local) WaitN(ctx context.Context, key string, n int, opts ...CallOption) (Result, error) {
	s, err := l.forCall(ctx, opts)
	if err != nil {
		return Result{}, err
	}
	return wait(ctx, l.decide, l.closed, s, key, n)
}

// Block denies key for d under one algorithm, as Limiter.Block does. While every
// remembered key is in use, the block of a key that is not among them is lost.
func (l *Local) Block(ctx context.Context, key string, d time.Duration, opts ...CallOption) error {
	us, err := blockTime(d)
	if err != nil {
		return err
	}
	s, err := l.forCall(ctx, opts)
	if err != nil {
		return err
	}
	if err := l.enter(ctx, s, key, 0); err != nil {
		return err
	}
	l.store.Block(key, s.args.Params, us)
	return nil
}

// Reset makes key as if never used.
func (l *Local) Reset(ctx context.Context, key string) error {
	if err := l.enter(ctx, l.live.Load(), key, 0); err != nil {
		return err
	}
	l.store.Reset(key)
	return nil
}

// Close fails later calls, and those that wait, with ErrClosed. Closing twice is
// harmless.
func (l *Local) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return nil
}

func (l *Local) decide(ctx context.Context, s *spec, key string, n int, rc *receipt) (Result, error) {
	if !l.hooks.observes(n) {
		return l.judge(ctx, s, key, n, rc)
	}
	return l.hooks.watch(ctx, l.judge, s, key, n, rc)
}

// judge is decide without telling anybody.
func (l *Local) judge(ctx context.Context, s *spec, key string, n int, rc *receipt) (Result, error) {
	if err := l.enter(ctx, s, key, n); err != nil {
		return Result{}, err
	}
	rc.of(s, key)
	return s.result(l.store.Take(key, s.args.Params, int64(n), nil, rc.forLocal()), SourceLocal), nil
}

func (l *Local) enter(ctx context.Context, s *spec, key string, n int) error {
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
