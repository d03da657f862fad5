package sampled

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/inprocess"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/internal/random"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/internal/repeat"
	"github.com/holdfast-go/holdfast/internal/topk"
	"github.com/holdfast-go/holdfast/limiter"
)

const (
	// idleIntervals is for how many intervals an unused key is kept.
	idleIntervals = 10
	// milli is the unit in which rates are reported: units per 1000 seconds.
	milli = 1000
	// candidateEvery is how many of the calls for keys beyond the top are counted.
	candidateEvery = 8
)

// Limiter is a limiter for fleets too large for a call per decision. No decision
// waits for Redis: each process counts what it is asked for, reports to Redis once per
// interval (WithInterval; less often in a fleet of thousands), learns what the fleet is asked for, and admits with the
// probability that brings the fleet to the rate.
//
// It is not exact: see docs/measurements.md for what was measured. A key's first
// interval, a process's first, and all while Redis cannot be reached (under the policy Local), are decided by
// the process's share of the rate, but each process admits the first unit of a key. It
// admits a request or not as it comes; it has no burst beyond an interval's, and
// RetryAfter is the interval. Parts of a unit are carried from interval to interval, so
// that a rate below one per interval is kept over time.
//
// The keys that are asked for most, up to WithTopKeys, are tracked; others are
// decided by this process's share, in bounded memory. It is safe for concurrent use,
// and idle it runs no goroutine. Make one with New; the zero value is not usable.
type Limiter struct {
	redis    *redislink.Link
	policy   fallback.Policy
	decision func(context.Context, limiter.DecisionInfo) // nil without a hook
	interval time.Duration
	topKeys  int

	limit  limiter.Limit    // a token bucket of what an interval lets through
	params algo.Params      // of the limit
	store  *inprocess.Store // of keys beyond the top
	units  float64          // of the rate, in an interval

	table      sampleTable
	reporter   *reporter
	unanswered atomic.Bool      // under the policies Open and Closed: all is admitted, or nothing
	counts     [3]atomic.Uint64 // units that were sampled, that were decided by share, and that the policy Open admitted

	// candidates are keys beyond the top, by the units that were asked for.
	candidates atomic.Pointer[topk.Sketch[struct{}]]
	salt       uint64 // of which of their requests are counted

	ticks repeat.Task   // while keys are tracked
	since time.Duration // the last report
	// unreported are keys that are not tracked any more, of which Redis may still have the rate. Only ticks use it.
	unreported []*sample
	mu         sync.Mutex
	last       time.Time // of the ticks; zero when there is none to come
}

var _ limiter.Allower = (*Limiter)(nil)

// New returns a limiter that brings the fleet to a rate, per key. Every process should use
// the same rate. It does not talk to Redis, so it succeeds at once when Redis is down. Any
// client of go-redis will do; it stays the caller's, who closes it after the limiter. Where
// Redis is far, limiter.WithBudget must leave time for the report, which no decision waits
// for. The error matches limiter.ErrInvalidConfig.
func New(rdb redis.UniversalClient, rate limiter.Rate, opts ...Option) (*Limiter, error) {
	s, err := newLimiter(rdb, rate, opts)
	return s, configerr.In("sampled", err)
}

func newLimiter(rdb redis.UniversalClient, rate limiter.Rate, opts []Option) (*Limiter, error) {
	c := config{MaxLocalKeys: inprocess.DefaultMaxKeys, Interval: DefaultInterval, TopKeys: DefaultTopKeys}
	if err := options.Apply(&c, opts); err != nil {
		return nil, err
	}
	c.Link.Client = rdb
	// No caller waits for a report, so that none is slow which fits the budget.
	c.Link.Budget = cmp.Or(c.Link.Budget, redislink.DefaultBudget)
	c.Link.Breaker.SlowCall = cmp.Or(c.Link.Breaker.SlowCall, c.Link.Budget)
	link, err := redislink.New(c.Link)
	if err != nil {
		return nil, err
	}
	s := &Limiter{
		redis: link, policy: c.Link.Policy, decision: c.Decision,
		interval: c.Interval, topKeys: c.TopKeys, reporter: newReporter(link, c.Interval),
	}
	s.ticks = repeat.Task{Every: c.Interval, Start: link.Background.Start, Run: s.tick}
	// What is decided by share may come at once, up to an interval's part.
	s.units = float64(rate.N) * float64(c.Interval) / float64(max(1, rate.Per))
	s.limit = limiter.TokenBucket(rate, int(max(1, math.Ceil(min(s.units, math.MaxInt32)))))
	if rate.Per%time.Microsecond != 0 {
		return nil, configerr.New("period", rate.Per, "must be a whole number of microseconds")
	}
	bucket := algo.Limit{Kind: algo.TokenBucket, N: int64(rate.N), Per: rate.Per.Microseconds(), Burst: int64(s.limit.Burst())}
	if s.params, err = bucket.Params(); err != nil {
		return nil, err
	}
	s.table.seed, s.table.max = maphash.MakeSeed(), int64(c.TopKeys)
	s.candidates.Store(s.newCandidates())
	s.salt = random.Uint64()
	s.store = inprocess.NewStore(c.MaxLocalKeys)
	if err := link.Claim("sampled", rate); err != nil {
		return nil, err
	}
	return s, nil
}

// Limit returns the rate as a token bucket of what an interval lets through, which
// is also what results carry.
func (s *Limiter) Limit() limiter.Limit { return s.limit }

// Allow is AllowN with a cost of 1.
func (s *Limiter) Allow(ctx context.Context, key string) (limiter.Result, error) {
	return s.AllowN(ctx, key, 1)
}

// AllowN decides at once. A cost of 0 is a peek. Remaining is what this process may still
// admit in this interval, if all of it is admitted. Source is limiter.SourceSampled, or
// limiter.SourceLocal where the process's share decides; limiter.SourceOpen or limiter.SourceClosed where
// the policy does.
//
// The error is limiter.ErrInvalidKey, limiter.ErrInvalidCost, limiter.ErrCostExceedsLimit
// when the cost is above what an interval lets through, limiter.ErrClosed, the context's
// own, or, only under the policy fallback.Closed, limiter.ErrUnavailable.
func (s *Limiter) AllowN(ctx context.Context, key string, n int) (limiter.Result, error) {
	if s.decision == nil || n == 0 {
		return s.decide(ctx, key, n)
	}
	start := time.Now()
	res, err := s.decide(ctx, key, n)
	s.decision(ctx, limiter.DecisionInfo{Key: key, Cost: n, Result: res, Err: err, Took: time.Since(start)})
	return res, err
}

// check rejects what no limiter could ever admit.
func (s *Limiter) check(ctx context.Context, key string, n int) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: key is empty", limiter.ErrInvalidKey)
	case n < 0:
		return fmt.Errorf("%w: cost is %d: must not be negative", limiter.ErrInvalidCost, n)
	case int64(n) > s.params.Cap:
		return fmt.Errorf("%w: cost is %d, but %v admits at most %d at once", limiter.ErrCostExceedsLimit, n, s.limit, s.params.Cap)
	case s.redis.IsClosed():
		return limiter.ErrClosed
	}
	return ctx.Err()
}

// decide is AllowN without its hook.
func (s *Limiter) decide(ctx context.Context, key string, n int) (limiter.Result, error) {
	if err := s.check(ctx, key, n); err != nil {
		return limiter.Result{}, err
	}
	k, h := s.table.find(key)
	if k == nil && n > 0 {
		k = s.track(key)
	}
	if s.unanswered.Load() {
		// Its key is still tracked, so that the end of the outage is noticed.
		if k != nil {
			k.asked.Add(int64(n))
		}
		if s.policy == fallback.Closed {
			return limiter.Result{Limit: s.limit, RetryAfter: s.interval, Source: limiter.SourceClosed}, limiter.ErrUnavailable
		}
		if k != nil {
			return s.open(n), nil
		}
	}
	if k == nil {
		return s.beyond(key, h, n), nil
	}
	res := limiter.Result{Limit: s.limit, ResetAfter: s.interval, Source: limiter.SourceSampled}
	if k.local.Load() {
		res.Source = limiter.SourceLocal
	}
	asked, left := k.asked.Add(int64(n)), int64(0)
	if t := k.threshold.Load(); t == always || k.draw(asked) < t {
		if left = k.left.Add(-int64(n)); left >= 0 {
			res.Allowed, res.Admitted = true, n
		} else {
			left = k.left.Add(int64(n))
			if int64(n) > k.denied.Load() {
				k.denied.Store(int64(n))
			}
		}
	}
	res.Remaining = int(min(max(0, left), s.params.Cap))
	if !res.Allowed {
		res.RetryAfter = s.interval
	}
	return res, nil
}

// track begins to track a key, by the share.
func (s *Limiter) track(key string) *sample {
	if s.table.count.Load() >= s.table.max {
		return nil
	}
	k, made := s.table.add(key, s.prepare)
	if made {
		s.begin()
	}
	return k
}

// prepare gives a key that is tracked from now on its first units, as far as the local
// state has not seen them used.
func (s *Limiter) prepare(k *sample) {
	share := s.redis.Share()
	units, p := first(s.units, share), s.params.Scale(share)
	if left := s.store.Decide(k.key, p, 0).Remaining; left < p.Cap {
		units = min(units, float64(left))
	}
	k.left.Store(int64(units))
	k.carry = carry(units - math.Floor(units))
	k.local.Store(true)
	k.admit(1)
}

// drop ends tracking a key. What it has used is left to the local state, or a key that
// is rarely asked for would begin again each time.
func (s *Limiter) drop(k *sample) {
	s.table.drop(k)
	p := s.params.Scale(s.redis.Share())
	if used := s.store.Decide(k.key, p, 0).Remaining - max(0, k.left.Load()); used > 0 {
		s.store.Decide(k.key, p, used)
	}
}

// beyond decides on a key that is not tracked, and counts some of its requests.
func (s *Limiter) beyond(key string, h uint64, n int) limiter.Result {
	counts := &s.counts[1]
	if s.policy == fallback.Open {
		counts = &s.counts[2]
	}
	if counted := counts.Add(uint64(n)); n > 0 && random.Of(s.salt+counted)%candidateEvery == 0 {
		s.candidates.Load().Add(h, key, int64(n))
	}
	if s.policy == fallback.Open {
		return s.open(n)
	}
	d := s.store.Decide(key, s.params.Scale(s.redis.Share()), int64(n))
	res := limiter.Result{
		Allowed: d.Allowed, Limit: s.limit, Remaining: int(d.Remaining), Source: limiter.SourceLocal,
		RetryAfter: algo.Duration(d.RetryAfter), ResetAfter: algo.Duration(d.ResetAfter),
	}
	if d.Allowed {
		res.Admitted = n
	}
	return res
}

// open admits by the policy Open.
func (s *Limiter) open(n int) limiter.Result {
	return limiter.Result{Allowed: true, Admitted: n, Limit: s.limit, Remaining: s.limit.Burst(), Source: limiter.SourceOpen}
}

// newCandidates keeps keys as long as they are: they may be tracked.
func (s *Limiter) newCandidates() *topk.Sketch[struct{}] {
	return topk.New[struct{}](16+s.topKeys/4, 0)
}

// Health reports without asking Redis. Processes are those that reported; Decisions
// are the units asked for, up to the last interval.
func (s *Limiter) Health() limiter.Health {
	servers, decisions := redislink.Health[limiter.Source](s.redis)
	decisions[limiter.SourceSampled], decisions[limiter.SourceLocal], decisions[limiter.SourceOpen] = s.counts[0].Load(), s.counts[1].Load(), s.counts[2].Load()
	h := limiter.Health{
		Share: s.redis.Share(), ShareOrigin: s.redis.ShareOrigin(), Processes: s.redis.Processes(), Decisions: decisions,
		LocalKeys: int(s.table.count.Load()) + s.store.Len(), FunctionsError: s.redis.FunctionsError(), PeerCountError: s.redis.PeerCountError(),
	}
	for _, srv := range servers {
		h.Servers = append(h.Servers, limiter.ServerHealth(srv))
	}
	return h
}

// Close takes this process out of the reports and fails later calls with
// limiter.ErrClosed. The client stays open. Closing twice is harmless.
func (s *Limiter) Close() error {
	s.ticks.End()
	s.redis.Close(func() {
		s.reporter.leave(func(cmd lua.Command) bool { return s.redis.Last(&redislink.Op{ID: lua.Sampled, Command: cmd}) == nil })
	})
	return nil
}

// begin makes sure that there is a tick to come. How many processes there are is known sooner
// than what they are asked for.
func (s *Limiter) begin() {
	s.mu.Lock()
	if s.last.IsZero() && !s.redis.IsClosed() {
		s.last = time.Now()
		s.redis.Background.Start(s.register)
	}
	s.mu.Unlock()
	s.ticks.Begin()
}

// tick ends an interval. There is another one while keys are tracked.
func (s *Limiter) tick(ctx context.Context) (more bool) {
	now := time.Now()
	s.mu.Lock()
	elapsed := now.Sub(s.last)
	s.last = now
	s.mu.Unlock()
	s.turn(ctx, elapsed)
	s.mu.Lock()
	if more = s.table.count.Load() > 0; !more {
		s.last = time.Time{}
	}
	s.mu.Unlock()
	if !more {
		s.reporter.leave(func(cmd lua.Command) bool { return s.redis.Exec(ctx, lua.Sampled, cmd) == nil })
	}
	return more
}

// turn plans the next interval, and reports what was asked for, if that is due.
func (s *Limiter) turn(ctx context.Context, elapsed time.Duration) {
	all := s.table.all()
	own := make(map[*sample]float64, len(all))
	scale := float64(s.interval) / float64(max(elapsed, s.interval/10))
	for _, k := range all {
		asked := k.asked.Swap(0)
		if k.idle++; asked > 0 {
			k.idle = 0
		}
		k.recent.add(float64(asked) * scale)
		own[k] = k.recent.mean()
		which := &s.counts[0]
		switch {
		case s.policy == fallback.Open && s.unanswered.Load():
			which = &s.counts[2]
		case k.local.Load():
			which = &s.counts[1]
		}
		which.Add(uint64(asked))
	}
	s.since += max(elapsed, s.interval/10)
	if !s.reporter.due() {
		for _, k := range all {
			k.again(own[k], s.units, s.redis.Share())
		}
		return
	}
	scale = float64(s.interval) / float64(s.since)
	s.since = 0
	kept, gone := s.choose(all, own, scale)
	out := slices.DeleteFunc(append(s.unreported, gone...), s.table.replaced)
	rates := append(s.rates(kept, own), s.rates(out, nil)...)
	// As many calls as it takes: each fits the budget. Those that fail cost the budget
	// until the breaker opens, so there are no more of them when the interval is over.
	s.reporter.calls.Store(int64(max(1, (len(rates)+lua.MaxAsked-1)/lua.MaxAsked)))
	start, failed := time.Now(), false
	s.unreported = nil
	for i := 0; i == 0 || i < len(rates); i += lua.MaxAsked {
		end := min(i+lua.MaxAsked, len(rates))
		ok := false
		if !failed || time.Since(start) < s.interval {
			ok = s.reporter.report(ctx, rates[i:end], i == 0)
			failed = failed || !ok
		}
		s.plan(kept[min(i, len(kept)):min(end, len(kept))], rates[i:end], own, ok)
		if !ok { // the fleet would count them as long as this process lives
			s.unreported = append(s.unreported, out[max(0, i-len(kept)):max(0, end-len(kept))]...)
		}
	}
	if len(s.unreported) > 0 && s.reporter.stale() {
		// In an outage there may be ever more of them. What has this number in Redis dies about now.
		s.unreported = nil
		s.reporter.number.Store(newNumber())
	}
}

// plan begins the next interval of some keys; ok says that asked has the rates of the
// fleet.
func (s *Limiter) plan(keys []*sample, asked []lua.Asked, own map[*sample]float64, ok bool) {
	if !ok && s.reporter.stale() {
		s.outage(keys, own)
		return
	}
	s.unanswered.Store(false)
	for i, k := range keys {
		switch {
		case ok:
			fleet := float64(asked[i].Fleet) / milli * s.seconds()
			k.begin(k.demand.next(own[k], k.recent.intervals, fleet, s.units, s.redis.Processes()), false)
		case k.demand.known:
			// One report failed: what the fleet was asked for before is used again.
			k.begin(k.demand.next(own[k], k.recent.intervals, k.demand.fleet, s.units, s.redis.Processes()), false)
		default:
			k.begin(alone(own[k], s.units, s.redis.Share()), true)
		}
	}
}

// outage plans without Redis, by the policy.
func (s *Limiter) outage(all []*sample, own map[*sample]float64) {
	s.unanswered.Store(s.policy != fallback.Local)
	share := s.redis.UseShare()
	for _, k := range all {
		k.demand = demand{}
		k.begin(alone(own[k], s.units, share), true)
	}
}

// choose keeps the keys that are asked for most: those that are tracked and not idle, and
// candidates in the place of the least of them.
func (s *Limiter) choose(all []*sample, own map[*sample]float64, scale float64) (kept, gone []*sample) {
	for _, k := range all {
		if k.idle >= idleIntervals {
			gone = append(gone, k)
		} else {
			kept = append(kept, k)
		}
	}
	slices.SortFunc(gone, func(a, b *sample) int { return strings.Compare(a.key, b.key) })
	for _, k := range gone {
		s.drop(k)
	}
	if s.candidates.Load().Len() == 0 {
		return kept, gone
	}
	found, _ := s.candidates.Swap(s.newCandidates()).Items()
	slices.SortFunc(kept, func(a, b *sample) int {
		return cmp.Or(cmp.Compare(own[b], own[a]), strings.Compare(a.key, b.key))
	})
	slices.SortFunc(found, func(a, b topk.Item[struct{}]) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Key, b.Key))
	})
	for _, c := range found {
		rate := float64(c.Count) * candidateEvery * scale
		if s.table.count.Load() >= s.table.max {
			last := len(kept) - 1
			if last < 0 || rate < 2*own[kept[last]] {
				break
			}
			gone = append(gone, kept[last])
			s.drop(kept[last])
			kept = kept[:last]
		}
		k, made := s.table.add(c.Key, s.prepare)
		if made {
			own[k] = rate
			kept = slices.Insert(kept, 0, k)
		}
	}
	return kept, gone
}

// rates is what keys were asked for, to be reported; without own they are taken out.
func (s *Limiter) rates(keys []*sample, own map[*sample]float64) []lua.Asked {
	asked := make([]lua.Asked, len(keys))
	for i, k := range keys {
		asked[i] = lua.Asked{ID: k.id, Rate: int64(min(math.Round(own[k]/s.seconds()*milli), 1<<40))}
	}
	return asked
}

func (s *Limiter) seconds() float64 { return s.interval.Seconds() }

// register makes this process known to Redis, and gives the keys that it tracks already their
// share among those that are.
func (s *Limiter) register(ctx context.Context) {
	before := s.redis.Share()
	if !s.reporter.report(ctx, nil, true) {
		return
	}
	s.unanswered.Store(false) // an outage may have ended while no key was tracked
	for _, k := range s.table.all() {
		k.left.Add(int64(first(s.units, s.redis.Share())) - int64(first(s.units, before)))
	}
}
