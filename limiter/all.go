package limiter

import (
	"context"
	"reflect"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/denial"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

// group is what one call decides.
type group struct {
	parts []int // their indices
	alone bool  // one that makes its own decision
}

// multiDecision is one decision of a Multi.
type multiDecision struct {
	parts    []Part
	asks     []ask
	requests []request
	receipts []receipt
	results  []Result
	asked    []bool
	end      time.Time // of the longest budget of the parts, which is that of all
}

func newMultiDecision(parts []Part, key string, cost []Cost, receipts []receipt) *multiDecision {
	n := len(parts)
	a := &multiDecision{
		parts: parts, asks: make([]ask, n), requests: make([]request, n), receipts: receipts,
		results: make([]Result, n), asked: make([]bool, n),
	}
	for i := range parts {
		a.asks[i] = parts[i].of(key, cost, i)
	}
	return a
}

// decide checks everything, then asks: what was denied a moment ago, then Redis. failed is
// the part that an error is of.
func (a *multiDecision) decide(ctx context.Context) (failed int, err error) {
	var budget time.Duration
	for i, ask := range a.asks {
		l := a.parts[i].Limiter
		s, err := l.limits.use(ctx, l.limits.choose(ctx, ask.key))
		if err != nil {
			return i, err
		}
		if err := l.redis.decider.enter(ctx, s, ask.key, ask.n); err != nil {
			return i, err
		}
		a.requests[i] = l.redis.decider.request(l.redis.decider.redis.Budget, s.boundedBy(ctx, l.engine.answers()), ask.key, ask.n, nil)
		budget = max(budget, a.requests[i].budget)
	}
	a.end = time.Now().Add(budget)
	if a.known() {
		return 0, nil
	}
	return a.askAll(ctx)
}

// callHooks calls the hooks of the parts that were asked, or of the one that failed.
func (a *multiDecision) callHooks(ctx context.Context, allowed bool, failed int, err error, took time.Duration) {
	for i, ask := range a.asks {
		h := a.parts[i].Limiter.hook
		d := DecisionInfo{Key: ask.key, Cost: ask.n, Err: err, Took: took}
		switch {
		case !h.observes(ask.n), err != nil && i != failed, err == nil && !a.asked[i]:
			continue
		case err == nil:
			d.Result, d.NotCharged = a.results[i], a.results[i].Allowed && !allowed
		}
		h(ctx, d)
	}
}

// askAll asks one group after the other, and gives back what was taken when one
// denies. failed is the part that an error is of.
func (a *multiDecision) askAll(ctx context.Context) (failed int, err error) {
	groups := a.groups()
	if a.receipts != nil || len(groups) > 1 {
		for i := range a.requests {
			a.receive(i)
		}
	}
	for i, g := range groups {
		ok, failed, err := a.ask(ctx, g)
		if err != nil || !ok {
			a.giveBack(ctx, groups[:i])
			return failed, err
		}
	}
	return 0, nil
}

// known reports whether a part was denied a moment ago.
func (a *multiDecision) known() (denied bool) {
	for i := range a.requests {
		r := &a.requests[i]
		if r.s.parts != nil {
			continue
		}
		r.unknown = r.s.leased // what is held is spent first
		if res, known := a.parts[i].Limiter.redis.decider.knows(r); known {
			a.set(i, res)
			denied = true
		}
		r.unknown = true // the denials were read, and a second reading would be counted
	}
	return denied
}

// set notes the decision on a part.
func (a *multiDecision) set(i int, res Result) { a.results[i], a.asked[i] = res, true }

// groups puts together what one script can decide: the keys of one server, in a
// cluster of one slot.
func (a *multiDecision) groups() []group {
	if len(a.requests) == 1 {
		return []group{{parts: []int{0}, alone: true}}
	}
	var out []group
next:
	for i := range a.requests {
		r := &a.requests[i]
		if r.s.leased || r.s.parts != nil {
			out = append(out, group{[]int{i}, true})
			continue
		}
		for g := range out {
			if !out[g].alone && a.together(out[g].parts[0], i) {
				out[g].parts = append(out[g].parts, i)
				continue next
			}
		}
		out = append(out, group{parts: []int{i}})
	}
	for g := range out {
		out[g].alone = len(out[g].parts) == 1
	}
	return out
}

func (a *multiDecision) together(i, j int) bool {
	if !sameClient(a.parts[i].Limiter, a.parts[j].Limiter) {
		return false
	}
	if a.requests[i].srv.Addr != a.requests[j].srv.Addr {
		return false
	}
	return !a.requests[i].srv.OneSlot() || redislink.Slot(a.requests[i].id) == redislink.Slot(a.requests[j].id)
}

// ask decides a group: all of it or nothing.
func (a *multiDecision) ask(ctx context.Context, g group) (ok bool, failed int, err error) {
	first := g.parts[0]
	r, d := &a.requests[first], a.parts[first].Limiter.redis.decider
	r.budget = min(d.redis.Budget, time.Until(a.end))
	if g.alone {
		var res Result
		if r.s.leased || r.s.parts != nil {
			res, err = a.parts[first].Limiter.redis.within(ctx, r.budget, r.s, r.key, r.n, r.rc)
		} else {
			res, err = d.ask(ctx, *r)
		}
		a.set(first, res)
		return res.Allowed, first, err
	}
	items := make([]lua.Item, len(g.parts))
	asking := make([]denial.Asking, len(g.parts))
	for k, i := range g.parts {
		r, d := &a.requests[i], a.parts[i].Limiter.redis.decider
		items[k] = lua.Item{Keys: d.redis.Names.KeysOf(r.s.args.Kind, r.id), Params: r.s.args, Cost: int64(r.n)}
		asking[k] = d.denials.Ask(r.id)
	}
	start := time.Now()
	cmd := &lua.DecideAll{Items: items}
	o := &redislink.Op{ID: r.id, Command: cmd}
	if r.srv.Unavailable() {
		return a.fallBack(ctx, g, redislink.ErrOpen)
	}
	err = d.redis.Ask(ctx, r.srv, o, r.budget)
	end := time.Now()
	switch {
	case err == nil:
		return a.decided(g, items, asking, cmd.Out, o.Member, start, end), 0, nil
	case r.srv.Apart(err):
		return a.askApart(ctx, g)
	case redislink.FallsBack(err):
		return a.fallBack(ctx, g, err)
	}
	return false, first, redislink.CallerError(ctx, r.key, err)
}

// askApart decides a group part by part, which Redis does not take together: its keys are
// in several slots, or in one that is migrating.
func (a *multiDecision) askApart(ctx context.Context, g group) (ok bool, failed int, err error) {
	for k, i := range g.parts {
		a.receive(i)
		if ok, failed, err = a.ask(ctx, group{parts: []int{i}, alone: true}); err != nil || !ok {
			a.giveBack(ctx, []group{{parts: g.parts[:k]}})
			return ok, failed, err
		}
	}
	return true, 0, nil
}

// receive lets the i-th part note where its units are taken.
func (a *multiDecision) receive(i int) {
	if a.receipts == nil {
		a.receipts = make([]receipt, len(a.requests))
	}
	r := &a.requests[i]
	r.rc = &a.receipts[i]
	if r.s.parts == nil {
		r.rc.of(r.s, r.key)
	}
}

// decided records what Redis said.
func (a *multiDecision) decided(g group, items []lua.Item, asking []denial.Asking, all []algo.Decision, nonce string, start, end time.Time) bool {
	ok := true
	for _, d := range all {
		ok = ok && d.Allowed
	}
	for k, i := range g.parts {
		r, d, out := &a.requests[i], a.parts[i].Limiter.redis.decider, all[k]
		// That it was charged puts an older denial right, too.
		if !out.Allowed || ok && out.Remaining < int64(r.n)+r.s.args.Keep {
			d.remember(asking[k], r.s, r.n, out, start, end)
		}
		if ok {
			r.rc.fromRedis(items[k].Keys, r.n, &redislink.Op{At: items[k].At, First: 1, Member: lua.Member(nonce, 0)})
		}
		charged := 0
		if ok {
			charged = r.n
		}
		d.decided(r.srv, r.s, r.id, charged, out, int64(charged))
		a.set(i, count(r.srv, r.s.result(out, SourceRedis)))
	}
	return ok
}

// fallBack decides a group without Redis, each part by its own policy. It peeks
// first, so that the others are not charged when one denies.
func (a *multiDecision) fallBack(ctx context.Context, g group, cause error) (bool, int, error) {
	ok := true
	for _, i := range g.parts {
		r, d := &a.requests[i], a.parts[i].Limiter.redis.decider
		if d.policy != fallback.Local {
			continue
		}
		d.redis.UseShare()
		claim := d.claim(r.s, r.id)
		res := d.ofClaim(r, claim, d.local.Peek(r.id, r.s.local(claim, d.phase), int64(r.n)))
		a.set(i, res)
		ok = ok && res.Allowed
	}
	if !ok {
		for _, i := range g.parts {
			if a.asked[i] {
				count(a.requests[i].srv, a.results[i])
			}
		}
		return false, 0, nil
	}
	for k, i := range g.parts {
		r, d := &a.requests[i], a.parts[i].Limiter.redis.decider
		a.receive(i)
		res, err := d.fallBack(r, cause)
		if err == nil && res.Allowed {
			a.set(i, res)
			continue
		}
		a.giveBack(ctx, []group{{parts: g.parts[:k]}})
		a.set(i, res)
		return false, i, err
	}
	return true, 0, nil
}

// sameClient reports whether two limiters have one client. Clients that cannot be compared
// count as different ones.
func sameClient(a, b *Limiter) bool {
	x, y := a.redis.decider.redis.Client, b.redis.decider.redis.Client
	return reflect.ValueOf(x).Comparable() && reflect.ValueOf(y).Comparable() && x == y
}

// giveBack gives back what the groups took. When Redis cannot be reached now, that is not an
// error of the decision.
func (a *multiDecision) giveBack(ctx context.Context, groups []group) {
	ctx = context.WithoutCancel(ctx)
	for _, g := range groups {
		for _, i := range g.parts {
			r := &a.requests[i]
			if r.n > 0 && a.results[i].Source != SourceOpen {
				r.rc.end = a.end
				_ = a.parts[i].Limiter.redis.decider.giveBack(ctx, r.rc, r.n)
			}
			*r.rc = receipt{}
		}
	}
}

// result puts the parts together.
func (a *multiDecision) result() MultiResult {
	out := MultiResult{Result: Result{Allowed: true}, Parts: make([]PartResult, 0, len(a.results))}
	least := -1
	for i, res := range a.results {
		if !a.asked[i] {
			continue
		}
		name := a.parts[i].Name
		out.Parts = append(out.Parts, PartResult{name, res})
		out.Allowed = out.Allowed && res.Allowed
		out.Delay, out.ResetAfter = max(out.Delay, res.Delay), max(out.ResetAfter, res.ResetAfter)
		if !res.Allowed && res.RetryAfter > out.RetryAfter {
			out.RetryAfter, out.Denied = res.RetryAfter, name
			out.Limit, out.Source, out.Claim = res.Limit, res.Source, res.Claim
		}
		out.BeyondClaim = out.BeyondClaim || res.BeyondClaim
		if least < 0 || res.Remaining < a.results[least].Remaining {
			least = i
		}
	}
	out.Remaining = a.results[least].Remaining
	if out.Allowed {
		res := a.results[least]
		out.Limit, out.Source, out.Claim = res.Limit, res.Source, res.Claim
	} else {
		out.Delay = 0
	}
	return out
}
