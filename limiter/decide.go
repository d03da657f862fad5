package limiter

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/denial"
	"github.com/holdfast-go/holdfast/internal/inprocess"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/outbox"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

// decider decides on keys that are not split: from what this process holds or knows, else
// in Redis, else by the policy. It is safe for concurrent use.
type decider struct {
	redis    *redislink.Link
	policy   fallback.Policy
	askAgain bool    // WithoutDenialCache
	equal    float64 // WithEqualShare; 1 where the share is fixed
	phase    int64   // in which windows fractions of units are used
	local    *inprocess.Store
	outbox   *outbox.Outbox
	denials  *denial.Cache
	leases   *lease.Table // nil without
}

// enter rejects what must not reach Redis.
func (d *decider) enter(ctx context.Context, s *spec, key string, n int) error {
	if err := s.check(key, n); err != nil {
		return err
	}
	if d.redis.IsClosed() {
		return ErrClosed
	}
	return ctx.Err()
}

// decide is the one way to a decision, which it writes into res, an empty one. Where fewer units
// will do, it asks again for those that there is room for; what was decided locally has done so.
func (d *decider) decide(ctx context.Context, r *request, res *Result) error {
	if !r.fewer {
		return d.decideAll(ctx, r, res)
	}
	end := time.Now().Add(r.budget)
	for tries := 1; ; tries++ {
		*res = Result{}
		err := d.decideAll(ctx, r, res)
		switch {
		case res.Allowed:
			res.Admitted = cmp.Or(res.Admitted, r.n)
			return err
		case err != nil, r.n <= 1, res.Source == SourceLocal:
			return err
		}
		r.unknown = r.unknown || res.Source == SourceRedis // one decision reads the denials once, as each reading lets one ask
		r.srv.Counts[res.Source].Add(^uint64(0))           // it is one decision
		r.n, r.budget = next(tries, r.n, res.Remaining), time.Until(end)
	}
}

// decideAll decides on all units of r, or on fewer without Redis.
func (d *decider) decideAll(ctx context.Context, r *request, res *Result) error {
	if r.s.leased {
		return d.spend(ctx, r, res)
	}
	return d.ask(ctx, r, res)
}

// spend decides from what this process holds, and asks for what is missing.
func (d *decider) spend(ctx context.Context, whole *request, res *Result) error {
	r := *whole // of which a part may be asked for
	n := int64(r.n)
	ls := d.leases.Find(r.id, &r.s.args, n > 0)
	if ls == nil {
		return d.ask(ctx, &r, res)
	}
	now := time.Now()
	if n == 0 {
		err := d.ask(ctx, &r, res)
		res.addHeld(ls, now)
		return err
	}
	deadline := now.Add(r.budget)
	units, ok := ls.Spend(n, now)
	if !ok && !r.srv.Unavailable() {
		if d.denied(&r, r.n-int(units.Sum()), res) {
			units.Undo(n)
			res.addHeld(ls, now)
			return nil
		}
		r.unknown = true
		ls.Await(ctx, now.Add(r.budget/2))
		// If more has come, even before the wait, Redis would not have it for us any more.
		units.Undo(n)
		units, ok = ls.Spend(n, time.Now())
	}
	if ok {
		v := ls.View(now)
		if ls.Wants(v, now) {
			d.askAhead(&r, ls, now)
		}
		// Others must count this process although it asks for little.
		if !r.srv.Unavailable() {
			d.redis.Beat(r.srv)
		}
		r.spent(res, units, v, now)
		return nil
	}
	r.n, r.budget = r.n-int(units.Sum()), time.Until(deadline)
	if r.unknown && units.Sum() == 0 && ls.Begin() {
		r.more = ls
	}
	err := d.ask(ctx, &r, res)
	if err == nil && r.more == nil && res.Source == SourceRedis {
		ls.Note(int64(res.Remaining), now.Add(res.ResetAfter))
	}
	if err == nil && res.Allowed && res.Source != SourceOpen { // which charges nothing
		r.rc.fromLease(units)
		if res.Admitted > 0 { // perhaps fewer than were missing
			res.Admitted += int(units.Sum())
		}
		res.addHeld(ls, now)
		return nil
	}
	if r.fewer && err == nil && res.Source == SourceLocal && units.Sum() > 0 {
		r.srv.Counts[res.Source].Add(^uint64(0))
		r.spent(res, units, ls.View(now), now)
		res.Admitted = int(units.Sum())
		return nil
	}
	units.Undo(n)
	if err == nil && res.Source == SourceRedis {
		// A call for more may be the reason, under way or ended since.
		if r.more == nil {
			ls.Await(ctx, deadline)
		}
		if units, ok = ls.Spend(n, time.Now()); ok {
			r.srv.Counts[res.Source].Add(^uint64(0))
			r.spent(res, units, ls.View(now), now)
			return nil
		}
		units.Undo(n)
	}
	res.addHeld(ls, now)
	return err
}

// addHeld adds what is held to what Redis says is left.
func (res *Result) addHeld(ls *lease.Lease, now time.Time) {
	if res.Source == SourceRedis || res.Source == SourceCache {
		res.Remaining = min(res.Remaining+int(ls.View(now).Held), res.Limit.Burst())
	}
}

// askAhead fetches more in the background.
func (d *decider) askAhead(r *request, ls *lease.Lease, now time.Time) {
	if r.srv.Unavailable() || !ls.Begin() {
		return
	}
	if ls.Wants(ls.View(now), now) { // another call may have ended since
		one := request{srv: r.srv, s: r.s, id: r.id, n: 1}
		if d.redis.Background.Start(func(context.Context) { d.refill(&one, ls) }) {
			return
		}
	}
	ls.End()
}

// refill asks for what ls has room for. Close waits for it, within the budget.
func (d *decider) refill(r *request, ls *lease.Lease) {
	o := d.op(r)
	o.Count = ls.Room(time.Now())
	o.After = func(o *redislink.Op, _ bool) { fill(ls, o, false) }
	if class, _ := d.redis.Do(context.Background(), r.srv, o, d.redis.Budget); class == breaker.ClassOK {
		d.noted(r.srv, r.s, r.id, 1, o)
	}
	d.redis.Free(o)
}

// fill gives a lease what was admitted beyond its caller's own, or all of it when that has
// left or was none, and ends the call for more.
func fill(ls *lease.Lease, o *redislink.Op, answered bool) {
	if o.Class != breaker.ClassOK {
		ls.End()
		return
	}
	admitted := o.Admitted
	if answered {
		admitted = max(0, admitted-1)
	}
	ls.Fill(lease.Answer{
		Decision: o.Whole, Behind: o.Behind, Sent: o.Sent, Units: admitted * o.Cost, At: o.At,
	})
}

// op is the request for Redis.
func (d *decider) op(r *request) *redislink.Op {
	o := d.redis.NewOp()
	o.ID, o.Args, o.Keys, o.Cost = r.id, &r.s.args, d.redis.Names.KeysOf(r.s.args.Kind, r.id), int64(r.n)
	return o
}

// ask asks for a decision: what this process knows, the server's breaker,
// then Redis within the budget, then what the class of the error asks for.
func (d *decider) ask(ctx context.Context, r *request, res *Result) error {
	s, n := r.s, r.n
	known := d.knows(r, res)
	open := !known && r.srv.Unavailable()
	if r.more != nil && (known || open) {
		r.more.End()
	}
	switch {
	case known:
		return nil
	case open:
		return d.fallBack(r, redislink.ErrOpen, res)
	}
	// As late as possible: what was forgotten since r began must not keep the answer from being remembered.
	r.asking = d.denials.Again(r.asking)
	o := d.op(r)
	if more := r.more; more != nil {
		o.Count = max(1, more.Size()/int64(n))
		o.After = func(o *redislink.Op, answered bool) { fill(more, o, answered) }
	}
	class, err := d.redis.Do(ctx, r.srv, o, r.budget)
	defer d.redis.Free(o)
	switch {
	case class == breaker.ClassOK:
		if o.Out.Allowed {
			r.rc.fromRedis(o.Keys, n, o.At)
		}
		if o.Out.Remaining < int64(n)+s.args.Keep {
			d.remember(r, &o.Out, o.Sent, time.Now())
		}
		d.noted(r.srv, s, r.id, n, o)
		r.result(res, &o.Out, SourceRedis)
		return nil
	case class.Fallback():
		return d.fallBack(r, err, res)
	default:
		return redislink.CallerError(ctx, r.key, &redislink.Error{Class: class, Err: err})
	}
}

// knows answers what this process knows itself: that it has blocked the key and could not
// tell Redis, or that Redis denied the same a moment ago.
func (d *decider) knows(r *request, res *Result) bool {
	open := r.srv.Unavailable()
	if d.local.Unsent(r.s.args.Kind, r.id) > 0 {
		if !open {
			d.outbox.Send()
		}
		if d.blocked(r, res) {
			return true
		}
	}
	return !open && d.denied(r, r.n, res)
}

// blocked denies what this process has blocked itself. A cost that the claim never admits waits for the
// end of the block, when Redis or the policy is asked again, and not for what the claim would produce.
func (d *decider) blocked(r *request, res *Result) bool {
	claim, n := d.claim(r.srv, r.s, r.id), r.n
	if r.fewer {
		n = min(n, 1)
	}
	about := n
	if r.s.beyond(claim, n) {
		about = 0
	}
	out := d.local.Peek(r.id, r.s.local(claim, d.phase), int64(about))
	if out.Allowed {
		return false
	}
	r.n = n // what the denial is about
	r.result(res, &out, SourceLocal)
	return true
}

// remembers reports whether denials of n units are remembered. Those of a peek, and by the
// bound of one caller's patience, are not for others.
func (d *decider) remembers(s *spec, n int) bool {
	return n > 0 && s.args.MaxDelay == 0 && !d.askAgain
}

// denied answers with what Redis denied a moment ago of n units of r, unless that was read already. Where
// fewer will do, that is one: for how many there was room then does not say for how many there is now.
func (d *decider) denied(r *request, n int, res *Result) bool {
	if r.fewer {
		n = min(n, 1)
	}
	if r.unknown || !d.remembers(r.s, n) {
		return false
	}
	out, ok := d.denials.Get(r.asking, &r.s.args.Params, n)
	if ok {
		r.result(res, &out, SourceCache)
	}
	return ok
}

// remember keeps a denial, or that there is no room for as much again.
func (d *decider) remember(r *request, out *algo.Decision, sent, end time.Time) {
	if d.remembers(r.s, r.n) {
		d.denials.Put(r.asking, &r.s.args.Params, r.n, *out, sent, end)
	}
}

// noted is decided for those who share an item: the first of them does it for all.
func (d *decider) noted(srv *redislink.Server, s *spec, id string, n int, o *redislink.Op) {
	if o.First {
		d.decided(srv, s, id, n, o.Whole, o.Charged)
	}
}

// decided does what rides on a decision on n units that Redis has made: remember the
// answer, and start what is due in the background. granted is how many units Redis charged
// for this process.
func (d *decider) decided(srv *redislink.Server, s *spec, id string, n int, out algo.Decision, granted int64) {
	if d.policy == fallback.Local {
		d.local.Observe(id, s.args.Params, out, granted, srv.AwayAgo())
		d.redis.Beat(srv)
	}
	if n > 0 {
		d.outbox.Decided(granted > 0)
	}
}

// claim is the part of a key's limit that this process may use alone: its share of what is
// shared equally, and of the rest the part that Redis granted it.
func (d *decider) claim(srv *redislink.Server, s *spec, id string) float64 {
	share := d.redis.Share()
	if d.equal == 1 || share == 1 {
		return share
	}
	return d.equal*share + (1-d.equal)*d.local.Granted(id, s.args.Params, srv.AwayAgo())
}

// fallBack decides without Redis.
func (d *decider) fallBack(r *request, cause error, res *Result) error {
	srv, s := r.srv, r.s
	switch d.policy {
	case fallback.Open:
		if d.local.Blocked(s.args.Kind, r.id) > 0 && d.blocked(r, res) {
			return nil
		}
		*res = Result{Allowed: true, Limit: s.limit, Remaining: s.limit.Burst(), Source: SourceOpen}
		r.count(res)
		return nil
	case fallback.Closed:
		// No time is known at which Redis is back; the budget is the least
		// that passes before it would be asked again.
		*res = Result{Limit: s.limit, RetryAfter: d.untilProbe(srv), Source: SourceClosed}
		r.count(res)
		return fmt.Errorf("%w: %w", ErrUnavailable, cause)
	}
	owed := home(s, cause)
	if owed == nil && r.unsure != nil {
		*r.unsure = true
	}
	if srv.Away() {
		d.outbox.Send()
	}
	d.redis.BeatAway(srv)
	d.redis.UseShare()
	claim := d.claim(srv, s, r.id)
	own := s.local(claim, d.phase)
	out, units := take(d.local, r.id, &own, r.n, r.fewer, owed, r.rc)
	if r.fewer && units == 0 {
		r.n = min(r.n, 1) // what the denial is about
	}
	d.ofClaim(r, claim, &out, res)
	res.Admitted = units
	r.count(res)
	return nil
}

// ofClaim makes res, which is empty, what this process decided by its claim.
func (d *decider) ofClaim(r *request, claim float64, out *algo.Decision, res *Result) {
	r.s.result(res, out, SourceLocal)
	res.Claim, res.BeyondClaim = claim, !res.Allowed && r.s.beyond(claim, r.n)
	if res.BeyondClaim { // Redis does not admit it either while the key is blocked
		res.RetryAfter = max(d.untilProbe(r.srv), algo.Duration(d.local.Peek(r.id, r.s.local(claim, d.phase), 0).RetryAfter))
	}
}

// untilProbe is how long it takes at least until a server is asked again.
func (d *decider) untilProbe(srv *redislink.Server) time.Duration {
	until := time.Until(srv.Breaker.Snapshot().OpenUntil)
	return max(d.redis.Budget, until.Round(time.Microsecond))
}

// home is the limit under which Redis is to be charged with what is admitted locally
// because of an error: what it may have charged already, or still will, is not owed.
func home(s *spec, cause error) *algo.Params {
	if redislink.NeverExecuted(cause) {
		return &s.args.Params
	}
	return nil
}

// giveBack gives n of the units of rc back to where they were taken: those of Redis
// before those that this process holds.
func (d *decider) giveBack(ctx context.Context, rc *receipt, n int) error {
	if d.redis.IsClosed() {
		return ErrClosed // also of a lease, which Close has given back
	}
	left := int64(n)
	var err error
	if t := rc.redis; t.Units > 0 {
		t.Units = min(left, t.Units)
		left -= t.Units
		err = redislink.CallerError(ctx, rc.key, d.outbox.Return(ctx, t, rc.budget(d.redis.Budget)))
		d.denials.Forget(t.Keys.ID())
	}
	if units := min(left, rc.leased.Sum()); units > 0 {
		rc.leased.Undo(units)
		left -= units
	}
	if left > 0 {
		d.local.GiveBack(lua.EncodeID(rc.key), &rc.local, left)
	}
	return err
}

// charge takes n more units of the key of rc: as many as there is room for.
func (d *decider) charge(ctx context.Context, rc *receipt, n int) error {
	id, s := lua.EncodeID(rc.key), rc.s
	err := d.redis.Ask(ctx, d.redis.Server(id), &redislink.Op{ID: id, Args: &s.args, Keys: d.redis.Names.KeysOf(s.args.Kind, id), Cost: -int64(n)}, d.redis.Budget)
	switch {
	case !redislink.FallsBack(err) || d.policy == fallback.Closed:
		return redislink.CallerError(ctx, rc.key, err)
	case d.policy == fallback.Local:
		d.redis.UseShare()
		d.local.Charge(id, s.local(d.claim(d.redis.Server(id), s, id), d.phase), int64(n), home(s, err))
	}
	return nil
}

// refund gives units of a key back that were taken by any process, and returns how many.
func (d *decider) refund(ctx context.Context, budget time.Duration, s *spec, key string, n int64) (int64, error) {
	id := lua.EncodeID(key)
	defer d.denials.Forget(id)
	o := &redislink.Op{ID: id, Taken: &lua.Taken{Keys: d.redis.Names.KeysOf(s.args.Kind, id), Params: s.args, Units: n}}
	err := d.redis.Ask(ctx, d.redis.Server(id), o, budget)
	most := n // what Redis has given back, or may have, is owed as before
	switch {
	case err == nil:
		most -= o.Given
	case !redislink.NeverExecuted(err):
		most = 0
	}
	forgiven := d.local.Refund(id, s.local(d.claim(d.redis.Server(id), s, id), d.phase), n, most)
	if err != nil {
		return 0, redislink.CallerError(ctx, key, err)
	}
	d.local.Returned(s.args.Kind, id, o.Given)
	return o.Given + forgiven, nil
}

// block denies a key for us microseconds.
func (d *decider) block(ctx context.Context, s *spec, key string, us int64) error {
	id := lua.EncodeID(key)
	d.local.Block(id, s.args.Params, us)
	defer d.forget(id)
	b := &lua.Block{Keys: d.redis.Names.KeysOf(s.args.Kind, id), Params: s.args, Time: us}
	if err := d.redis.Exec(ctx, id, b); err != nil {
		return redislink.CallerError(ctx, key, err)
	}
	d.local.Sent(s.args.Kind, id, b.Left)
	return nil
}

// reset removes the state of a key.
func (d *decider) reset(ctx context.Context, s *spec, key string) error {
	id := lua.EncodeID(key)
	d.local.Reset(id)
	defer d.forget(id)
	return redislink.CallerError(ctx, key, d.redis.Exec(ctx, id, lua.Plain{"del", d.redis.Names.KeysOf(s.args.Kind, id).State()}))
}

// forget drops what this process knows and holds of an encoded id.
func (d *decider) forget(id string) {
	d.denials.Forget(id)
	if d.leases != nil {
		d.leases.Drop(id)
	}
}

// close gives back what is held.
func (d *decider) close() {
	if d.leases != nil {
		d.leases.Close()
	}
	d.outbox.Close()
}
