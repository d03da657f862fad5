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

// request is one decision to be made.
type request struct {
	srv    *redislink.Server
	s      *spec
	key    string
	id     string
	n      int
	fewer  bool // than n units will do
	budget time.Duration
	// more, if set, is the lease to fill with the same call.
	more *lease.Lease
	// unknown says that the denials were read already. With more they must be.
	unknown bool
	rc      *receipt // nil where nothing will be given back
	// unsure, if set, becomes true when Redis may have charged what is decided locally.
	unsure *bool
}

func (d *decider) request(budget time.Duration, s *spec, key string, n int, rc *receipt) request {
	id := lua.EncodeID(key)
	rc.of(s, key)
	return request{srv: d.redis.Server(id), s: s, key: key, id: id, n: n, budget: budget, rc: rc}
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

// decide is the one way to a decision. Where fewer units will do, it asks again for those that
// there is room for; what was decided locally has done so.
func (d *decider) decide(ctx context.Context, r request) (Result, error) {
	if !r.fewer {
		return d.decideAll(ctx, r)
	}
	end := time.Now().Add(r.budget)
	for tries := 1; ; tries++ {
		res, err := d.decideAll(ctx, r)
		switch {
		case res.Allowed:
			res.Admitted = cmp.Or(res.Admitted, r.n)
			return res, err
		case err != nil, r.n <= 1, res.Source == SourceLocal:
			return res, err
		}
		r.unknown = r.unknown || res.Source == SourceRedis // one decision reads the denials once, as each reading lets one ask
		r.srv.Counts[res.Source].Add(^uint64(0))           // it is one decision
		r.n, r.budget = next(tries, r.n, res.Remaining), time.Until(end)
	}
}

// decideAll decides on all units of r, or on fewer without Redis.
func (d *decider) decideAll(ctx context.Context, r request) (Result, error) {
	if r.s.leased {
		return d.spend(ctx, r)
	}
	return d.ask(ctx, r)
}

// spend decides from what this process holds, and asks for what is missing.
func (d *decider) spend(ctx context.Context, r request) (Result, error) {
	n := int64(r.n)
	ls := d.leases.Find(r.id, &r.s.args, n > 0)
	if ls == nil {
		return d.ask(ctx, r)
	}
	now := time.Now()
	if n == 0 {
		res, err := d.ask(ctx, r)
		return withHeld(res, ls, now), err
	}
	deadline := now.Add(r.budget)
	units, ok := ls.Spend(n, now)
	if !ok && !r.srv.Unavailable() {
		if den, denied := d.denied(&r, r.n-int(units.Sum())); denied {
			units.Undo(n)
			return count(r.srv, withHeld(r.s.result(den, SourceCache), ls, now)), nil
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
			d.askAhead(r, ls, now)
		}
		// Others must count this process although it asks for little.
		if !r.srv.Unavailable() {
			d.redis.Beat(r.srv)
		}
		return r.spent(units, v, now), nil
	}
	r.n, r.budget = r.n-int(units.Sum()), time.Until(deadline)
	if r.unknown && units.Sum() == 0 && ls.Begin() {
		r.more = ls
	}
	res, err := d.ask(ctx, r)
	if err == nil && r.more == nil && res.Source == SourceRedis {
		ls.Note(int64(res.Remaining), now.Add(res.ResetAfter))
	}
	if err == nil && res.Allowed {
		r.rc.fromLease(units)
		if res.Admitted > 0 { // perhaps fewer than were missing
			res.Admitted += int(units.Sum())
		}
		return withHeld(res, ls, now), nil
	}
	if r.fewer && err == nil && res.Source == SourceLocal && units.Sum() > 0 {
		r.srv.Counts[res.Source].Add(^uint64(0))
		res = r.spent(units, ls.View(now), now)
		res.Admitted = int(units.Sum())
		return res, nil
	}
	units.Undo(n)
	if err == nil && res.Source == SourceRedis {
		// A call for more may be the reason, under way or ended since.
		if r.more == nil {
			ls.Await(ctx, deadline)
		}
		if units, ok = ls.Spend(n, time.Now()); ok {
			r.srv.Counts[res.Source].Add(^uint64(0))
			return r.spent(units, ls.View(now), now), nil
		}
		units.Undo(n)
	}
	return withHeld(res, ls, now), err
}

// spent is the result of a cost that was spent from a lease.
func (r *request) spent(units lease.Units, v lease.View, now time.Time) Result {
	r.rc.fromLease(units)
	res := Result{Allowed: true, Limit: r.s.limit, Source: SourceLease}
	res.Remaining = min(int(v.Remaining)+int(v.Held), r.s.limit.Burst())
	if !v.ResetAt.IsZero() {
		res.ResetAfter = max(time.Microsecond, algo.Duration(algo.Micros(v.ResetAt.Sub(now))))
	}
	return count(r.srv, res)
}

// withHeld adds what is held to what Redis says is left.
func withHeld(res Result, ls *lease.Lease, now time.Time) Result {
	if res.Source == SourceRedis || res.Source == SourceCache {
		res.Remaining = min(res.Remaining+int(ls.View(now).Held), res.Limit.Burst())
	}
	return res
}

// askAhead fetches more in the background.
func (d *decider) askAhead(r request, ls *lease.Lease, now time.Time) {
	if r.srv.Unavailable() || !ls.Begin() {
		return
	}
	// Another call may have ended since.
	if !ls.Wants(ls.View(now), now) || !d.redis.Background.Start(func(context.Context) { d.refill(r, ls) }) {
		ls.End()
	}
}

// refill asks for what ls has room for. Close waits for it, within the budget.
func (d *decider) refill(r request, ls *lease.Lease) {
	r.n = 1
	o := d.op(&r)
	o.Count = ls.Room(time.Now())
	o.After = func(o *redislink.Op, _ bool) { fill(ls, o, false) }
	if class, _ := d.redis.Do(context.Background(), r.srv, o, d.redis.Budget); class == breaker.ClassOK {
		d.noted(r.srv, r.s, r.id, 1, o)
		d.redis.Free(o)
	}
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
func (d *decider) ask(ctx context.Context, r request) (Result, error) {
	s, n := r.s, r.n
	res, known := d.knows(&r)
	open := !known && r.srv.Unavailable()
	if r.more != nil && (known || open) {
		r.more.End()
	}
	switch {
	case known:
		return res, nil
	case open:
		return d.fallBack(&r, redislink.ErrOpen)
	}
	asking := d.denials.Ask(r.id)
	o := d.op(&r)
	if more := r.more; more != nil {
		o.Count = max(1, more.Size()/int64(n))
		o.After = func(o *redislink.Op, answered bool) { fill(more, o, answered) }
	}
	class, err := d.redis.Do(ctx, r.srv, o, r.budget)
	switch {
	case class == breaker.ClassOK:
		out := o.Out
		if out.Allowed {
			r.rc.fromRedis(o.Keys, n, o.At)
		}
		if out.Remaining < int64(n)+s.args.Keep {
			d.remember(asking, s, n, out, o.Sent, time.Now())
		}
		d.noted(r.srv, s, r.id, n, o)
		d.redis.Free(o)
		return count(r.srv, s.result(out, SourceRedis)), nil
	case class.Fallback():
		return d.fallBack(&r, err)
	default:
		return Result{}, redislink.CallerError(ctx, r.key, &redislink.Error{Class: class, Err: err})
	}
}

// knows answers what this process knows itself: that it has blocked the key and could not
// tell Redis, or that Redis denied the same a moment ago.
func (d *decider) knows(r *request) (Result, bool) {
	open := r.srv.Unavailable()
	if d.local.Unsent(r.s.args.Kind, r.id) > 0 {
		if !open {
			d.outbox.Send()
		}
		if out := d.local.Peek(r.id, r.s.local(d.claim(r.s, r.id), d.phase), int64(r.n)); !out.Allowed {
			return count(r.srv, r.s.result(out, SourceLocal)), true
		}
	}
	if !open {
		if out, ok := d.denied(r, r.n); ok {
			return count(r.srv, r.s.result(out, SourceCache)), true
		}
	}
	return Result{}, false
}

// remembers reports whether denials of n units are remembered. Those of a peek, and by the
// bound of one caller's patience, are not for others.
func (d *decider) remembers(s *spec, n int) bool {
	return n > 0 && s.args.MaxDelay == 0 && !d.askAgain
}

// denied is what Redis denied a moment ago of n units of r, unless that was read already. Where fewer will do, that is one: for how many there
// was room then does not say for how many there is now.
func (d *decider) denied(r *request, n int) (algo.Decision, bool) {
	if r.fewer {
		n = min(n, 1)
	}
	if r.unknown || !d.remembers(r.s, n) {
		return algo.Decision{}, false
	}
	return d.denials.Get(d.denials.Ask(r.id), &r.s.args.Params, n)
}

// remember keeps a denial, or that there is no room for as much again.
func (d *decider) remember(asking denial.Asking, s *spec, n int, out algo.Decision, sent, end time.Time) {
	if d.remembers(s, n) {
		d.denials.Put(asking, &s.args.Params, n, out, sent, end)
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
		d.local.Observe(id, s.args.Params, out, granted)
		d.redis.Beat(srv)
	}
	if n > 0 {
		d.outbox.Decided(granted > 0)
	}
}

// claim is the part of a key's limit that this process may use alone: its share of what is
// shared equally, and of the rest the part that Redis granted it.
func (d *decider) claim(s *spec, id string) float64 {
	share := d.redis.Share()
	if d.equal == 1 || share == 1 {
		return share
	}
	return d.equal*share + (1-d.equal)*d.local.Granted(id, s.args.Params)
}

// fallBack decides without Redis.
func (d *decider) fallBack(r *request, cause error) (Result, error) {
	srv, s := r.srv, r.s
	switch d.policy {
	case fallback.Open:
		return count(srv, Result{Allowed: true, Limit: s.limit, Remaining: s.limit.Burst(), Source: SourceOpen}), nil
	case fallback.Closed:
		// No time is known at which Redis is back; the budget is the least
		// that passes before it would be asked again.
		res := Result{Limit: s.limit, RetryAfter: d.untilProbe(srv), Source: SourceClosed}
		return count(srv, res), fmt.Errorf("%w: %w", ErrUnavailable, cause)
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
	claim := d.claim(s, r.id)
	own := s.local(claim, d.phase)
	out, units := take(d.local, r.id, &own, r.n, r.fewer, owed, r.rc)
	if r.fewer && units == 0 {
		r.n = min(r.n, 1) // what the denial is about
	}
	res := d.ofClaim(r, claim, out)
	res.Admitted = units
	return count(srv, res), nil
}

// ofClaim is the result of what this process decided by its claim.
func (d *decider) ofClaim(r *request, claim float64, out algo.Decision) Result {
	res := r.s.result(out, SourceLocal)
	res.Claim, res.BeyondClaim = claim, !res.Allowed && r.s.beyond(claim, r.n)
	if res.BeyondClaim { // Redis does not admit it either while the key is blocked
		res.RetryAfter = max(d.untilProbe(r.srv), algo.Duration(d.local.Peek(r.id, r.s.local(claim, d.phase), 0).RetryAfter))
	}
	return res
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

// count counts a decision.
func count(srv *redislink.Server, r Result) Result {
	srv.Counts[r.Source].Add(1)
	return r
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
		d.local.Charge(id, s.local(d.claim(s, id), d.phase), int64(n), home(s, err))
	}
	return nil
}

// refund gives units of a key back that were taken by any process, and returns how many.
func (d *decider) refund(ctx context.Context, budget time.Duration, s *spec, key string, n int64) (int64, error) {
	id := lua.EncodeID(key)
	d.local.Refund(id, s.local(d.claim(s, id), d.phase), n)
	defer d.denials.Forget(id)
	o := &redislink.Op{ID: id, Taken: &lua.Taken{Keys: d.redis.Names.KeysOf(s.args.Kind, id), Params: s.args, Units: n}}
	if err := d.redis.Ask(ctx, d.redis.Server(id), o, budget); err != nil {
		return 0, redislink.CallerError(ctx, key, err)
	}
	d.local.Returned(s.args.Kind, id, o.Given)
	return o.Given, nil
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
