package httpclient

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/admission"
	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/discovery"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// askTime is how long requests are held back while Redis is asked whether a fleet has used up a quota itself.
const askTime = 100 * time.Millisecond

// WithDiscovery learns the limits that servers say, by [retry.ParseQuotas], and paces requests
// by them before the first 429: for each key, and within it for each quota that a server
// counts apart. Where a server says nothing, the rate after a 429 is 0.7 of what was sent in ten
// seconds, at least one request in that time, so that a process whose first request is rejected
// begins slowly; it grows again, and when it has doubled nothing is paced until the next 429.
// A change of a limit counts from the next response on; what is learnt is
// forgotten after four windows, and at least ten minutes, without a request, and a quota that responses do
// not name any more, after two.
//
// With rdb, all processes with that Redis and prefix, by default "holdfast-learnt", share
// what is learnt and keep the limits together; while Redis is unavailable each keeps to its
// share. opts are those of the limiter that counts. Call Close of the Transport at the end;
// rdb stays open. With nil, each process learns from Remaining and from rejections which part
// of a limit others leave it; there are no opts then.
//
// Of a key of which nothing is known, 10 requests a second are sent until the first response.
// Limits above a million requests pace nothing. [WithLimiter] holds in any case: what is learnt
// only lowers it. A wait that does not fit ends with an *[Error] whose reason is [retry.Throttled],
// also in the process that received the response which said so.
//
// Quotas are learnt for what [WithKey] tells apart: a quota for each model, of which only the
// body of a request knows, needs a key for each.
func WithDiscovery(rdb redis.UniversalClient, opts ...limiter.RedisOption) Option {
	return func(c *config) {
		c.discovery = func() (*discovery.Discovery, error) { return discovery.New(rdb, opts...) }
	}
}

// ofDiscovery makes what users get of an error of discovery.New.
func ofDiscovery(err error) error {
	// What is wrong may be an option of the limiter that counts.
	if e, ok := errors.AsType[*configerr.Error](err); ok && e.Field != "discovery" {
		err = configerr.New("discovery: "+e.Field, e.Value, "%s", e.Rule)
	}
	return configerr.In(pkg, err)
}

// Close ends what [WithDiscovery] began; without it, there is nothing to close. Requests may
// still be sent, without what was learnt; one that waits for its turn ends its wait first.
// Closing twice is harmless.
func (t *Transport) Close() error {
	if t.discovery == nil {
		return nil
	}
	return t.discovery.Close()
}

// discover learns the quotas that a response says, and reports whether requests are paced by
// them from now on. Where that is not known here, counted asks Redis. saves are to be called then, which may wait for it.
func (x *exchange) discover(kind retry.Verdict, resp *http.Response, a retry.Answer) (paced bool, counted func(context.Context) bool, saves []func(context.Context)) {
	key := x.adm.Key
	if x.discovery == nil || key == "" {
		return false, nil, nil
	}
	said := retry.ParseQuotas(resp.Header, time.Time{}, x.cfg.resetFormat(x.adm.Host.Name))
	if len(said) == 0 && resp.StatusCode >= 500 {
		return false, nil, nil // it may come from a proxy
	}
	rejected := kind == retry.Rejected && resp.StatusCode == http.StatusTooManyRequests
	paced = len(said) > 0
	byScope := map[string][]retry.Quota{"": nil} // also where nothing is said
	for _, q := range said {
		byScope[q.Scope] = append(byScope[q.Scope], q)
	}
	d := x.discovery
	var unpaced map[string][]retry.Quota
	for _, scope := range slices.Sorted(maps.Keys(byScope)) {
		at := key
		if scope != "" {
			at = scopeKey(key, scope, x.orig)
		}
		ok, save := d.Learn(at, byScope[scope], rejected && scope == a.Scope, x.began, x.adm.Has(at))
		if !ok && len(byScope[scope]) > 0 {
			if paced = false; unpaced == nil {
				unpaced = map[string][]retry.Quota{}
			}
			unpaced[at] = byScope[scope]
		}
		if save != nil {
			saves = append(saves, save)
		}
	}
	if len(unpaced) == 0 {
		return paced, nil, saves
	}
	return false, func(ctx context.Context) bool { // without x, which stays on the stack
		for at, of := range unpaced {
			if !d.Counted(ctx, at, of) {
				return false
			}
		}
		return true
	}, saves
}

// coolUnless cools, as a response asks that says that nothing is left, unless the fleet has counted that itself. Until
// that is known nothing is sent; a caller that leaves does not wait for it.
func (x *exchange) coolUnless(counted func(context.Context) bool, kind retry.Verdict, resp *http.Response, a retry.Answer) {
	c, _ := x.cooldown(kind, resp, a)
	release := x.adm.Hold(c, askTime)
	defer release()
	var ours atomic.Bool
	admission.Whole(x.orig.Context(), func(ctx context.Context) { ours.Store(counted(ctx)) })
	if !ours.Load() {
		x.cool(kind, resp, a)
	}
}
