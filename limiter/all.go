package limiter

import (
	"context"
	"math"
	"reflect"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

// group is what one call decides.
type group struct {
	parts []int // their indices
	alone bool  // one that makes its own decision
}

// multiDecision is one decision of a Multi, in memory that is used again.
type multiDecision struct {
	parts    []Part
	clients  []int // as in Multi
	asks     []ask
	specs    []*spec
	requests []request
	receipts []receipt
	results  []Result
	asked    []bool
	// What a call decides together: no call has these while another one is made.
	groups []group
	items  []lua.Item

	end    time.Time // of the longest budget of the parts, which is that of all
	fewer  bool      // AtMost: fewer units will do
	unsure bool      // Redis may have charged what was decided locally
	read   bool      // the denials were read, and Redis was asked since
}

// begin returns a decision to be made, which is for end.
func (m *Multi) begin(key string, opts []CallOption, receipts []receipt) *multiDecision {
	a, _ := m.unused.Get().(*multiDecision)
	if n := len(m.parts); a == nil {
		a = &multiDecision{
			parts: m.parts, clients: m.clients, asks: make([]ask, n), specs: make([]*spec, n), requests: make([]request, n),
			results: make([]Result, n), asked: make([]bool, n), groups: make([]group, 0, n),
		}
	}
	a.receipts, a.fewer = receipts, fewer(opts)
	for i := range m.parts {
		a.asks[i] = m.parts[i].of(key, opts, i)
	}
	return a
}

// finished takes back a decision that no caller reads any more.
func (m *Multi) finished(a *multiDecision) {
	clear(a.asks)
	clear(a.specs)
	clear(a.requests)
	clear(a.results)
	clear(a.asked)
	clear(a.items)
	a.receipts, a.end, a.fewer, a.unsure, a.read = nil, time.Time{}, false, false, false
	m.unused.Put(a)
}

// decide decides on all units or, where fewer will do, on those that all parts have room for.
// failed is the part that an error is of.
func (a *multiDecision) decide(ctx context.Context) (failed int, err error) {
	for i, ask := range a.asks {
		l := a.parts[i].Limiter
		if a.specs[i], err = l.limits.use(ctx, l.limits.choose(ctx, ask.key, ask.limit)); err != nil {
			return i, err
		}
	}
	if a.fewer {
		n := a.asks[0].n
		for _, s := range a.specs {
			n = (&call{n: n, fewer: true}).within(s)
		}
		a.fewerThan(n)
	}
	for tries := 1; ; tries++ {
		if failed, err = a.try(ctx); err != nil || !a.fewer || a.unsure || a.asks[0].n <= 1 || !a.denied() {
			return failed, err
		}
		remaining := math.MaxInt
		for i, res := range a.results {
			if a.asked[i] {
				if !res.Allowed {
					remaining = min(remaining, res.Remaining)
				}
				if s := a.requests[i].s; s.parts == nil { // it is one decision
					a.requests[i].srv.Counts[res.Source].Add(^uint64(0))
				}
			}
		}
		a.fewerThan(next(tries, a.asks[0].n, remaining))
		clear(a.asked)
	}
}

// fewerThan asks for n units of each part.
func (a *multiDecision) fewerThan(n int) {
	for i := range a.asks {
		a.asks[i].n = n
	}
}

// denied reports that a part has denied.
func (a *multiDecision) denied() bool {
	for i, res := range a.results {
		if a.asked[i] && !res.Allowed {
			return true
		}
	}
	return false
}

// try checks everything, then asks: what was denied a moment ago, then Redis.
func (a *multiDecision) try(ctx context.Context) (failed int, err error) {
	var budget time.Duration
	for i, ask := range a.asks {
		l, s := a.parts[i].Limiter, a.specs[i]
		if err := l.redis.decider.enter(ctx, s, ask.key, ask.n); err != nil {
			return i, err
		}
		r := &a.requests[i]
		*r, a.results[i] = request{unsure: &a.unsure}, Result{}
		r.begin(l.redis.decider, l.redis.decider.redis.Budget, s.boundedBy(ctx, l.engine.answers()), ask.key, ask.n, nil)
		budget = max(budget, r.budget)
	}
	if a.end.IsZero() {
		a.end = time.Now().Add(budget)
	}
	if a.known() {
		return 0, nil
	}
	a.read = true
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
	groups := a.group()
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
		r.unknown, r.fewer = r.s.leased || a.read, a.fewer // what is held is spent first
		if a.parts[i].Limiter.redis.decider.knows(r, &a.results[i]) {
			a.decided(i)
			denied = true
		}
		// The denials were read, and a second reading would be counted. Of all parts the same is asked for.
		r.unknown, r.fewer = true, false
	}
	return denied
}

// decided notes that the result of a part is the decision on it.
func (a *multiDecision) decided(i int) {
	if res := &a.results[i]; res.Allowed {
		res.Admitted = a.asks[i].n
	}
	a.asked[i] = true
}

// group puts together what one script can decide: the keys of one server, in a
// cluster of one slot.
func (a *multiDecision) group() []group {
	out := a.groups[:0]
next:
	for i := range a.requests {
		r := &a.requests[i]
		alone := r.s.leased || r.s.parts != nil
		for g := range out {
			if !alone && !out[g].alone && a.together(out[g].parts[0], i) {
				out[g].parts = append(out[g].parts, i)
				continue next
			}
		}
		out = out[:len(out)+1] // there is room for as many groups as parts
		g := &out[len(out)-1]
		g.parts, g.alone = append(g.parts[:0], i), alone
	}
	for g := range out {
		out[g].alone = len(out[g].parts) == 1
	}
	return out
}

func (a *multiDecision) together(i, j int) bool {
	if a.clients[i] != a.clients[j] || a.requests[i].srv.Addr != a.requests[j].srv.Addr {
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
		res := &a.results[first]
		if r.s.leased || r.s.parts != nil {
			err = a.parts[first].Limiter.redis.within(ctx, r.budget, r.s, r.key, r.n, false, r.rc, res)
			a.unsure = a.unsure || res.Source == SourceLocal
		} else {
			err = d.ask(ctx, r, res)
		}
		a.decided(first)
		return res.Allowed, first, err
	}
	items := a.items[:0]
	for _, i := range g.parts {
		r, d := &a.requests[i], a.parts[i].Limiter.redis.decider
		items = append(items, lua.Item{Keys: d.redis.Names.KeysOf(r.s.args.Kind, r.id), Params: r.s.args, Cost: int64(r.n)})
		r.asking = d.denials.Again(r.asking)
	}
	start := time.Now()
	if r.srv.Unavailable() {
		return a.fallBack(ctx, g, redislink.ErrOpen)
	}
	o := d.redis.NewOp()
	o.ID, o.All = r.id, items
	a.items = nil // a call that is left by its caller keeps them
	err = d.redis.Ask(ctx, r.srv, o, r.budget)
	end := time.Now()
	switch {
	case err == nil:
		ok = a.answered(g, o, start, end)
		a.items = items
		d.redis.Free(o)
		return ok, 0, nil
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

// answered records what Redis said.
func (a *multiDecision) answered(g group, o *redislink.Op, start, end time.Time) bool {
	ok := true
	for k := range o.Outs {
		ok = ok && o.Outs[k].Allowed
	}
	for k, i := range g.parts {
		r, d, out := &a.requests[i], a.parts[i].Limiter.redis.decider, &o.Outs[k]
		// That it was charged puts an older denial right, too.
		if !out.Allowed || ok && out.Remaining < int64(r.n)+r.s.args.Keep {
			d.remember(r, out, start, end)
		}
		charged := 0
		if ok {
			charged = r.n
			r.rc.fromRedis(o.All[k].Keys, r.n, o.All[k].At)
		}
		d.decided(r.srv, r.s, r.id, charged, *out, int64(charged))
		r.result(&a.results[i], out, SourceRedis)
		a.decided(i)
	}
	return ok
}

// fallBack decides a group without Redis, each part by its own policy. It peeks
// first, so that the others are not charged when one denies.
func (a *multiDecision) fallBack(ctx context.Context, g group, cause error) (bool, int, error) {
	ok := true
	a.unsure = a.unsure || !redislink.NeverExecuted(cause)
	for _, i := range g.parts {
		r, d := &a.requests[i], a.parts[i].Limiter.redis.decider
		if d.policy != fallback.Local {
			continue
		}
		d.redis.UseShare()
		claim := d.claim(r.srv, r.s, r.id)
		out := d.local.Peek(r.id, r.s.local(claim, d.phase), int64(r.n))
		d.ofClaim(r, claim, &out, &a.results[i])
		a.decided(i)
		ok = ok && out.Allowed
	}
	if !ok {
		for _, i := range g.parts {
			if a.asked[i] {
				a.requests[i].count(&a.results[i])
			}
		}
		return false, 0, nil
	}
	for k, i := range g.parts {
		r, d := &a.requests[i], a.parts[i].Limiter.redis.decider
		a.receive(i)
		err := d.fallBack(r, cause, &a.results[i])
		a.decided(i)
		if err == nil && a.results[i].Allowed {
			continue
		}
		a.giveBack(ctx, []group{{parts: g.parts[:k]}})
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
			r.rc.end = a.end
			_ = a.parts[i].Limiter.redis.decider.giveBack(ctx, r.rc, r.n)
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
		out.Admitted = res.Admitted
		out.Limit, out.Source, out.Claim = res.Limit, res.Source, res.Claim
	} else {
		out.Delay = 0
	}
	return out
}
