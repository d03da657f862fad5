package limiter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// decide is the one way to a decision.
func (l *Limiter) decide(ctx context.Context, s *spec, key string, n int, rc *receipt) (Result, error) {
	if !l.hooks.observes(n) {
		return l.judge(ctx, s, key, n, rc)
	}
	return l.hooks.watch(ctx, l.judge, s, key, n, rc)
}

// judge is decide without telling anybody.
func (l *Limiter) judge(ctx context.Context, s *spec, key string, n int, rc *receipt) (Result, error) {
	if err := l.enter(ctx, s, key, n); err != nil {
		return Result{}, err
	}
	return l.decideWithin(ctx, l.budget, s, key, n, rc)
}

// decideWithin is judge for what may be asked, with a budget for all calls together.
func (l *Limiter) decideWithin(ctx context.Context, budget time.Duration, s *spec, key string, n int, rc *receipt) (Result, error) {
	if s.parts != nil {
		return l.decideSplit(ctx, budget, s, key, n, rc)
	}
	return l.decideOne(ctx, budget, s, key, n, rc)
}

// decideOne decides on a key that is not split.
func (l *Limiter) decideOne(ctx context.Context, budget time.Duration, s *spec, key string, n int, rc *receipt) (Result, error) {
	id := lua.EncodeID(key)
	r := request{sh: l.shards.forID(id), s: s, key: key, id: id, n: n, budget: budget, rc: rc}
	if s.leased {
		return l.decideLeased(ctx, r)
	}
	return l.request(ctx, r)
}

// request is one decision that this process cannot make from what it holds.
type request struct {
	sh     *shard
	s      *spec
	key    string
	id     string
	n      int
	budget time.Duration
	// more, if set, is the lease to fill with the same call.
	more *lease
	// unknown says that the cache was asked already. With more it must be.
	unknown bool
	rc      *receipt // nil where nothing will be given back
}

// request asks for a decision: what was denied a moment ago, the shard's breaker,
// then Redis within the budget, then what the class of the error asks for.
func (l *Limiter) request(ctx context.Context, r request) (Result, error) {
	sh, s, n := r.sh, r.s, r.n
	if sh.breaker.Refuses() {
		if r.more != nil {
			r.more.end()
		}
		return l.fallBack(&r, errOpen)
	}
	// A look, and the bound of one caller's patience, are not for others.
	cached := n > 0 && s.args.MaxDelay == 0 && !l.askAgain
	var hash uint64
	var age uint32
	if cached {
		hash = l.denials.hash(r.id)
		if !r.unknown {
			if d, ok := l.denials.get(hash, r.id, &s.args.Params, n); ok {
				return sh.count(s.result(d, SourceCache)), nil
			}
		}
		age = l.denials.age(hash).Load()
	}
	w := decisions.Get().(*decision)
	w.s, w.id, w.n = s, r.id, n
	w.named = r.rc != nil && s.args.Kind == algo.SlidingWindowLog
	if r.more != nil {
		w.lease, w.count = r.more, max(1, r.more.size/int64(n))
	}
	class, err := sh.batches.do(ctx, w, r.budget, l.closed)
	end := time.Now()
	l.watchTopology(class, end)
	switch {
	case class == breaker.ClassOK:
		d, sent := w.out, w.sent
		if r.rc != nil && d.Allowed {
			r.rc.fromRedis(l, &r, w)
		}
		w.free()
		if cached && d.Remaining < int64(n)+s.args.Keep {
			l.denials.put(hash, r.id, &s.args.Params, n, age, d, sent, end)
		}
		l.afterRedis(s, r.key, d, end)
		return sh.count(s.result(d, SourceRedis)), nil
	case class.Fallback():
		return l.fallBack(&r, err)
	default:
		return Result{}, l.callerError(ctx, r.key, class, err)
	}
}

// enter refuses what must not reach Redis.
func (l *Limiter) enter(ctx context.Context, s *spec, key string, n int) error {
	if err := s.check(key, n); err != nil {
		return err
	}
	if l.isClosed() {
		return ErrClosed
	}
	return ctx.Err()
}

var errOpen = errors.New("circuit breaker is open")

// fallBack decides without Redis.
func (l *Limiter) fallBack(r *request, cause error) (Result, error) {
	sh, s := r.sh, r.s
	switch l.policy {
	case fallback.Open:
		return sh.count(Result{Allowed: true, Limit: s.limit, Remaining: s.limit.Burst(), Source: SourceOpen}), nil
	case fallback.Closed:
		// No time is known at which Redis is back; the budget is the least
		// that passes before it would be asked again.
		res := Result{Limit: s.limit, RetryAfter: l.budget, Source: SourceClosed}
		if until := time.Until(sh.breaker.Snapshot().OpenUntil); until > res.RetryAfter {
			res.RetryAfter = until.Round(time.Microsecond)
		}
		return sh.count(res), fmt.Errorf("%w: %w", ErrUnavailable, cause)
	}
	// What may have been charged in Redis, or still be, is not owed as well.
	var home *algo.Params
	if neverExecuted(cause) {
		home = &s.args.Params
	}
	d := l.local.Take(r.key, s.local(l.currentShare()), int64(r.n), home, r.rc.forLocal(s, r.key))
	return sh.count(s.result(d, SourceLocal)), nil
}

// neverExecuted reports whether it is certain that Redis has not charged, and
// will not charge, a decision that ended in err.
func neverExecuted(err error) bool {
	if errors.Is(err, errOpen) || errors.Is(err, errUnsent) {
		return true
	}
	var reply redis.Error
	var op *net.OpError
	switch {
	case errors.As(err, &reply), errors.Is(err, redis.ErrPoolTimeout):
		return true
	case errors.As(err, &op):
		return op.Op == "dial"
	}
	return false
}
