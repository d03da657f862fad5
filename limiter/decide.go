package limiter

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/denial"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
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
	r := request{sh: l.redis.Server(id), s: s, key: key, id: id, n: n, budget: budget, rc: rc}
	rc.of(s, key)
	if s.leased {
		return l.decideLeased(ctx, r)
	}
	return l.request(ctx, r)
}

// request is one decision that this process cannot make from what it holds.
type request struct {
	sh     *redislink.Server
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

// op is the request for Redis.
func (l *Limiter) op(r *request) *redislink.Op {
	o := l.redis.NewOp()
	o.ID, o.Args, o.Keys, o.Cost = r.id, &r.s.args, l.names.KeysOf(r.s.args.Kind, r.id), int64(r.n)
	return o
}

// request asks for a decision: what was denied a moment ago, the server's breaker,
// then Redis within the budget, then what the class of the error asks for.
func (l *Limiter) request(ctx context.Context, r request) (Result, error) {
	sh, s, n := r.sh, r.s, r.n
	if d, blocked := l.blockedHere(&r); blocked {
		if r.more != nil {
			r.more.end()
		}
		return count(sh, s.result(d, SourceLocal)), nil
	}
	if sh.Breaker.Refuses() {
		if r.more != nil {
			r.more.end()
		}
		return l.fallBack(&r, redislink.ErrOpen)
	}
	// A look, and the bound of one caller's patience, are not for others.
	cached := n > 0 && s.args.MaxDelay == 0 && !l.askAgain
	var asking denial.Asking
	if cached {
		asking = l.denials.Ask(r.id)
		if !r.unknown {
			if d, ok := l.denials.Get(asking, &s.args.Params, n); ok {
				return count(sh, s.result(d, SourceCache)), nil
			}
		}
	}
	o := l.op(&r)
	o.Named = s.args.Kind == algo.SlidingWindowLog && (r.rc != nil || r.more != nil)
	if more := r.more; more != nil {
		o.Count = max(1, more.size/int64(n))
		o.After = func(o *redislink.Op, answered bool) { l.fill(more, s, o, answered) }
	}
	class, err := l.redis.Do(ctx, sh, o, r.budget)
	end := time.Now()
	switch {
	case class == breaker.ClassOK:
		d, sent := o.Out, o.Sent
		if r.rc != nil && d.Allowed {
			r.rc.fromRedis(l, &r, o)
		}
		l.redis.Free(o)
		if cached && d.Remaining < int64(n)+s.args.Keep {
			l.denials.Put(asking, &s.args.Params, n, d, sent, end)
		}
		l.afterRedis(s, r.key, n, d)
		return count(sh, s.result(d, SourceRedis)), nil
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
	if l.redis.IsClosed() {
		return ErrClosed
	}
	return ctx.Err()
}

// fallBack decides without Redis.
func (l *Limiter) fallBack(r *request, cause error) (Result, error) {
	sh, s := r.sh, r.s
	switch l.policy {
	case fallback.Open:
		return count(sh, Result{Allowed: true, Limit: s.limit, Remaining: s.limit.Burst(), Source: SourceOpen}), nil
	case fallback.Closed:
		// No time is known at which Redis is back; the budget is the least
		// that passes before it would be asked again.
		res := Result{Limit: s.limit, RetryAfter: l.budget, Source: SourceClosed}
		if until := time.Until(sh.Breaker.Snapshot().OpenUntil); until > res.RetryAfter {
			res.RetryAfter = until.Round(time.Microsecond)
		}
		return count(sh, res), fmt.Errorf("%w: %w", ErrUnavailable, cause)
	}
	// What may have been charged in Redis, or still be, is not owed as well.
	var home *algo.Params
	if redislink.NeverExecuted(cause) {
		home = &s.args.Params
	}
	d := l.local.Take(r.key, s.local(l.currentShare()), int64(r.n), home, r.rc.forLocal())
	return count(sh, s.result(d, SourceLocal)), nil
}

// count counts a decision.
func count(srv *redislink.Server, r Result) Result {
	srv.Counts[r.Source].Add(1)
	return r
}
