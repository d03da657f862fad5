package semaphore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/limiter"
)

// retryAtMost is the most that a caller who was denied is told to wait: a permit may be
// released at any time.
const retryAtMost = time.Second

// Semaphore bounds how many of something are in flight at once, per key, over
// all processes that use the same Redis and prefix. It is safe for concurrent use. Make
// one with New; the zero value is not usable.
//
// Redis keeps a permit for a time to live (WithTTL), and a heartbeat extends it
// while it is held. A process that dies frees its permits by that; one that cannot
// reach Redis for so long, or stands still, may lose one: see Permit.Lost. While
// Redis answers, and no permit is lost, there are never more than n.
//
// While Redis cannot decide, each process has its share of n, at least 1, and
// what it holds already counts. With shares that add up to 1 there are then at most
// n in flight, and in addition what processes held beyond their share when Redis
// became unavailable, so less than 2·n. A Redis that lost its state knows all permits
// again after a third of the time to live; until then it may grant up to n more.
type Semaphore struct {
	redis    *redislink.Link
	claimed  *redislink.Name
	policy   fallback.Policy
	decision func(context.Context, limiter.DecisionInfo) // nil where nobody wants to know

	permits  int
	headroom float64 // the part for critical callers
	ttl      time.Duration
	patience time.Duration // defaultPatience, but in tests
	shared   atomic.Pointer[scaled]

	mu    sync.Mutex
	keys  map[string]*key
	held  int
	timer *time.Timer // of the heartbeat; nil while it is stopped
}

// Acquirer is what middlewares ask for: a *Semaphore, or one of your own.
// Implementations must be safe for concurrent use.
type Acquirer interface {
	TryAcquire(ctx context.Context, key string) (*Permit, error)
}

var _ Acquirer = (*Semaphore)(nil)

// scaled is what a share leaves of the permits.
type scaled struct {
	share         float64
	permits, keep int
}

// New returns a semaphore of n permits for each key, 1 to 2^31-1. It does not talk to
// Redis, so it succeeds at once when Redis is down. Any client of go-redis will do; it
// stays the caller's, who closes it after the semaphore. The error is a
// *limiter.ConfigError.
func New(rdb redis.UniversalClient, n int, opts ...Option) (*Semaphore, error) {
	c := options.Config[limiter.DecisionInfo]{TTL: DefaultTTL}
	for _, o := range opts {
		if o == nil {
			return nil, &limiter.ConfigError{Field: "option", Value: "nil", Rule: "must not be nil"}
		}
		if err := o.ForSemaphore(&c); err != nil {
			return nil, err
		}
	}
	if n < 1 || n > math.MaxInt32 {
		return nil, &limiter.ConfigError{Field: "permits", Value: n, Rule: "must be at least 1 and below 2^31"}
	}
	if keptOf(n, c.Headroom) >= n {
		return nil, &limiter.ConfigError{Field: "critical headroom", Value: c.Headroom, Rule: fmt.Sprintf("leaves no permit of %d to calls that are not critical", n)}
	}
	c.Link.Client = rdb
	link, err := redislink.New(c.Link)
	if err != nil {
		return nil, configError(err)
	}
	s := &Semaphore{
		redis: link, policy: c.Link.Policy, decision: c.Decision,
		permits: n, headroom: c.Headroom, ttl: c.TTL, patience: defaultPatience, keys: make(map[string]*key),
	}
	if s.claimed, err = link.Claim("slots", fmt.Sprintf("%d permits", n)); err != nil {
		return nil, configError(err)
	}
	return s, nil
}

// configError makes what users get of an error of an internal constructor.
func configError(err error) error {
	var f *algo.FieldError
	if errors.As(err, &f) {
		return &limiter.ConfigError{Field: f.Field, Value: f.Value, Rule: f.Rule}
	}
	return fmt.Errorf("%w: %w", limiter.ErrInvalidConfig, err)
}

// keptOf is the part f of n, rounded up but for what floating point adds.
func keptOf(n int, f float64) int { return int(math.Ceil(float64(n)*f*(1-1e-12) - 1e-9)) }

// Permits returns how many may be in flight for one key.
func (s *Semaphore) Permits() int { return s.permits }

// TryAcquire takes a permit if there is one, and nobody waits for it. One that is not
// Allowed needs no Release.
//
// The error is limiter.ErrInvalidKey, limiter.ErrClosed, limiter.ErrState, the context's
// own error, or, only under the policy fallback.Closed, limiter.ErrUnavailable.
func (s *Semaphore) TryAcquire(ctx context.Context, key string) (*Permit, error) {
	return s.report(ctx, key, s.tryAcquire)
}

func (s *Semaphore) tryAcquire(ctx context.Context, key string) (*Permit, error) {
	k, err := s.enter(ctx, key)
	if err != nil {
		return nil, err
	}
	defer s.leave(k)
	return s.ask(ctx, k, s.newWaiter(), false)
}

// Acquire waits for a permit. Those who wait get theirs in the order in which they
// came, over all processes, critical ones before others. Processes ask again every
// 10 to 200 ms, the later the more are ahead of them, and at once when one of their
// own permits is released; in a process only the first ones ask. A process that stands
// still loses its places after 2 s.
//
// The error is the context's own when it ends before, or one of TryAcquire.
func (s *Semaphore) Acquire(ctx context.Context, key string) (*Permit, error) {
	return s.report(ctx, key, s.acquire)
}

func (s *Semaphore) acquire(ctx context.Context, key string) (*Permit, error) {
	k, err := s.enter(ctx, key)
	if err != nil {
		return nil, err
	}
	defer s.leave(k)
	w := s.newWaiter()
	rank := 1
	if limiter.IsCritical(ctx) {
		rank = 0
	}
	if s.first(k, rank) {
		permit, err := s.ask(ctx, k, w, true)
		if err != nil || permit.Allowed {
			return permit, err
		}
		w.asked = true
	}
	s.queue(k, w, rank)
	select {
	case <-w.done:
		return w.permit, w.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.redis.Closed():
		err = limiter.ErrClosed
	}
	s.unqueue(k, w, rank)
	return nil, err
}

// report calls the hook for what acquire decides.
func (s *Semaphore) report(ctx context.Context, key string, acquire func(context.Context, string) (*Permit, error)) (*Permit, error) {
	if s.decision == nil {
		return acquire(ctx, key)
	}
	start := time.Now()
	permit, err := acquire(ctx, key)
	info := limiter.DecisionInfo{Key: key, Cost: 1, Err: err, Took: time.Since(start)}
	if permit != nil {
		info.Result = permit.Result
	}
	s.decision(ctx, info)
	return permit, err
}

// InFlight returns how many permits of key are held. While Redis cannot be asked
// those of this process are, with limiter.ErrUnavailable.
func (s *Semaphore) InFlight(ctx context.Context, key string) (int, error) {
	k, err := s.enter(ctx, key)
	if err != nil {
		return 0, err
	}
	defer s.leave(k)
	cmd := &lua.Acquire{Ask: &lua.SlotAsk{Key: k.inRedis, Most: int64(s.permits), TTL: s.ttl.Microseconds(), Patience: s.patience.Microseconds()}}
	if err := s.redis.Exec(ctx, k.id, cmd); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(k.holding), s.callerError(ctx, key, err)
	}
	return int(cmd.Got.Held), nil
}

// Health reports without asking Redis. Decisions are those on callers who acquired a
// permit or were denied one.
func (s *Semaphore) Health() limiter.Health {
	servers, decisions := redislink.Health[limiter.Source](s.redis)
	h := limiter.Health{Share: s.redis.Share(), Processes: s.redis.Processes(), Decisions: decisions, FunctionsError: s.redis.FunctionsError()}
	for _, srv := range servers {
		h.Servers = append(h.Servers, limiter.ServerHealth(srv))
	}
	return h
}

// Close fails later calls, and those that wait, with limiter.ErrClosed, and ends the
// heartbeat. Permits that are still held end with their time to live; places in the
// queue are given up. The client stays open. Closing twice is harmless.
func (s *Semaphore) Close() error {
	places := make(map[*key][]string)
	s.mu.Lock()
	if s.timer != nil {
		s.timer.Stop()
	}
	for _, k := range s.keys {
		for _, waiting := range k.waiting {
			for _, w := range waiting {
				places[k] = append(places[k], w.caller)
			}
		}
		places[k] = append(places[k], k.left...)
	}
	s.mu.Unlock()
	s.redis.Close(func() {
		for k, callers := range places {
			if len(callers) > 0 && s.redis.Last(&redislink.Op{ID: k.id, Command: lua.LeaveSlots(k.inRedis, callers...)}) != nil {
				break // Redis drops them soon
			}
		}
		s.claimed.Release()
	})
	return nil
}

// newWaiter names a caller as no other is, with the time to live of its permit.
func (s *Semaphore) newWaiter() *waiter {
	return &waiter{caller: fmt.Sprintf("%s/%d", s.redis.Nonce(), s.ttl.Microseconds()), done: make(chan struct{})}
}

// enter returns what is known of a key, which stays until leave.
func (s *Semaphore) enter(ctx context.Context, name string) (*key, error) {
	switch {
	case name == "":
		return nil, fmt.Errorf("%w: key is empty", limiter.ErrInvalidKey)
	case s.redis.IsClosed():
		return nil, limiter.ErrClosed
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[name]
	if k == nil {
		id := lua.EncodeID(name)
		k = &key{name: name, id: id, inRedis: s.redis.Names.Slots(id), srv: s.redis.Server(id), holding: make(map[string]*Permit), wake: make(chan struct{}, 1)}
		s.keys[name] = k
	}
	k.pending++
	return k, nil
}

func (s *Semaphore) leave(k *key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.pending--
	s.dropUnused(k)
}

// dropUnused drops a key that nobody uses. mu is held.
func (s *Semaphore) dropUnused(k *key) {
	if k.pending == 0 && len(k.holding) == 0 && !k.polling && s.keys[k.name] == k {
		delete(s.keys, k.name)
	}
}

// ask asks for one caller.
func (s *Semaphore) ask(ctx context.Context, k *key, w *waiter, wait bool) (*Permit, error) {
	reply, ended, err := s.askRedis(ctx, k, []string{w.caller}, limiter.IsCritical(ctx), false, wait)
	switch {
	case err == nil:
		if !reply.Granted[0] {
			return s.denied(k, reply.NextEnd, limiter.SourceRedis), nil
		}
		return s.grant(k, w.caller, s.permits-int(reply.Held)), nil
	case redislink.FallsBack(err):
		permit, failed := s.fallBack(k, w.caller, limiter.IsCritical(ctx), err)
		// One who waits from now on will hear what was granted.
		if failed != nil || permit.k == nil && !wait {
			s.takeBack(k, w.caller, ended, err)
		}
		return permit, failed
	}
	s.takeBack(k, w.caller, ended, err)
	return nil, s.callerError(ctx, k.name, err)
}

// takeBack takes a caller out of Redis that does not know what its call was answered:
// after the call has ended, or Redis could execute it later.
func (s *Semaphore) takeBack(k *key, caller string, ended <-chan struct{}, err error) {
	if redislink.NeverExecuted(err) {
		return
	}
	s.redis.Background.Start(func(ctx context.Context) {
		select {
		case <-ended:
			s.forget(ctx, k, caller)
		case <-ctx.Done():
		}
	})
}

// askRedis asks for several callers. A call that the caller leaves is over when ended
// is closed.
func (s *Semaphore) askRedis(ctx context.Context, k *key, callers []string, critical, again, wait bool) (reply lua.SlotReply, ended <-chan struct{}, err error) {
	ask := &lua.SlotAsk{
		Key: k.inRedis, Most: int64(s.permits), Keep: int64(keptOf(s.permits, s.headroom)),
		TTL: s.ttl.Microseconds(), Patience: s.patience.Microseconds(),
		Wait: wait, Critical: critical, Again: again, Callers: callers,
	}
	if critical {
		ask.Keep = 0
	}
	over := make(chan struct{})
	cmd := &lua.Acquire{Ask: ask}
	o := &redislink.Op{ID: k.id, Command: cmd, After: func(*redislink.Op, bool) { close(over) }}
	if err := s.redis.Ask(ctx, k.srv, o, s.redis.Budget()); err != nil {
		return reply, over, err
	}
	s.redis.Beat()
	return cmd.Got, over, nil
}

// callerError makes of a *redislink.Error what the caller gets.
func (s *Semaphore) callerError(ctx context.Context, key string, err error) error {
	var failed *redislink.Error
	switch {
	case !errors.As(err, &failed):
		return err
	case failed.Class.Fallback():
		return fmt.Errorf("%w: %w", limiter.ErrUnavailable, failed.Err)
	}
	err = redislink.CallerError(ctx, failed.Class, failed.Err)
	switch {
	case failed.Class == breaker.ClassBug:
		return &limiter.StateError{Key: key, Err: err}
	case errors.Is(err, redislink.ErrClosed):
		return limiter.ErrClosed
	}
	return err
}

// fallBack decides without Redis.
func (s *Semaphore) fallBack(k *key, caller string, critical bool, cause error) (*Permit, error) {
	switch s.policy {
	case fallback.Open:
		return s.count(k, limiter.Result{Allowed: true, Remaining: s.permits, Source: limiter.SourceOpen}), nil
	case fallback.Closed:
		return s.denied(k, 0, limiter.SourceClosed), fmt.Errorf("%w: %w", limiter.ErrUnavailable, cause)
	}
	permits, keep := s.share()
	if critical {
		keep = 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	room := permits - len(k.holding)
	if room <= keep {
		return s.denied(k, 0, limiter.SourceLocal), nil
	}
	return s.hold(k, caller, room-1, limiter.SourceLocal), nil
}

// share is this process's part of the permits, and of those kept for critical callers.
func (s *Semaphore) share() (permits, keep int) {
	share := s.redis.Share()
	part := s.shared.Load()
	if part == nil || part.share != share {
		part = &scaled{share: share, permits: scale(s.permits, share)}
		part.keep = min(keptOf(part.permits, s.headroom), part.permits-1)
		s.shared.Store(part)
	}
	return part.permits, part.keep
}

func scale(n int, share float64) int { return max(1, int(float64(n)*share+1e-9)) }

// denied is a permit that was denied. nextEnd is when the next one ends, in µs; 0 is not
// known.
func (s *Semaphore) denied(k *key, nextEnd int64, from limiter.Source) *Permit {
	nextEnd = min(cmp.Or(nextEnd, math.MaxInt64), retryAtMost.Microseconds())
	return s.count(k, limiter.Result{RetryAfter: max(time.Duration(nextEnd)*time.Microsecond, time.Millisecond), Source: from})
}

// count counts a decision.
func (s *Semaphore) count(k *key, res limiter.Result) *Permit {
	k.srv.Counts[res.Source].Add(1)
	return &Permit{Result: res, s: s}
}

// grant makes the permit that Redis granted to a caller.
func (s *Semaphore) grant(k *key, caller string, remaining int) *Permit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hold(k, caller, remaining, limiter.SourceRedis)
}

// hold makes the permit of a caller. mu is held.
func (s *Semaphore) hold(k *key, caller string, remaining int, from limiter.Source) *Permit {
	p := s.count(k, limiter.Result{Allowed: true, Remaining: max(0, remaining), Source: from})
	p.k, p.caller = k, caller
	p.known.Store(from == limiter.SourceRedis)
	k.holding[caller] = p
	s.held++
	s.startHeartbeat()
	return p
}

// release frees a permit, here and in Redis.
func (s *Semaphore) release(k *key, caller string) {
	s.mu.Lock()
	delete(k.holding, caller)
	s.held--
	s.dropUnused(k)
	s.mu.Unlock()
	s.forget(context.Background(), k, caller)
	k.pollNow()
}

// forget takes callers out of all that Redis keeps of the key.
func (s *Semaphore) forget(ctx context.Context, k *key, callers ...string) {
	_ = s.redis.Exec(ctx, k.id, lua.LeaveSlots(k.inRedis, callers...))
}
