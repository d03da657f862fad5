package limiter

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/denial"
	"github.com/holdfast-go/holdfast/internal/inprocess"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/outbox"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/internal/wait"
)

// Limiter is a rate limiter. A limiter that New returns is shared by all processes that use
// the same Redis, the same prefix and the same limit; while Redis cannot decide, the fallback
// does. A limiter that NewLocal returns is for this process alone. It is safe for concurrent use. Make one with New or NewLocal; the
// zero value is not usable.
type Limiter struct {
	limits limits
	hook   decisionHook
	engine engine
	// One of both is nil: the engine of New, and that of NewLocal. They decide without an interface, which
	// would move each Result to the heap.
	redis *shared
	alone *local
	lines wait.Lines[lineOf]
}

var _ Allower = (*Limiter)(nil)

// engine is where a limiter keeps its state and decides.
type engine interface {
	keeper
	// enter rejects what must not be decided, and everything once the engine is closed.
	enter(ctx context.Context, s *spec, key string, n int) error
	refund(ctx context.Context, s *spec, key string, n int64) error
	block(ctx context.Context, s *spec, key string, us int64) error
	reset(ctx context.Context, s *spec, key string) error
	// answers returns the longest time that an answer takes.
	answers() time.Duration
	// changed gets the new limit of SetLimit.
	changed(Limit)
	health() Health
	done() <-chan struct{} // closed by close
	close()
}

// New returns a limiter that keeps its state in Redis. It does not talk to
// Redis, so it succeeds at once when Redis is down: the limit then holds locally
// from the first call. Any client of go-redis will do, with any options; it
// stays the caller's, who closes it after the limiter.
//
// The error matches ErrInvalidConfig when a value breaks a rule. One is that two limiters of a
// program that are open on one client, with one prefix and one algorithm, have one
// limit, since they share their counts: see WithPrefix.
func New(rdb redis.UniversalClient, limit Limit, opts ...Option) (*Limiter, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	c.Link.Client = rdb
	link, err := redislink.New(c.Link)
	if err != nil {
		return nil, configerr.In(pkg, err)
	}
	local := inprocess.NewStore(c.MaxLocalKeys)
	one := &decider{
		redis: link, policy: c.Link.Policy, askAgain: c.AskAgain, equal: c.EqualShare, phase: link.Phase(),
		local: local, outbox: outbox.New(link, local), denials: denial.New(),
	}
	if c.Link.Share > 0 {
		one.equal = 1
	}
	if one.policy == fallback.Local {
		link.OnReturn(one.outbox.Reconcile)
	}
	e := &shared{decider: one}
	l := &Limiter{hook: c.Decision, engine: e, redis: e}
	if err := l.limits.configure(limit, c); err != nil {
		return nil, err
	}
	if c.Lease > 0 {
		one.leases = lease.New(lease.Config{
			Size: int64(c.Lease), Age: c.LeaseAge, Max: int64(c.MaxLocalKeys),
			Names: link.Names, Outbox: one.outbox, Start: link.Background.Start,
		})
	}
	if err := link.Claim(limit.Algorithm(), limit); err != nil {
		return nil, configerr.In(pkg, err)
	}
	return l, nil
}

// NewLocal returns a limiter for this process, without Redis: the same algorithms and the
// same results, in bounded memory and without a goroutine. The error matches
// ErrInvalidConfig. It cannot be a part of a Multi. While every remembered key is in use,
// the block of a key that is not among them is lost.
func NewLocal(limit Limit, opts ...LocalOption) (*Limiter, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	alone := &local{store: inprocess.NewStore(c.MaxLocalKeys), ended: make(chan struct{})}
	l := &Limiter{hook: c.Decision, engine: alone, alone: alone}
	return l, l.limits.configure(limit, c)
}

// Limit returns the limiter's limit.
func (l *Limiter) Limit() Limit { return l.limits.live.Load().limit }

// SetLimit changes the limiter's limit from the next decision on, in this process.
// What was counted stays where that is meaningful, as with a Limit of a call: a raise takes
// effect at once, and a cut denies until use has fallen below it. What is held (WithLease)
// goes back. The error matches ErrInvalidConfig, and then nothing has changed.
//
// Other limiters that share its counts keep their limit until they are changed, too; it
// is not an error that they differ meanwhile. New takes the limit that was set last. After
// Close it is no error, and there is nothing left to change.
func (l *Limiter) SetLimit(limit Limit) error {
	if err := l.limits.set(limit, l.limits.live.Load().tuning); err != nil {
		return err
	}
	l.engine.changed(limit)
	l.lines.Call(func(lineOf) bool { return true })
	return nil
}

// Allow asks for one unit of key, or for a Cost, and returns without waiting for it.
//
// A key is any non-empty string, such as a user or an upstream host. The end of ctx is seen
// at once, or, where the caller's own goroutine makes the call to Redis, when that call ends,
// at the latest with the budget: what Redis has decided by then is the result.
//
// The error is ErrInvalidKey, ErrInvalidCost, ErrCostExceedsLimit, ErrInvalidConfig (a limit in
// the options), ErrClosed, ErrState, the context's own error, or, only under the policy
// fallback.Closed, ErrUnavailable.
func (l *Limiter) Allow(ctx context.Context, key string, opts ...CallOption) (res Result, err error) {
	var c call
	c.with(opts)
	err = l.decide(ctx, &c, key, nil, &res)
	return res, err
}

// AllowN is Allow with a Cost of n.
func (l *Limiter) AllowN(ctx context.Context, key string, n int) (res Result, err error) {
	err = l.decide(ctx, &call{n: n}, key, nil, &res)
	return res, err
}

// Peek decides without charging: it is a cost of 0, writes nothing and creates no
// key. Remaining says what would be admitted.
func (l *Limiter) Peek(ctx context.Context, key string, limit ...Limit) (res Result, err error) {
	err = l.decide(ctx, &call{limit: last(limit)}, key, nil, &res)
	return res, err
}

// Wait waits until one unit of key, or a Cost, is admitted, and then for the Delay of a shaping
// limit. Callers of this process who wait for a key are served in the order in which they
// came, those with a Critical context first: the first of them asks, and the others sleep
// until it is their turn. Allow, Reserve and other processes do not stand in that line: they
// take what there is. Calls with a limit of their own stand in one line for each limit.
//
// What was admitted is reserved, as by Reserve: it may be settled at its real cost, or
// cancelled, or left as it is.
//
// When the context's deadline leaves too little time, for the limit or behind those who
// came before, it returns a *WaitError as soon as it knows that, mostly at once, and nothing is
// charged. Other errors are those of Allow. A caller whose context ends during the Delay of a shaping limit gets the
// context's error and stays charged: those behind it already have their places.
func (l *Limiter) Wait(ctx context.Context, key string, opts ...CallOption) (*Reservation, error) {
	var c call
	c.with(opts)
	first, asked := c, false
	first.limit = l.limits.choose(ctx, key, c.limit)
	r := new(Reservation)
	w := waiter{
		ctx: ctx, closed: l.engine.done(), n: c.least(),
		ask: func(ctx context.Context) (res Result, err error) {
			now := first
			if asked { // the limit of the key may have changed since
				now = c
			}
			asked = true
			r, err = l.reserve(ctx, &now, key)
			return r.Result, err
		},
		queue: func(units int) (time.Duration, error) {
			s, err := l.enter(ctx, key, c.least(), first.limit)
			return s.least(units), err
		},
	}
	if l.redis != nil {
		w.processes = l.redis.decider.redis.Processes
	}
	if err := w.wait(&l.lines, l.limits.line(key, first.limit)); err != nil {
		return nil, err
	}
	return r, nil
}

// Reserve asks for one unit of key, or a Cost, as Allow does; what turns out not to be needed may
// be given back. With an error there is no Reservation: it is nil.
func (l *Limiter) Reserve(ctx context.Context, key string, opts ...CallOption) (*Reservation, error) {
	var c call
	c.with(opts)
	r, err := l.reserve(ctx, &c, key)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// reserve decides, and notes where units were taken.
func (l *Limiter) reserve(ctx context.Context, c *call, key string) (*Reservation, error) {
	r := &Reservation{first: taken{of: l, key: key}}
	err := l.decide(ctx, c, key, &r.first.receipt, &r.Result)
	r.first.cost, r.first.source = r.Admitted, r.Source
	return r, err
}

// decide decides on a call, under its limit or that of the key or the limiter's own, and calls
// the hook. It writes the decision into res, an empty one.
func (l *Limiter) decide(ctx context.Context, c *call, key string, rc *receipt, res *Result) (err error) {
	s := l.limits.live.Load()
	if c.limit.kind != 0 || l.limits.of != nil || s.critical != nil {
		if s, err = l.limits.use(ctx, l.limits.choose(ctx, key, c.limit)); err != nil {
			return err
		}
	}
	n := c.within(s)
	if s.args.Kind == algo.LeakyBucketShaping {
		s = s.boundedBy(ctx, l.engine.answers())
	}
	start := l.hook.begin(n)
	if l.alone != nil {
		if err = l.alone.enter(ctx, s, key, n); err == nil {
			l.alone.decide(s, key, n, c.fewer, rc, res)
		}
	} else if err = l.redis.enter(ctx, s, key, n); err == nil {
		err = l.redis.within(ctx, l.redis.decider.redis.Budget, s, key, n, c.fewer, rc, res)
	}
	switch {
	case !res.Allowed:
	case !c.fewer:
		res.Admitted = n
	default:
		n = res.Admitted
	}
	if !start.IsZero() {
		l.hook.decided(ctx, start, key, n, res, err)
	}
	return err
}

// Refund gives n units of key back that were taken just now, by whichever process:
// a cost that turned out lower than it was charged. The key never has more than
// its limit. What was taken a while ago may have drained already, or stand in an
// earlier window: a Reservation knows that, so prefer its Cancel and Settle. A
// refund to LeakyBucketShaping does nothing, because those who wait already know
// their place.
//
// When Redis cannot be reached, the units are given back in this process only, and the error
// is ErrUnavailable. Of units of an outage that Redis is still to be charged with, those that
// it does not give back are not charged. Other errors are those of Allow.
func (l *Limiter) Refund(ctx context.Context, key string, n int, limit ...Limit) error {
	s, err := l.enter(ctx, key, n, l.limits.choose(ctx, key, last(limit)))
	if err != nil || n == 0 {
		return err
	}
	defer l.callLine(key)
	return l.engine.refund(ctx, s, key, int64(n))
}

// callLine lets those who wait for key ask now, whatever their limit is.
func (l *Limiter) callLine(key string) {
	l.lines.Call(func(of lineOf) bool { return of.key == key })
}

// Block denies key for d, whatever its limit says, in every process: what a
// server's Retry-After asks for. It never shortens a longer block, and counts by
// the clock of Redis. This process obeys it even when Redis cannot be reached; then the
// error is ErrUnavailable, and Redis receives it when it is back. Other processes learn of it
// when Redis decides for them: those that decide locally, also those that wait for the others
// after an outage (for at most OpenMax + 1 s), obey it then. d must be above 0 and at most 366 days.
//
// The block is a part of the key's state under the limiter's algorithm: a limit of
// another algorithm on the same key is not blocked. With a limit, its
// algorithm is meant. While it lasts, nothing remains of the key.
func (l *Limiter) Block(ctx context.Context, key string, d time.Duration, limit ...Limit) error {
	us, err := blockTime(d)
	if err != nil {
		return err
	}
	s, err := l.enter(ctx, key, 0, l.limits.choose(ctx, key, last(limit)))
	if err != nil {
		return err
	}
	return l.engine.block(ctx, s, key, us)
}

// Reset removes the count and the block of key, in Redis and in
// this process. When Redis cannot be reached the error is ErrUnavailable, and
// only this process has forgotten the key. With a limit, the state of its
// algorithm is meant.
func (l *Limiter) Reset(ctx context.Context, key string, limit ...Limit) error {
	s, err := l.enter(ctx, key, 0, l.limits.choose(ctx, key, last(limit)))
	if err != nil {
		return err
	}
	defer l.callLine(key)
	return l.engine.reset(ctx, s, key)
}

// enter returns what a limit says of a call that is no decision, if the call may be made.
func (l *Limiter) enter(ctx context.Context, key string, n int, limit Limit) (*spec, error) {
	s, err := l.limits.use(ctx, limit)
	if err == nil {
		err = l.engine.enter(ctx, s, key, n)
	}
	return s, err
}

// Health reports without asking Redis. For a limiter of NewLocal it has only LocalKeys.
func (l *Limiter) Health() Health { return l.engine.health() }

// Close releases what the limiter holds and fails later calls, and those that wait, with
// ErrClosed. It waits for calls that are on their way to Redis, so that no goroutine is
// left behind; the client's own timeouts bound that. The client stays open.
// Closing twice is harmless.
func (l *Limiter) Close() error {
	l.engine.close()
	return nil
}
