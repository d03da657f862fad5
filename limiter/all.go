package limiter

import (
	"context"
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

// all is one decision of a Multi.
type all struct {
	m        *Multi
	requests []request
	receipts []receipt
	results  []Result
	asked    []bool
	end      time.Time // of the longest budget of the parts, which is that of all
}

// decide checks everything, then asks: what was denied a moment ago, then Redis.
func (m *Multi) decide(ctx context.Context, asks []Ask, most time.Duration, receipts []receipt) (MultiResult, error) {
	if len(asks) != len(m.parts) {
		return MultiResult{}, &ConfigError{"asks", len(asks), "must be one for each part"}
	}
	if !m.observed {
		res, _, err := m.judge(ctx, asks, most, receipts)
		return res, err
	}
	start := time.Now()
	res, failed, err := m.judge(ctx, asks, most, receipts)
	m.told(ctx, asks, &res, failed, err, start)
	return res, err
}

// told tells the hooks of the parts what was decided.
func (m *Multi) told(ctx context.Context, asks []Ask, res *MultiResult, failed int, err error, start time.Time) {
	took := time.Since(start)
	tell := func(i int, d DecisionInfo) {
		if h := &m.parts[i].Limiter.hooks; h.observes(asks[i].N) {
			d.Key, d.Cost, d.Took = asks[i].Key, asks[i].N, took
			h.Decision(ctx, d)
		}
	}
	if err != nil {
		tell(failed, DecisionInfo{Err: err})
		return
	}
	i := 0
	for _, p := range res.Parts { // in the order of the parts, without those not asked
		for m.parts[i].Name != p.Name {
			i++
		}
		tell(i, DecisionInfo{Result: p.Result, NotCharged: p.Allowed && !res.Allowed})
	}
}

// judge is decide without telling anybody. failed is the part that an error is of.
func (m *Multi) judge(ctx context.Context, asks []Ask, most time.Duration, receipts []receipt) (res MultiResult, failed int, err error) {
	a := &all{m: m, requests: make([]request, len(asks)), receipts: receipts, results: make([]Result, len(asks)), asked: make([]bool, len(asks))}
	var budget time.Duration
	for i := range asks {
		l := m.parts[i].Limiter
		s := l.spec(ctx)
		if err := l.enter(ctx, s, asks[i].Key, asks[i].N); err != nil {
			return MultiResult{}, i, ofPart(m.parts[i].Name, err)
		}
		budget = max(budget, l.budget)
		id := lua.EncodeID(asks[i].Key)
		a.requests[i] = request{sh: l.redis.Server(id), s: s.boundedBy(most), key: asks[i].Key, id: id, n: asks[i].N, budget: l.budget}
	}
	a.end = time.Now().Add(budget)
	if a.known() {
		return a.result(), 0, nil
	}
	failed, err = a.askAll(ctx)
	if err != nil {
		return MultiResult{}, failed, ofPart(m.parts[failed].Name, err)
	}
	return a.result(), 0, nil
}

// askAll asks one group after the other, and gives back what was taken when one
// denies. failed is the part that an error is of.
func (a *all) askAll(ctx context.Context) (failed int, err error) {
	groups := a.groups()
	if a.receipts == nil && len(groups) > 1 {
		a.receipts = make([]receipt, len(a.requests))
	}
	for i := range a.receipts {
		a.receive(i)
	}
	for i, g := range groups {
		ok, failed, err := a.ask(ctx, g)
		if err != nil || !ok {
			a.giveUp(ctx, groups[:i])
			return failed, err
		}
	}
	return 0, nil
}

// known reports whether a part was denied a moment ago.
func (a *all) known() (denied bool) {
	for i := range a.requests {
		r, l := &a.requests[i], a.m.parts[i].Limiter
		if r.s.parts != nil {
			continue
		}
		if d, blocked := l.blockedHere(r); blocked {
			a.set(i, count(r.sh, r.s.result(d, SourceLocal)))
			denied = true
			continue
		}
		if r.n == 0 || r.s.args.MaxDelay != 0 || r.s.leased || r.sh.Breaker.Refuses() {
			continue
		}
		if d, ok := l.knownDenied(r.s, r.id, r.n); ok {
			a.set(i, count(r.sh, r.s.result(d, SourceCache)))
			denied = true
		}
	}
	return denied
}

// set notes the decision on a part.
func (a *all) set(i int, res Result) { a.results[i], a.asked[i] = res, true }

// groups puts together what one script can decide: the keys of one server, in a
// cluster of one slot.
func (a *all) groups() []group {
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

func (a *all) together(i, j int) bool {
	if !sameClient(a.m.parts[i].Limiter, a.m.parts[j].Limiter) {
		return false
	}
	if a.requests[i].sh.Addr != a.requests[j].sh.Addr {
		return false
	}
	return !a.requests[i].sh.OneSlot() || redislink.Slot(a.requests[i].id) == redislink.Slot(a.requests[j].id)
}

// ask decides a group: all of it or nothing.
func (a *all) ask(ctx context.Context, g group) (ok bool, failed int, err error) {
	first := g.parts[0]
	r, l := &a.requests[first], a.m.parts[first].Limiter
	r.budget = min(l.budget, time.Until(a.end))
	if g.alone {
		var res Result
		if r.s.leased || r.s.parts != nil {
			res, err = l.decideWithin(ctx, r.budget, r.s, r.key, r.n, r.rc)
		} else {
			r.unknown = true // the cache was asked, which counts who asks
			res, err = l.request(ctx, *r)
		}
		a.set(first, res)
		return res.Allowed, first, err
	}
	items := make([]lua.Item, len(g.parts))
	asking := make([]denial.Asking, len(g.parts))
	for k, i := range g.parts {
		r, l := &a.requests[i], a.m.parts[i].Limiter
		items[k] = lua.Item{Keys: l.names.KeysOf(r.s.args.Kind, r.id), Params: r.s.args, Cost: int64(r.n)}
		asking[k] = l.denials.Ask(r.id)
	}
	start := time.Now()
	cmd := &lua.DecideAll{Items: items}
	o := &redislink.Op{ID: r.id, Command: cmd}
	err = l.execWithin(ctx, r.budget, r.sh, o)
	end := time.Now()
	switch {
	case err == nil:
		return a.decided(g, items, asking, cmd.Out, o.Member, start, end), 0, nil
	case r.sh.Apart(err):
		return a.askApart(ctx, g)
	case fallsBack(err):
		return a.fallBack(ctx, g, err)
	}
	return false, first, l.unavailable(ctx, r.key, err)
}

// askApart decides a group part by part, which Redis does not take together: its keys are
// in several slots, or in one that is migrating.
func (a *all) askApart(ctx context.Context, g group) (ok bool, failed int, err error) {
	if a.receipts == nil {
		a.receipts = make([]receipt, len(a.requests))
	}
	for k, i := range g.parts {
		a.receive(i)
		if ok, failed, err = a.ask(ctx, group{parts: []int{i}, alone: true}); err != nil || !ok {
			a.giveUp(ctx, []group{{parts: g.parts[:k]}})
			return ok, failed, err
		}
	}
	return true, 0, nil
}

// receive lets the i-th part note where its units are taken.
func (a *all) receive(i int) {
	r := &a.requests[i]
	r.rc = &a.receipts[i]
	if r.s.parts == nil {
		r.rc.of(r.s, r.key)
	}
}

// decided takes note of what Redis said.
func (a *all) decided(g group, items []lua.Item, asking []denial.Asking, out []algo.Decision, nonce string, start, end time.Time) bool {
	ok := true
	for _, d := range out {
		ok = ok && d.Allowed
	}
	for k, i := range g.parts {
		r, l, d := &a.requests[i], a.m.parts[i].Limiter, out[k]
		// That it was charged puts an older denial right, too.
		empty := !d.Allowed || ok && d.Remaining < int64(r.n)+r.s.args.Keep
		if empty && r.n > 0 && r.s.args.MaxDelay == 0 && !l.askAgain {
			l.denials.Put(asking[k], &r.s.args.Params, r.n, d, start, end)
		}
		if ok && r.rc != nil {
			r.rc.fromRedis(l, r, &redislink.Op{At: items[k].At, First: 1, Member: lua.Member(nonce, k)})
		}
		charged := 0
		if ok {
			charged = r.n
		}
		l.afterRedis(r.s, r.key, charged, d)
		a.set(i, count(r.sh, r.s.result(d, SourceRedis)))
	}
	return ok
}

// fallBack decides a group without Redis, each part by its own policy. It looks
// first, so that one which denies keeps the others from being charged.
func (a *all) fallBack(ctx context.Context, g group, cause error) (bool, int, error) {
	ok := true
	for _, i := range g.parts {
		r, l := &a.requests[i], a.m.parts[i].Limiter
		if l.policy != fallback.Local {
			continue
		}
		own := r.s.local(l.currentShare())
		res := r.s.result(l.local.Look(r.key, own, int64(r.n)), SourceLocal)
		a.set(i, res)
		ok = ok && res.Allowed
	}
	if !ok {
		for _, i := range g.parts {
			if a.asked[i] {
				count(a.requests[i].sh, a.results[i])
			}
		}
		return false, 0, nil
	}
	if a.receipts == nil {
		a.receipts = make([]receipt, len(a.requests))
	}
	for k, i := range g.parts {
		r, l := &a.requests[i], a.m.parts[i].Limiter
		a.receive(i)
		res, err := l.fallBack(r, cause)
		if err == nil && res.Allowed {
			a.set(i, res)
			continue
		}
		a.giveUp(ctx, []group{{parts: g.parts[:k]}})
		a.set(i, res)
		return false, i, err
	}
	return true, 0, nil
}

// giveUp gives back what the groups took. That Redis cannot be told now is no error
// of the decision.
func (a *all) giveUp(ctx context.Context, groups []group) {
	ctx = context.WithoutCancel(ctx)
	for _, g := range groups {
		for _, i := range g.parts {
			r := &a.requests[i]
			if r.n > 0 && a.results[i].Source != SourceOpen {
				r.rc.end = a.end
				_ = a.m.parts[i].Limiter.giveUp(ctx, r.rc, r.n)
			}
			*r.rc = receipt{}
		}
	}
}

// result puts the parts together.
func (a *all) result() MultiResult {
	out := MultiResult{Result: Result{Allowed: true}, Parts: make([]PartResult, 0, len(a.results))}
	least := -1
	for i, res := range a.results {
		if !a.asked[i] {
			continue
		}
		name := a.m.parts[i].Name
		out.Parts = append(out.Parts, PartResult{name, res})
		out.Allowed = out.Allowed && res.Allowed
		out.Delay, out.ResetAfter = max(out.Delay, res.Delay), max(out.ResetAfter, res.ResetAfter)
		if !res.Allowed && res.RetryAfter > out.RetryAfter {
			out.RetryAfter, out.Denied = res.RetryAfter, name
			out.Limit, out.Source = res.Limit, res.Source
		}
		if least < 0 || res.Remaining < a.results[least].Remaining {
			least = i
		}
	}
	out.Remaining = a.results[least].Remaining
	if out.Allowed {
		out.Limit, out.Source = a.results[least].Limit, a.results[least].Source
	} else {
		out.Delay = 0
	}
	return out
}
