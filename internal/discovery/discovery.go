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
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/admission"
	"github.com/holdfast-go/holdfast/internal/configerr"
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
	e.load(ctx, d.shelf, key)
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

// from is whether that quota has counted the request.
func (u *units) from(name int64) bool {
	return u != nil && slices.ContainsFunc(u.all, func(t taken) bool { return t.name == name })
}

// entry returns the entry of a key, or nil if there are too many that are in use: requests to
// others are not paced.
func (d *Discovery) entry(key string) *entry {
	return d.keys.GetOrAdd(key, func() *entry { return &entry{asked: time.Now()} })
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

func quotaKey(key string, name int64) string { return key + "~" + strconv.FormatInt(name, 36) }

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
	took, _ := has.(*units)
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
		if l, ok := q.paced(now); ok && !took.from(q.name) { // it was decided before this quota was known
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
				e.join(ctx, d.shelf, key, uncounted)
			}
			d.settle(ctx, key, e, uncounted, apart, tell)
		})
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
		e.save(ctx, d.shelf, key)
	}
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
