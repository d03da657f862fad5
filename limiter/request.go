package limiter

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/denial"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

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
	asking denial.Asking
}

// begin makes r, which is empty, the request for n units of a key. Requests and results are not
// copied on the way of a decision: the processor waits for what it has just written, for as long as
// the rest of that way takes.
func (r *request) begin(d *decider, budget time.Duration, s *spec, key string, n int, rc *receipt) {
	rc.of(s, key)
	r.s, r.key, r.id, r.n, r.budget, r.rc = s, key, lua.EncodeID(key), n, budget, rc
	r.srv, r.asking = d.redis.Server(r.id), d.denials.Ask(r.id)
}

// result makes res, which is empty, the decision on r, and counts it.
func (r *request) result(res *Result, d *algo.Decision, from Source) {
	r.s.result(res, d, from)
	r.count(res)
}

// count counts a decision.
func (r *request) count(res *Result) { r.srv.Counts[res.Source].Add(1) }

// spent makes res the result of a cost that was spent from a lease.
func (r *request) spent(res *Result, units lease.Units, v lease.View, now time.Time) {
	r.rc.fromLease(units)
	*res = Result{Allowed: true, Limit: r.s.limit, Source: SourceLease}
	res.Remaining = min(int(v.Remaining)+int(v.Held), r.s.limit.Burst())
	if !v.ResetAt.IsZero() {
		res.ResetAfter = max(time.Microsecond, algo.Duration(algo.Micros(v.ResetAt.Sub(now))))
	}
	r.count(res)
}
