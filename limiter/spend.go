package limiter

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

// leaseError says why a limit has no room for its lease.
func leaseError(s *spec) error {
	rule := "must fit into the limit's units, for each key shard"
	if !s.limit.kind.Windowed() {
		rule = "must fit into the burst, less what the rate produces in the lease's age, for each key shard"
	}
	if s.limit.Algorithm() == AlgorithmLeakyBucketShaping {
		rule = "cannot be used with leaky bucket shaping, which gives each request a delay of its own"
	}
	return &ConfigError{"lease", s.lease, rule}
}

// decideLeased spends what this process holds, and asks for what is missing.
func (l *Limiter) decideLeased(ctx context.Context, r request) (Result, error) {
	sh, s, key, id, n := r.sh, r.s, r.key, r.id, r.n
	ls := l.leases.find(id, &s.args, n > 0)
	if ls == nil {
		return l.request(ctx, r)
	}
	now := time.Now()
	if n == 0 {
		res, err := l.request(ctx, r)
		return ls.include(res, now), err
	}
	deadline := now.Add(r.budget)
	rest, ok := ls.spend(int64(n), now)
	if !ok && !sh.Breaker.Refuses() {
		if d, denied := l.knownDenied(s, id, n-int(rest.sum())); denied {
			l.undo(ls, &rest)
			return count(sh, ls.include(s.result(d, SourceCache), now)), nil
		}
		r.unknown = true
		ls.await(ctx, now.Add(r.budget/2))
		// If more has come, even before the wait, Redis would not have it for us any more.
		l.undo(ls, &rest)
		rest, ok = ls.spend(int64(n), time.Now())
	}
	if ok {
		held, until, said := ls.view(now)
		l.askAhead(sh, s, key, ls, now, held, until)
		r.rc.fromLease(ls, rest)
		return count(sh, said.result(s, now, held)), nil
	}
	r.n, r.budget = n-int(rest.sum()), time.Until(deadline)
	if r.unknown && rest.sum() == 0 && ls.begin() {
		r.more = ls
	}
	res, err := l.request(ctx, r)
	if err == nil && r.more == nil && res.Source == SourceRedis {
		ls.note(int64(res.Remaining), now.Add(res.ResetAfter))
	}
	if err == nil && res.Allowed {
		r.rc.fromLease(ls, rest)
		return ls.include(res, now), nil
	}
	l.undo(ls, &rest)
	if err == nil && res.Source == SourceRedis {
		// A call for more may be the reason, under way or ended since.
		if r.more == nil {
			ls.await(ctx, deadline)
		}
		if rest, ok = ls.spend(int64(n), time.Now()); ok {
			sh.Counts[res.Source].Add(^uint64(0))
			held, _, said := ls.view(now)
			r.rc.fromLease(ls, rest)
			return count(sh, said.result(s, now, held)), nil
		}
		l.undo(ls, &rest)
	}
	return ls.include(res, now), err
}

// undo puts units back, into the lease or, where that has moved on, into Redis.
func (l *Limiter) undo(ls *lease, units *scrape) {
	var back []lua.Taken
	for _, g := range ls.undo(units) {
		if t, ok := ls.unspent(g, l.names); ok {
			back = append(back, t)
		}
	}
	l.giveBackSoon(back)
}

// knownDenied is what the request would find in the cache.
func (l *Limiter) knownDenied(s *spec, id string, n int) (algo.Decision, bool) {
	if l.askAgain {
		return algo.Decision{}, false
	}
	return l.denials.Get(l.denials.Ask(id), &s.args.Params, n)
}

// await waits for the end of a call for more, if one is under way.
func (ls *lease) await(ctx context.Context, deadline time.Time) {
	call := ls.call.Load()
	if call == nil {
		return
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-*call:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// result is that of a cost which was spent from a lease with so much left.
func (seen *seen) result(s *spec, now time.Time, held int64) Result {
	res := Result{Allowed: true, Limit: s.limit, Source: SourceLease}
	if seen != nil {
		res.Remaining = int(seen.remaining)
		res.ResetAfter = max(time.Microsecond, algo.Duration(algo.Micros(seen.resetAt.Sub(now))))
	}
	res.Remaining = min(res.Remaining+int(held), s.limit.Burst())
	return res
}

// include adds what is held to what Redis says is left.
func (ls *lease) include(res Result, now time.Time) Result {
	if res.Source == SourceRedis || res.Source == SourceCache {
		held, _ := ls.held(now)
		res.Remaining = min(res.Remaining+int(held), res.Limit.Burst())
	}
	return res
}

// askAhead fetches more in the background when half of the lease is spent, or
// three quarters of its time are over.
func (l *Limiter) askAhead(sh *redislink.Server, s *spec, key string, ls *lease, now time.Time, held int64, until time.Time) {
	if !ls.wanting(now, held, until) || int64(l.redis.Since(now)) < ls.askAt.Load() || sh.Breaker.Refuses() || !ls.begin() {
		return
	}
	// Another call may have ended since.
	if held, until = ls.held(now); !ls.wanting(now, held, until) || !l.redis.Background.Start(func(context.Context) { l.refill(sh, s, key, ls) }) {
		ls.end()
	}
}

// wanting reports whether it is time to ask for more.
func (ls *lease) wanting(now time.Time, held int64, until time.Time) bool {
	return held <= ls.size/2 || until.Sub(now) < ls.age/4
}

// refill asks for what ls has room for. Close waits for it, within the budget.
func (l *Limiter) refill(sh *redislink.Server, s *spec, key string, ls *lease) {
	held, _ := ls.held(time.Now())
	o := l.op(&request{s: s, id: ls.id, n: 1})
	o.Count, o.Named = max(1, ls.size-held), s.args.Kind == algo.SlidingWindowLog
	o.After = func(o *redislink.Op, _ bool) { l.fill(ls, s, o, false) }
	if class, _ := l.redis.Do(context.Background(), sh, o, l.budget); class == breaker.ClassOK {
		d := o.Out
		l.redis.Free(o)
		l.afterRedis(s, key, 1, d)
	}
}

// fill gives a lease what was admitted beyond its caller's own, or all of it when that has
// left or was none, and ends the call for more.
func (l *Limiter) fill(ls *lease, s *spec, o *redislink.Op, answered bool) {
	defer ls.end()
	if o.Class != breaker.ClassOK {
		return
	}
	d := o.Whole
	remaining, resetAt := max(0, d.Remaining+o.Behind-s.args.Keep), o.Sent.Add(algo.Duration(d.ResetAfter))
	if d.RetryAfter > 0 {
		ls.askAt.Store(int64(l.redis.Since(o.Sent.Add(algo.Duration(d.RetryAfter)))))
	}
	admitted := o.Admitted
	if answered {
		admitted = max(0, admitted-1)
	}
	units := admitted * o.Cost
	if units == 0 {
		ls.arrive(nil, remaining, resetAt)
		return
	}
	g := &grant{
		until: o.Sent.Add(min(s.leaseAge, algo.Duration(s.args.UntilBorder(d)))),
		total: units, at: o.At, first: o.First + (o.Admitted-admitted)*o.Cost, member: o.Member,
	}
	g.left.Store(units)
	if old := ls.arrive(g, remaining, resetAt); old != nil {
		if t, ok := ls.unspent(old, l.names); ok {
			l.giveBackSoon([]lua.Taken{t})
		}
	}
}
