package httpclient

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast/internal/admission"
	"github.com/holdfast-go/holdfast/internal/discovery"
	"github.com/holdfast-go/holdfast/retry"
)

// The shortest waits when the server names none, or zero. A 429 is a request
// for a pause: half a second of jittered backoff would not be one.
const (
	minBackoff   = 500 * time.Millisecond
	minThrottled = time.Second
)

// exchange is one call of RoundTrip. It is not safe for concurrent use.
type exchange struct {
	adm    admission.Call
	cfg    *config
	base   http.RoundTripper
	routes *routes
	orig   *http.Request // the caller's
	req    *http.Request // what is sent: orig, or a copy with its body in memory
	call   Call
	outer  outer // what the layer above repeats

	discovery *discovery.Discovery // nil is none
	began     time.Time            // of the last attempt

	last    *http.Response // of the last attempt, parked
	lastErr error          // of the last attempt
	up      *upload        // of the last attempt; nil without a body
}

func (x *exchange) run() (*http.Response, error) {
	for {
		if s := x.adm.Admit(); s != nil {
			return x.stop(s)
		}
		r, err := x.attempt()
		if err != nil {
			x.adm.GiveBack()
			return x.stop(&admission.Stop{Reason: retry.ReplayFailed, Err: err})
		}
		resp, err := x.send(r)
		wait, again := x.afterAttempt(resp, err)
		if !again {
			return resp, err
		}
		if x.last, x.lastErr = resp, err; resp != nil {
			park(resp)
		}
		if s := x.adm.Wait(wait); s != nil {
			return x.stop(s)
		}
	}
}

// attempt returns the request to send, and lets go of the last response.
func (x *exchange) attempt() (*http.Request, error) {
	r := x.req
	if x.adm.Sent() > 0 {
		var err error
		if r, err = again(x.req); err != nil {
			return nil, err
		}
	}
	x.drop()
	return r, nil
}

func (x *exchange) drop() {
	if x.last != nil {
		x.last.Body.Close() //nolint:errcheck // it is not read any more
		x.last = nil
	}
}

// send makes one attempt and reports it to the throttle.
func (x *exchange) send(r *http.Request) (resp *http.Response, err error) {
	number := x.adm.Send()
	start := time.Now()
	x.began = start
	if d := x.cfg.attemptTimeout; d > 0 {
		resp, err = sendWithin(x.transmit, r, d)
	} else {
		resp, err = x.transmit(r)
	}
	took := time.Since(start)
	switch {
	case resp == nil && err == nil:
		err = errNothing
	case resp != nil && err != nil: // so does http.Client
		if resp.Body != nil {
			resp.Body.Close() //nolint:errcheck // the error is the one to return
		}
		resp = nil
	}
	var status int
	var shown admission.Evidence
	if err != nil {
		shown = evidenceOfError(err, gone(x.orig), took, x.up)
	} else {
		if status = resp.StatusCode; resp.Body == nil {
			resp.Body = http.NoBody
		}
		shown = evidenceOfStatus(status, x.up)
		if resp.Request == nil || resp.Request == r {
			resp.Request = x.orig // not ours to show
		}
	}
	x.adm.Report(shown)
	if f := x.cfg.hooks.Attempt; f != nil {
		f(x.orig.Context(), AttemptInfo{x.orig, number, status, err, took})
	}
	return resp, err
}

// transmit sends r through the base, with its bodies watched.
func (x *exchange) transmit(r *http.Request) (*http.Response, error) {
	var sent *http.Request
	sent, x.up = watched(r)
	resp, err := x.base.RoundTrip(sent)
	if resp != nil && resp.Request == sent {
		resp.Request = r
	}
	return resp, err
}

// afterAttempt learns from an attempt and decides whether there is another, and after
// which wait. If there is none, resp and err are the outcome of the call, and
// resp knows why.
func (x *exchange) afterAttempt(resp *http.Response, err error) (w admission.Wait, again bool) {
	kind, a := retry.Final, retry.Answer{}
	switch {
	case err == nil:
		var release func()
		a, release = x.read(resp)
		kind = x.cfg.classify(resp, nil, a.Verdict)
		x.learn(kind, resp, a)
		release()
	case x.up.broken(): // it would fail again
	case gone(x.orig) == nil && !errors.Is(err, context.Canceled) && !permanent(err):
		kind = x.cfg.classify(nil, err, retry.Failed)
	}
	if kind == retry.Final || x.up.broken() {
		if err == nil && !x.up.broken() && evidenceOfStatus(resp.StatusCode, x.up) == admission.Accepted {
			x.adm.Host.Budget.Deposit()
		}
		return w, false
	}
	w, s := x.next(kind, resp, a)
	if s == nil {
		return w, true
	}
	e := x.giveUp(s)
	if resp != nil {
		gaveUp(resp, x.orig, e)
	}
	return w, false
}

// read returns what a response says. Until release, the gate is closed by what its headers say, because
// its body may come late.
func (x *exchange) read(resp *http.Response) (a retry.Answer, release func()) {
	a = answerOf(resp, x.cfg.resetFormat(x.adm.Host.Name))
	path := x.orig.URL.Path
	if !retry.WantsBody(resp.StatusCode, resp.Header, path, x.cfg.providers...) {
		return a, func() {}
	}
	release = func() {}
	if a.Asked && a.Verdict == retry.Rejected {
		x.learnNames(resp, a)
		c, _ := x.cooldown(retry.Rejected, resp, a)
		release = x.adm.Hold(c, peekTime)
	}
	if body, whole := peek(resp, retry.MaxBody); whole {
		a = retry.ParseBody(a, resp.StatusCode, resp.Header, path, body, x.cfg.providers...)
	}
	return a, release
}

// next returns the wait before the next attempt, or why there is none.
func (x *exchange) next(kind retry.Verdict, resp *http.Response, a retry.Answer) (w admission.Wait, s *admission.Stop) {
	reason := retry.Reason(0)
	switch {
	case kind == retry.Failed && !isIdempotent(x.orig, x.call):
		reason = retry.NotIdempotent
	case x.outer == outerAll || x.outer == outerFailures && kind == retry.Failed:
		reason = retry.OuterRetries
	case x.adm.Sent() >= x.adm.Attempts:
		reason = retry.AttemptsSpent
	case !replayable(x.req):
		reason = retry.NotReplayable
	}
	if reason != 0 {
		return w, &admission.Stop{Reason: reason, Wait: a.Wait}
	}
	least := time.Duration(0)
	switch {
	case resp != nil && (resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode < 400):
		least = minThrottled
	case a.Asked:
		least = minBackoff
	}
	return x.adm.Next(admission.Answer{Asked: a.Asked, Wait: a.Wait, Source: a.Source, Least: least})
}

// learn closes the gate of the key or of one of its quotas, or slows adaptive pacing, as a
// response says.
func (x *exchange) learn(kind retry.Verdict, resp *http.Response, a retry.Answer) {
	x.learnNames(resp, a)
	cools := a.Wait > 0 && a.Asked && (a.Remaining == 0 || kind == retry.Rejected)
	paced, counted, saves := x.discover(kind, resp, a)
	switch {
	case paced && kind != retry.Rejected: // the next window's requests need no pause to be spread
	case cools && counted != nil && kind != retry.Rejected:
		x.coolUnless(counted, kind, resp, a)
	case cools:
		x.cool(kind, resp, a)
	case resp.StatusCode == http.StatusTooManyRequests && kind != retry.Final:
		x.adm.Slow()
	}
	for _, save := range saves { // last, because it may wait
		save(x.orig.Context())
	}
}

// learnNames remembers which quotas a response is about.
func (x *exchange) learnNames(resp *http.Response, a retry.Answer) {
	if names := namesOf(resp, a); len(names) > 0 {
		x.routes.learn(x.adm.Host.Name, x.orig, names)
	}
}

// cooldown returns what a response asks for, and of which key.
func (x *exchange) cooldown(kind retry.Verdict, resp *http.Response, a retry.Answer) (c admission.Cooldown, key string) {
	c = admission.Cooldown{For: a.Wait, Source: a.Source, Said: saidBy(kind, resp)}
	key = x.adm.Key
	if a.Scope != "" && key != "" {
		c.Scope = scopeKey(key, a.Scope, x.orig)
		key = c.Scope
	}
	return c, key
}

// cool closes the gate of the key, or of one of its quotas.
func (x *exchange) cool(kind retry.Verdict, resp *http.Response, a retry.Answer) {
	c, key := x.cooldown(kind, resp, a)
	d := x.adm.Cool(c)
	if f := x.cfg.hooks.Cooldown; f != nil && d > 0 {
		f(x.orig.Context(), CooldownInfo{key, d, a.Source})
	}
}

// stop ends the call without another attempt.
func (x *exchange) stop(s *admission.Stop) (*http.Response, error) {
	if x.adm.Sent() == 0 {
		closeBody(x.req)
	}
	if s.Reason == admission.CallerGone {
		x.drop()
		return nil, gone(x.orig)
	}
	e := x.giveUp(s)
	switch {
	case x.last != nil:
		return gaveUp(x.last, x.orig, e), nil
	case x.lastErr != nil:
		return nil, x.lastErr
	case e.Reason == retry.CoolingDown && !x.cfg.cooldownErrors:
		said, _ := s.Said.(*said)
		return gaveUp(said.again(x.orig, e), x.orig, e), nil
	default:
		return nil, e
	}
}

// giveUp reports why there is no attempt, or no other one.
func (x *exchange) giveUp(s *admission.Stop) *Error {
	e := &Error{Reason: s.Reason, Key: x.adm.Host.Name, Wait: s.Wait, Err: s.Err}
	switch e.Reason {
	case retry.Throttled, retry.CoolingDown, retry.LimiterFailed:
		e.Key = cmp.Or(s.Key, x.adm.Key)
	}
	if f := x.cfg.hooks.GiveUp; f != nil {
		f(x.orig.Context(), GiveUpInfo{x.orig, e})
	}
	return e
}
