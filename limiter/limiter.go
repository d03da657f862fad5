package limiter

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// Limiter is a distributed rate limiter: processes that use the same Redis, the
// same prefix and the same limit share it. While Redis cannot decide, the
// fallback does. It is safe for concurrent use. Make one with New; the zero
// value is not usable.
type Limiter struct {
	config
	spec    spec
	rdb     redis.UniversalClient
	lua     *lua.Client
	names   *lua.Namer
	local   *fallback.Store
	denials *denials
	turns   turns
	leases  *leases // nil without

	shards     *shards
	slots      *slotMap // of a cluster
	peers      *peers
	background *background
	nonce      nonces

	settled     atomic.Uint64
	settling    every
	reconciling atomic.Bool
	denied      sync.Once // logs missing permissions once
	evalOnly    sync.Once // logs once that functions are not allowed

	closing sync.Once
	closed  chan struct{}
}

var _ Allower = (*Limiter)(nil)

// New returns a limiter that keeps its state in Redis. It does not talk to
// Redis, so it succeeds at once when Redis is down: the limit then holds locally
// from the first call. Any client of go-redis will do, with any options; it
// stays the caller's, who closes it after the limiter.
//
// The error is a *ConfigError when a value breaks a rule.
func New(rdb redis.UniversalClient, limit Limit, opts ...Option) (*Limiter, error) {
	if isNil(rdb) {
		return nil, &ConfigError{"client", "nil", "must be a go-redis client"}
	}
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	s, err := newSpec(limit, c.tuning)
	if err != nil {
		return nil, err
	}
	if c.lease > 0 && !s.leased {
		return nil, leaseError(&s)
	}
	if err := c.fits(rdb); err != nil {
		return nil, err
	}
	l := &Limiter{
		config:     c,
		spec:       s,
		rdb:        rdb,
		lua:        lua.NewClient(bounded(rdb, c.budget)),
		names:      lua.NewNamer(c.prefix),
		peers:      newPeers(c.prefix, c.process),
		background: newBackground(),
		nonce:      newNonces(),
		closed:     make(chan struct{}),
		denials:    newDenials(),
	}
	if c.lease > 0 {
		l.leases = newLeases(l)
	}
	if c.functions {
		l.lua.UseFunctions(rdb)
	}
	if l.local, err = fallback.NewStore(c.maxKeys); err != nil {
		return nil, err
	}
	if l.shards, err = l.newShards(); err != nil {
		return nil, err
	}
	return l, nil
}

// isNil also catches a nil pointer in an interface.
func isNil(rdb redis.UniversalClient) bool {
	if rdb == nil {
		return true
	}
	v := reflect.ValueOf(rdb)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// bounded returns the client with the budget for its socket timeouts where the
// client can do that: a reply that comes later is of no use, and its
// connection is better dropped than waited on. The connections stay shared with
// the caller's client.
func bounded(rdb redis.UniversalClient, budget time.Duration) lua.Doer {
	c, ok := rdb.(*redis.Client)
	if !ok {
		return rdb
	}
	return c.WithTimeout(budget)
}

// Limit returns the limiter's limit.
func (l *Limiter) Limit() Limit { return l.spec.limit }

// Allow is AllowN with a cost of 1.
func (l *Limiter) Allow(ctx context.Context, key string, opts ...CallOption) (Result, error) {
	return l.Decide(ctx, key, 1, opts...)
}

// AllowN is Decide without options.
func (l *Limiter) AllowN(ctx context.Context, key string, n int) (Result, error) {
	return l.decide(ctx, &l.spec, key, n)
}

// Peek looks without consuming: it is a cost of 0, writes nothing and creates no
// key. Remaining says what would be admitted.
func (l *Limiter) Peek(ctx context.Context, key string, opts ...CallOption) (Result, error) {
	return l.Decide(ctx, key, 0, opts...)
}

// Decide asks for n units of key and returns without waiting for them. A cost
// of 0 is Peek.
//
// A key is any non-empty string, such as a user or an upstream host. The error
// is ErrInvalidKey, ErrInvalidCost, ErrCostExceedsLimit, ErrInvalidConfig (a
// limit in the options), ErrClosed, ErrState, the context's own error, or, only
// under the policy fallback.Closed, ErrUnavailable.
func (l *Limiter) Decide(ctx context.Context, key string, n int, opts ...CallOption) (Result, error) {
	s, err := l.spec.forCall(opts)
	if err != nil {
		return Result{}, err
	}
	return l.decide(ctx, s, key, n)
}

// Wait is WaitN with a cost of 1.
func (l *Limiter) Wait(ctx context.Context, key string, opts ...CallOption) (Result, error) {
	return l.WaitN(ctx, key, 1, opts...)
}

// WaitN waits until n units of key are admitted, and for the Delay of a shaping
// limit. When the context's deadline leaves too little time it returns a
// *WaitError at once, and nothing is charged. Other errors are those of Decide.
func (l *Limiter) WaitN(ctx context.Context, key string, n int, opts ...CallOption) (Result, error) {
	s, err := l.spec.forCall(opts)
	if err != nil {
		return Result{}, err
	}
	return wait(ctx, l.decide, l.closed, s, key, n)
}

// Close releases what the limiter holds and fails later calls with ErrClosed.
// It waits for calls that are on their way to Redis, so that no goroutine is
// left behind; the client's own timeouts bound that. The client stays open.
// Closing twice is harmless.
func (l *Limiter) Close() error {
	l.closing.Do(func() {
		close(l.closed)
		l.background.close()
		for _, sh := range l.shards.list() {
			sh.batches.drain()
		}
		if l.leases != nil {
			l.leases.close()
		}
		l.goodbye()
		for _, sh := range l.shards.list() {
			sh.calls.drain()
		}
	})
	return nil
}

func (l *Limiter) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}
