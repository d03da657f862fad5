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
func (l *Limiter) decide(ctx context.Context, s *spec, key string, n int) (Result, error) {
	if err := l.enter(ctx, s, key, n); err != nil {
		return Result{}, err
	}
	if s.parts != nil {
		return l.decideSplit(ctx, s, key, n)
	}
	return l.decideOne(ctx, s, key, n)
}

// decideOne decides on a key that is not split.
func (l *Limiter) decideOne(ctx context.Context, s *spec, key string, n int) (Result, error) {
	id := lua.EncodeID(key)
	sh := l.shards.forID(id)
	if s.leased {
		return l.decideLeased(ctx, sh, s, key, id, n)
	}
	return l.request(ctx, request{sh: sh, s: s, key: key, id: id, n: n, budget: l.budget})
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
}

// request asks for a decision: what was denied a moment ago, the shard's breaker,
// then Redis within the budget, then what the class of the error asks for.
func (l *Limiter) request(ctx context.Context, r request) (Result, error) {
	sh, s, n := r.sh, r.s, r.n
	if sh.breaker.Refuses() {
		if r.more != nil {
			r.more.end()
		}
		return l.fallBack(sh, s, r.key, n, errOpen)
	}
	// A look, and the bound of one caller's patience, are not for others.
	cached := n > 0 && s.args.MaxDelay == 0 && !l.askAgain
	var hash uint64
	var age uint32
	if cached {
		hash = l.denials.hash(r.id)
		if !r.unknown {
			if d, ok := l.denials.get(hash, r.id, &s.args.Params, n); ok {
				return sh.count(result(s.limit, d, SourceCache)), nil
			}
		}
		age = l.denials.age(hash).Load()
	}
	w := decisions.Get().(*decision)
	w.s, w.id, w.n = s, r.id, n
	if r.more != nil {
		w.lease, w.count = r.more, max(1, r.more.size/int64(n))
	}
	class, err := sh.batches.do(ctx, w, r.budget, l.closed)
	end := time.Now()
	l.watchTopology(class, end)
	switch {
	case class == breaker.ClassOK:
		d, sent := w.out, w.sent
		w.free()
		if cached && d.Remaining < int64(n) {
			l.denials.put(hash, r.id, &s.args.Params, n, age, d, sent, end)
		}
		l.afterRedis(s, r.key, d, end)
		return sh.count(result(s.limit, d, SourceRedis)), nil
	case class.Fallback():
		return l.fallBack(sh, s, r.key, n, err)
	default:
		return Result{}, l.callerError(ctx, r.key, class, err)
	}
}

// watchTopology keeps the map of a cluster's slots up to date.
func (l *Limiter) watchTopology(class breaker.Class, now time.Time) {
	if l.slots == nil {
		return
	}
	if class != breaker.ClassOK {
		l.slots.hurry()
	}
	if l.slots.turn.due(now, slotRefresh) {
		l.background.start(l.slots.refresh)
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

// settle classifies a call's error and reports it to the breaker.
func (l *Limiter) settle(ctx context.Context, permit breaker.Permit, err error, took time.Duration) breaker.Class {
	class := classify(ctx, err, took, l.budget)
	permit.Done(class, took)
	if class == breaker.ClassPermission {
		l.denied.Do(func() {
			l.logger.Error("holdfast: Redis refuses the limiter's commands; limits hold locally", "prefix", l.prefix, "error", err)
		})
	}
	if l.functions {
		if inUse, why := l.lua.Functions(); !inUse {
			l.evalOnly.Do(func() {
				l.logger.Warn("holdfast: functions cannot be used; using EVALSHA", "prefix", l.prefix, "error", why)
			})
		}
	}
	return class
}

func classify(ctx context.Context, err error, took, budget time.Duration) breaker.Class {
	if err == nil {
		return breaker.ClassOK
	}
	var reply *lua.ReplyError
	switch {
	case errors.Is(err, ErrClosed):
		return breaker.ClassCaller
	case errors.As(err, &reply):
		return breaker.ClassBug
	case errors.Is(err, errNoTurn):
		return breaker.ClassAborted
	case errors.Is(err, errBudget):
		// A caller in a hurry gets a shorter budget. That it passed says
		// little about Redis when it was very short: nobody's fault.
		if took < budget/4 {
			return breaker.ClassAborted
		}
		return breaker.ClassSlow
	}
	return breaker.Classify(ctx, err)
}

// callerError is the error of a decision that the fallback must not hide.
func (l *Limiter) callerError(ctx context.Context, key string, class breaker.Class, err error) error {
	if class == breaker.ClassBug {
		return &StateError{Key: key, Err: err}
	}
	switch ctxErr := ctx.Err(); {
	case ctxErr != nil:
		return ctxErr
	case errors.Is(err, ErrClosed):
		return ErrClosed
	default:
		// The clock has passed the deadline, the context's timer is yet to fire.
		return context.DeadlineExceeded
	}
}

var errOpen = errors.New("circuit breaker is open")

// fallBack decides without Redis.
func (l *Limiter) fallBack(sh *shard, s *spec, key string, n int, cause error) (Result, error) {
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
	own := s.local(l.currentShare())
	var d algo.Decision
	if neverExecuted(cause) {
		d = l.local.DecideOwing(key, own, int64(n), s.args.Params)
	} else {
		// It may have been charged in Redis, or still be: owing it as well
		// would charge it twice.
		d = l.local.Decide(key, own, int64(n))
	}
	return sh.count(result(s.limit, d, SourceLocal)), nil
}

// neverExecuted reports whether it is certain that Redis has not charged, and
// will not charge, a decision that ended in err.
func neverExecuted(err error) bool {
	if err == errOpen || errors.Is(err, errUnsent) {
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

// breakerChanged logs and reports a change of state. An outage is one line when
// it begins and one when it is over; the probes in between are for debugging.
func (l *Limiter) breakerChanged(ch breaker.Change) {
	args := []any{"breaker", ch.Name, "from", ch.From, "to", ch.To}
	switch {
	case ch.To == breaker.Closed:
		l.logger.Info("holdfast: Redis decides again", args...)
	case ch.From == breaker.Closed:
		l.logger.Warn("holdfast: Redis cannot decide; falling back", append(args, "policy", l.policy, "cause", ch.Cause)...)
	default:
		l.logger.Debug("holdfast: asking Redis again", append(args, "cause", ch.Cause, "open for", ch.OpenFor)...)
	}
	if l.hooks.BreakerChange != nil {
		l.hooks.BreakerChange(ch)
	}
}
