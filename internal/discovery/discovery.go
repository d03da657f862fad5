// Package discovery learns the quotas of servers from what they answer, and paces requests by
// them: for a fleet with Redis, or for one process.
//
// What is learnt of a key is a limit, a window, and what others take of it. Redis keeps that,
// and a limiter counts the requests, as with any limit. So an outage, its budget, its breaker
// and the shares of processes are the limiter's.
package discovery

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/admission"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/internal/random"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

const (
	// Prefix is the first part of the keys in Redis, unless another one is given.
	Prefix = "holdfast-learnt"
	// maxKeys bounds the keys whose quotas this process remembers, at about 700 bytes each. With
	// MaxQuotas of each, they find room in the limiter, where keys without room share a state.
	maxKeys = 1 << 14
	// refresh is how often Redis is asked what others have learnt of a key that is in use.
	refresh = time.Second
	// first is the same for a key of which nothing is known: callers wait for what others learn.
	first = refresh / 10
	// What is learnt ages: it is forgotten after four windows without a request, and at
	// least these.
	minLife = 10 * time.Minute
	maxLife = 48 * time.Hour
	// guessWindow is that in which requests are counted where nothing is said.
	guessWindow = 10 * time.Second
	// guessCut is the part of what was sent before a rejection that is sent after it.
	guessCut = 0.7
)

// Scouting is the limit of a key of which nothing is known: its first response says more, and
// others wait for it.
var Scouting = limiter.GCRA(limiter.PerSecond(10), 1)

// Pacer is a limiter, of a fleet or of this process.
type Pacer interface {
	Allow(ctx context.Context, key string, opts ...limiter.CallOption) (limiter.Result, error)
	Reserve(ctx context.Context, key string, opts ...limiter.CallOption) (*limiter.Reservation, error)
	Block(ctx context.Context, key string, d time.Duration, limit ...limiter.Limit) error
	Close() error
}

// Discovery is the quotas that were learnt. It is safe for concurrent use. Make it with New.
type Discovery struct {
	pacer Pacer
	shelf Shelf // nil is of this process alone
	keys  *admission.Table[entry]
}

// entry is what is known of one key.
type entry struct {
	mu       sync.Mutex
	quotas   []quota
	answered bool          // a response has come
	changed  time.Time     // when the quotas were learnt, by a response or from Redis
	loaded   time.Time     // when Redis was asked last, or more was known here than there
	loading  chan struct{} // closed once it has answered; nil where no answer counts
	saved    time.Time     // when Redis last got them, or had them
	asked    time.Time     // when a request was last sent, or the first one was denied since
	stopped  time.Time     // until when requests are denied, as far as is known

	// How many requests were sent in this guessWindow and in the one before it.
	second    time.Time
	sent, was int64
}

// New returns a discovery that shares what it learns through rdb, with options of a limiter's;
// nil is without Redis, and then there are no options.
func New(rdb redis.UniversalClient, opts ...limiter.RedisOption) (*Discovery, error) {
	if rdb == nil {
		if len(opts) > 0 {
			return nil, configerr.New("discovery", "options", "need a Redis client")
		}
		lim, err := limiter.NewLocal(Scouting)
		return Of(lim, nil), err
	}
	opts = append([]limiter.RedisOption{limiter.WithPrefix(Prefix)}, opts...)
	var c options.Config[limiter.DecisionInfo]
	all := make([]limiter.Option, 0, len(opts))
	if err := options.Apply(&c, opts); err != nil {
		return nil, err
	}
	for _, o := range opts {
		all = append(all, o)
	}
	lim, err := limiter.New(rdb, Scouting, all...)
	if err != nil {
		return nil, err
	}
	c.Link.Client = rdb
	link, err := redislink.New(c.Link)
	if err != nil {
		return nil, errors.Join(err, lim.Close())
	}
	return Of(lim, &redisShelf{link, lim}), nil
}

// Of returns a discovery that counts by p and shares what it learns on s, which may be nil. The
// limit of p must be Scouting.
func Of(p Pacer, s Shelf) *Discovery {
	return &Discovery{pacer: p, shelf: s, keys: admission.NewTable(maxKeys, (*entry).used)}
}

// Close gives up the place of this process in the fleet. The client stays open.
func (d *Discovery) Close() error {
	if d.shelf != nil {
		d.shelf.Close()
	}
	return d.pacer.Close()
}

// Take decides on one request of a key under what is known of its quotas; where that is
// nothing, requests wait for what the first one learns. Without an answer of the limiter, such as
// under fallback.Closed, it admits: a quota that is not configured must not stop anything. What
// an admitted request has, its response is learnt from with; it is nil for one that is not admitted.
func (d *Discovery) Take(ctx context.Context, key string) (admitted limiter.Result, has admission.Taken) {
	e := d.entry(key)
	admitted.Allowed = true
	if e == nil {
		admitted.Remaining = math.MaxInt32
		return admitted, nil
	}
	d.load(ctx, key, e)
	now := time.Now()
	e.mu.Lock()
	quotas, answered := e.paced(now), e.answered
	e.mu.Unlock()
	var all []taken
	switch {
	case len(quotas) == 0 && answered:
		admitted.Remaining = math.MaxInt32 // nothing bounds it
	case len(quotas) == 0:
		if res, err := d.pacer.Allow(ctx, key); err == nil && !res.Allowed {
			return res, nil
		}
	default:
		var res limiter.Result
		var ok bool
		res, all, ok = d.take(ctx, key, e, quotas, now)
		if !ok && !e.asksAgain(&res, now) {
			return res, nil
		}
		admitted.Remaining, admitted.Source = res.Remaining, res.Source
	}
	e.mu.Lock()
	e.count(now)
	e.mu.Unlock()
	return admitted, &units{e, all}
}

// units is what a request has of the quotas of a key.
type units struct {
	e   *entry
	all []taken
}

// Back gives it back.
func (u *units) Back(ctx context.Context) {
	u.e.uncount()
	u.e.giveBack(ctx, u.all)
}

// of is whether that quota has counted the request.
func (u *units) of(name int64) bool {
	return u != nil && slices.ContainsFunc(u.all, func(t taken) bool { return t.name == name })
}

// asksAgain reports whether a request that is denied for long is still sent: no answer of
// a server stops a process for longer than admission.Max. It shortens what res says accordingly.
func (e *entry) asksAgain(res *limiter.Result, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now.After(e.stopped) {
		e.asked = now
	}
	if end := now.Add(res.RetryAfter); end.After(e.stopped) {
		e.stopped = end
	}
	left := admission.Max - now.Sub(e.asked)
	if left <= 0 && res.RetryAfter > 0 {
		e.asked, e.answered, e.quotas = now, false, nil // what it says now counts
		e.knowsMore(now.Add(calm))                      // and not what Redis has, if it says something by then
		return true
	}
	res.RetryAfter = min(res.RetryAfter, left)
	return false
}

// entry returns the entry of a key, or nil if there are too many that are in use: requests to
// others are not paced.
func (d *Discovery) entry(key string) *entry {
	return d.keys.GetOrAdd(key, func() *entry { return &entry{asked: time.Now()} })
}

// used reports whether what is learnt would be missed.
func (e *entry) used() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Since(e.asked) < e.life()
}

// paces is a limit, and whose it is.
type paces struct {
	name  int64
	limit limiter.Limit
	until time.Time // until when others have a part of it
	none  bool      // they have all of it
}

// paced returns the limits that are known well enough. mu is held.
func (e *entry) paced(now time.Time) (all []paces) {
	for i := range e.quotas {
		if l, ok := e.quotas[i].paced(now); ok {
			all = append(all, paces{e.quotas[i].name, l, e.quotas[i].until, e.quotas[i].none(now)})
		}
	}
	return all
}

// take takes a request from all quotas, or from none.
func (d *Discovery) take(ctx context.Context, key string, e *entry, quotas []paces, now time.Time) (res limiter.Result, all []taken, ok bool) {
	for _, q := range quotas {
		if q.none {
			return limiter.Result{Limit: q.limit, RetryAfter: q.until.Sub(now)}, nil, false
		}
	}
	for _, q := range quotas {
		r, err := d.pacer.Reserve(ctx, quotaKey(key, q.name), q.limit)
		if err != nil {
			continue
		}
		if r.Allowed {
			if len(all) == 0 || r.Remaining < res.Remaining {
				res = r.Result
			}
			all = append(all, taken{q.name, r})
			e.note(q.name, r.Remaining)
			continue
		}
		e.giveBack(ctx, all)
		// Others have a part of the window only until it ends.
		if left := q.until.Sub(now); left > 0 && left < r.RetryAfter {
			r.RetryAfter = left
		}
		return r.Result, nil, false
	}
	return res, all, true
}

// taken is a request of one quota.
type taken struct {
	name int64
	r    *limiter.Reservation
}

// giveBack gives back what was taken for a request that is not sent.
func (e *entry) giveBack(ctx context.Context, all []taken) {
	for _, t := range all {
		if t.r.Cancel(ctx) != nil {
			continue // then it drains
		}
		e.mu.Lock()
		if q := e.find(t.name); q != nil {
			q.left = min(q.left+1, q.limit)
		}
		e.mu.Unlock()
	}
}

// note remembers what is left of a quota.
func (e *entry) note(name int64, left int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if q := e.find(name); q != nil {
		q.note(int64(left), time.Now())
	}
}

func quotaKey(key string, name int64) string { return key + "~" + strconv.FormatInt(name, 36) }

// count counts a request. mu is held.
func (e *entry) count(now time.Time) {
	switch since := now.Sub(e.second); {
	case since >= 2*guessWindow:
		e.was, e.sent, e.second = 0, 0, now
	case since >= guessWindow:
		e.was, e.sent, e.second = e.sent, 0, now
	}
	e.sent++
	e.asked = now
	for i := range e.quotas {
		e.quotas[i].count(now)
	}
}

// uncount takes back that a request was counted, which is not sent.
func (e *entry) uncount() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent = max(0, e.sent-1)
	for i := range e.quotas {
		e.quotas[i].uncount()
	}
}

// Learn learns what a response to a request that was sent at sent says about the quotas of
// its key, of which it has what Take has returned. rejected is that it rejects the request by quota. It reports whether requests are
// paced by all that the response says, so that who reads that nothing is left need not stop
// all of them until the reset. save, if not nil, is the rest, which may wait for Redis: requests may have to be
// stopped before.
func (d *Discovery) Learn(key string, said []retry.Quota, rejected bool, sent time.Time, has admission.Taken) (paced bool, save func(context.Context)) {
	e := d.entry(key)
	if e == nil {
		return false, nil
	}
	now := time.Now()
	of, _ := has.(*units)
	e.mu.Lock()
	e.answered = true
	changed, more := false, false
	stale := sent.Before(e.changed)
	if len(said) > 0 && e.drop(said, now) {
		e.changed, more = now, true
	}
	paced = len(said) > 0
	var uncounted []paces
	for _, s := range said {
		q := e.quota(hash(s.Name), d.shelf == nil)
		if q == nil {
			paced = false
			continue
		}
		q.named = now
		unknown := q.limit == 0
		c, m := q.observe(s, sent, now, stale && !unknown)
		if l, ok := q.paced(now); ok && !of.of(q.name) { // it was decided before this quota was known
			uncounted = append(uncounted, paces{name: q.name, limit: l})
			if unknown { // of others it is not known when they were sent
				q.count(now)
			}
		}
		if c {
			e.changed = now
		}
		changed, more = changed || c && !unknown, more || c || m
		paced = paced && q.paces(s, now)
	}
	for i := range e.quotas {
		e.quotas[i].answered(now, rejected)
	}
	var apart []paces
	if rejected && !changed && !stale && d.cut(e, sent, now) { // else the change is the reason
		more = true
		if d.shelf == nil {
			apart = e.paced(now)
		}
	}
	tell := changed || more || len(e.quotas) > 0 && now.Sub(e.saved) > e.life()/2
	unasked := e.loaded.IsZero() && d.shelf != nil // as of the quota of a resource that this request was not known to need
	if tell {
		e.knowsMore(now)
	}
	e.mu.Unlock()
	if len(uncounted)+len(apart) == 0 && !tell {
		return paced, nil
	}
	return paced, func(ctx context.Context) {
		admission.Whole(ctx, func(ctx context.Context) {
			if unasked {
				d.join(ctx, key, e, uncounted)
			}
			d.settle(ctx, key, e, uncounted, apart, tell)
		})
	}
}

// join asks Redis about a key only after a response has said its quotas, which may say less than the fleet knows: how long
// the window is shows only in time. What a request is counted by changes with it.
func (d *Discovery) join(ctx context.Context, key string, e *entry, uncounted []paces) {
	all, err := d.shelf.Load(ctx, key)
	if err != nil || len(all) == 0 {
		return
	}
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	said := e.quotas
	e.adopt(all, now)
	for _, s := range said {
		q := e.find(s.name)
		switch {
		case q != nil:
			if q.limit = s.limit; s.peaks == 0 || s.window > q.window {
				q.window, q.known = s.window, s.known
			}
		case !s.guessed && len(e.quotas) < retry.MaxQuotas:
			e.quotas = append(e.quotas, s)
		}
	}
	for i := range uncounted {
		if q := e.find(uncounted[i].name); q != nil {
			if l, ok := q.paced(now); ok {
				uncounted[i].limit = l
			}
		}
	}
	for _, s := range said { // others have that, and not this request
		if q := e.find(s.name); q != nil && s.taken > 0 {
			q.taken, q.until = s.taken, s.until
		}
	}
}

// Counted reports whether the fleet itself has used up every quota of which said, as Learn has learnt it, says that
// nothing is left: then the limiter denies requests until there is more, and who reads that need not stop all of
// them until the reset. Here it is only known what the last decision of this process has left, so the limiter is asked.
func (d *Discovery) Counted(ctx context.Context, key string, said []retry.Quota) bool {
	e := d.keys.Get(key)
	return e != nil && !slices.ContainsFunc(said, func(s retry.Quota) bool { return !d.counted(ctx, key, e, s) })
}

// counted is Counted for one quota.
func (d *Discovery) counted(ctx context.Context, key string, e *entry, said retry.Quota) bool {
	name := hash(said.Name)
	l, paces, asks := e.counts(name, said)
	if paces || !asks {
		return paces
	}
	// A block denies also a cost of 0, and may end before the reset.
	res, err := d.pacer.Allow(ctx, quotaKey(key, name), l, limiter.Cost(0))
	if err != nil || !res.Allowed || res.Remaining > 0 || res.Source > limiter.SourceLocal || res.Claim > 0 {
		return false
	}
	e.note(name, 0) // other responses that say so need not ask
	_, paces, _ = e.counts(name, said)
	return paces
}

// counts reports whether a quota paces requests whose response says that, and else whether it does if nothing is left
// of l.
func (e *entry) counts(name int64, said retry.Quota) (l limiter.Limit, paces, asks bool) {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	q := e.find(name)
	if q == nil {
		return l, false, false
	}
	if q.paces(said, now) || q.alone || !q.logged() || q.share(now) != 1 {
		return l, q.paces(said, now), false
	}
	l, asks = q.paced(now)
	return l, false, asks
}

// settle counts the request of a response, sets this process apart from others, and tells them.
func (d *Discovery) settle(ctx context.Context, key string, e *entry, uncounted, apart []paces, tell bool) {
	for _, q := range uncounted {
		_, _ = d.pacer.Allow(ctx, quotaKey(key, q.name), q.limit)
	}
	for _, q := range apart {
		// Processes that were rejected together must not come back together each time.
		if r := q.limit.Rate(); q.limit.Algorithm() == "gcra" {
			one := r.Per / time.Duration(r.N)
			_ = d.pacer.Block(ctx, quotaKey(key, q.name), one+random.Below(one), q.limit)
		}
	}
	if tell {
		d.save(ctx, key, e)
	}
}

// find returns the quota of a name, nil without. mu is held.
func (e *entry) find(name int64) *quota {
	i := slices.IndexFunc(e.quotas, func(q quota) bool { return q.name == name })
	if i < 0 {
		return nil
	}
	return &e.quotas[i]
}

// drop forgets the quotas that responses do not name any more, such as those of another policy, or of something
// before the server that answered once. mu is held.
func (e *entry) drop(said []retry.Quota, now time.Time) (dropped bool) {
	n := len(e.quotas)
	e.quotas = slices.DeleteFunc(e.quotas, func(q quota) bool {
		return now.Sub(q.named) > unnamed*max(q.window, calm) &&
			!slices.ContainsFunc(said, func(s retry.Quota) bool { return hash(s.Name) == q.name })
	})
	return len(e.quotas) < n
}

// quota is find, which makes the quota if there is room. mu is held.
func (e *entry) quota(name int64, alone bool) *quota {
	if q := e.find(name); q != nil {
		return q
	}
	if len(e.quotas) > 0 && e.quotas[0].guessed {
		e.quotas = e.quotas[:0] // now it is said
	}
	if len(e.quotas) == retry.MaxQuotas {
		return nil
	}
	e.quotas = append(e.quotas, quota{name: name, alone: alone})
	return &e.quotas[len(e.quotas)-1]
}

// cut sends less after a rejection. mu is held.
func (d *Discovery) cut(e *entry, sent, now time.Time) (changed bool) {
	if len(e.quotas) == 0 {
		processes := int64(1)
		if d.shelf != nil {
			processes = max(1, int64(d.shelf.Processes()))
		}
		e.quotas = append(e.quotas, quota{
			name: guess, alone: d.shelf == nil, guessed: true, window: guessWindow, part: part{of: 1, since: now, cut: now},
			limit: max(1, int64(guessCut*float64(max(e.sent, e.was)*processes))),
		})
		return true
	}
	for i := range e.quotas {
		q := &e.quotas[i]
		if q.over(now) {
			e.quotas = nil
			return d.cut(e, sent, now)
		}
		changed = q.rejected(sent, now) || changed
	}
	return changed
}

// Block stops a key for d, in the fleet, where its quotas are known.
func (d *Discovery) Block(ctx context.Context, key string, dur time.Duration, _ ...limiter.Limit) error {
	e := d.keys.Get(key)
	if e == nil {
		return nil
	}
	e.mu.Lock()
	quotas := e.paced(time.Now())
	e.mu.Unlock()
	if len(quotas) == 0 {
		return d.pacer.Block(ctx, key, dur)
	}
	var err error
	for _, q := range quotas {
		err = errors.Join(err, d.pacer.Block(ctx, quotaKey(key, q.name), dur, q.limit))
	}
	return err
}

// life is how long Redis keeps what is learnt. mu is held.
func (e *entry) life() time.Duration {
	life := minLife
	for i := range e.quotas {
		life = max(life, min(4*min(e.quotas[i].window, maxWindow), maxLife))
	}
	return life
}

// load asks Redis what others have learnt, once in a while. While nothing is known, all wait for its answer.
func (d *Discovery) load(ctx context.Context, key string, e *entry) {
	if d.shelf == nil {
		return
	}
	now, often := time.Now(), refresh
	e.mu.Lock()
	unknown := len(e.quotas) == 0 && !e.answered
	if unknown {
		often = first
	}
	due := e.loading == nil && now.Sub(e.loaded) >= often
	if due {
		loading := make(chan struct{})
		e.loaded, e.loading = now, loading
		go func() { // also for those who wait when this caller leaves
			defer close(loading)
			d.ask(context.WithoutCancel(ctx), key, e, loading)
		}()
	}
	loading := e.loading
	e.mu.Unlock()
	if loading == nil || !due && !unknown {
		return
	}
	select {
	case <-loading:
	case <-ctx.Done():
	}
}

// ask asks Redis now.
func (d *Discovery) ask(ctx context.Context, key string, e *entry, loading chan struct{}) {
	all, err := d.shelf.Load(ctx, key)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.loading != loading {
		return // more has become known here meanwhile
	}
	if e.loading = nil; err != nil {
		return
	}
	if len(all) == 0 {
		e.saved = time.Time{} // Redis has lost it: the next response saves it
		return
	}
	changed, later := e.adopt(all, time.Now())
	if changed {
		e.changed, e.saved = time.Now(), time.Now()
	}
	if later {
		e.saved = time.Time{} // the next response saves it: the fleet sends by one limit
	}
}

// knowsMore is for what Redis does not have yet: what it has does not count until a refresh after a time. mu is held.
func (e *entry) knowsMore(until time.Time) { e.loaded, e.loading = until, nil }

// adopt takes what Redis has, and reports whether the limits are others, and whether some were cut later here. mu is held.
func (e *entry) adopt(all []lua.LearntQuota, now time.Time) (changed, later bool) {
	kept := make([]quota, 0, retry.MaxQuotas)
	for _, r := range all[:min(len(all), retry.MaxQuotas)] {
		q := quota{left: -1}
		if known := e.find(r.Name); known != nil {
			q = *known
		}
		changed = changed || q.limit != r.Limit || q.window != algo.Duration(r.Window)
		later = q.adopt(r, now) || later
		kept = append(kept, q)
	}
	e.quotas = kept
	return changed, later
}

// save tells the others.
func (d *Discovery) save(ctx context.Context, key string, e *entry) {
	if d.shelf == nil {
		return
	}
	now := time.Now()
	e.mu.Lock()
	e.saved = now
	all, life := make([]lua.LearntQuota, 0, len(e.quotas)), e.life()
	for i := range e.quotas {
		all = append(all, e.quotas[i].record(now))
	}
	e.mu.Unlock()
	// When Redis is unavailable this process still keeps to it; others learn it themselves.
	_ = d.shelf.Save(ctx, key, all, life)
}
