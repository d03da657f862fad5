package limiter

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/denial"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

// Limiter is a distributed rate limiter: processes that use the same Redis, the
// same prefix and the same limit share it. While Redis cannot decide, the
// fallback does. It is safe for concurrent use. Make one with New; the zero
// value is not usable.
type Limiter struct {
	policies
	redis    *redislink.Link
	names    *lua.Namer
	claimed  *redislink.Name
	budget   time.Duration
	policy   fallback.Policy
	hooks    Hooks
	askAgain bool // WithoutDenialCache
	local    *fallback.Store
	denials  *denial.Cache
	turns    turns
	leases   *leases // nil without

	outbox
}

var _ Allower = (*Limiter)(nil)

// New returns a limiter that keeps its state in Redis. It does not talk to
// Redis, so it succeeds at once when Redis is down: the limit then holds locally
// from the first call. Any client of go-redis will do, with any options; it
// stays the caller's, who closes it after the limiter.
//
// The error is a *ConfigError when a value breaks a rule. One is that two limiters of a
// program that are open on one client, with one prefix and one algorithm, have one
// limit, since they share their counts: see WithPrefix.
func New(rdb redis.UniversalClient, limit Limit, opts ...Option) (*Limiter, error) {
	c := newConfig()
	if err := apply(opts, func(o Option) error { return o.forLimiter(c) }); err != nil {
		return nil, err
	}
	c.link.Client = rdb
	link, err := redislink.New(c.link)
	if err != nil {
		return nil, configError(err)
	}
	s, err := newSpec(limit, c.tuning)
	if err != nil {
		return nil, err
	}
	l := &Limiter{
		redis: link, names: link.Names, budget: link.Budget(), policy: c.link.Policy,
		hooks: c.hooks, askAgain: c.askAgain, denials: denial.New(),
	}
	if c.tuning.lease > 0 {
		if !s.leased {
			return nil, leaseError(&s)
		}
		l.leases = newLeases(l, c.tuning.lease, c.tuning.leaseAge, c.maxKeys)
	}
	l.live.Store(&s)
	if l.local, err = fallback.NewStore(c.maxKeys); err != nil {
		return nil, err
	}
	if l.claimed, err = link.Claim(limit.Algorithm().String(), limit); err != nil {
		return nil, configError(err)
	}
	return l, nil
}

// SetLimit changes the limiter's limit from the next decision on, in this process.
// What was counted stays where that is meaningful, as with UseLimit: a raise takes
// effect at once, and a cut denies until use has fallen below it. The error is a
// *ConfigError, and then nothing has changed.
//
// Other limiters that share its counts keep their limit until they are changed, too; it
// is not an error that they differ meanwhile. New takes the limit that was set last.
func (l *Limiter) SetLimit(limit Limit) error {
	if err := l.policies.SetLimit(limit); err != nil {
		return err
	}
	l.claimed.Change(limit.Algorithm().String(), limit)
	return nil
}

// Allow is AllowN with a cost of 1.
func (l *Limiter) Allow(ctx context.Context, key string, opts ...CallOption) (Result, error) {
	return l.Decide(ctx, key, 1, opts...)
}

// AllowN is Decide without options.
func (l *Limiter) AllowN(ctx context.Context, key string, n int) (Result, error) {
	return l.decide(ctx, l.spec(ctx), key, n, nil)
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
	s, err := l.forCall(ctx, opts)
	if err != nil {
		return Result{}, err
	}
	return l.decide(ctx, s, key, n, nil)
}

// Wait is WaitN with a cost of 1.
func (l *Limiter) Wait(ctx context.Context, key string, opts ...CallOption) (Result, error) {
	return l.WaitN(ctx, key, 1, opts...)
}

// WaitN waits until n units of key are admitted, and for the Delay of a shaping
// limit. When the context's deadline leaves too little time it returns a
// *WaitError at once, and nothing is charged. Other errors are those of Decide.
func (l *Limiter) WaitN(ctx context.Context, key string, n int, opts ...CallOption) (Result, error) {
	s, err := l.forCall(ctx, opts)
	if err != nil {
		return Result{}, err
	}
	return wait(ctx, l.decide, l.redis.Closed(), s, key, n)
}

// Close releases what the limiter holds and fails later calls with ErrClosed.
// It waits for calls that are on their way to Redis, so that no goroutine is
// left behind; the client's own timeouts bound that. The client stays open.
// Closing twice is harmless.
func (l *Limiter) Close() error {
	l.redis.Close(func() {
		if l.leases != nil {
			l.leases.close()
		}
		l.flush()
		l.claimed.Release()
	})
	return nil
}
