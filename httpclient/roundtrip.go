package httpclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast/internal/cooldown"
	"github.com/holdfast-go/holdfast/retry"
)

// RoundTrip sends the request, as often as it takes and the options allow. It
// keeps the contract of [http.RoundTripper]: it does not modify the request, it
// closes its body on every path, and it follows no redirects.
//
// If there is a response, the last one is returned with a nil error and its
// body unread, also when a retry was called for but not possible; [GaveUp] then
// says why. If nothing could be sent, the error is an [*Error]; otherwise it is
// that of the last attempt. When the request's context, or its Cancel channel,
// ends a wait, the error matches context.Canceled or context.DeadlineExceeded.
// A wait that the deadline does not allow is not begun.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req == nil {
		return nil, errors.New("httpclient: nil request")
	}
	call := callOf(req.Context())
	if err := check(req, call); err != nil {
		closeBody(req)
		return nil, err
	}
	name := hostOf(req.URL)
	x := exchange{
		t:        t,
		orig:     req,
		req:      req,
		call:     call,
		key:      t.key(req, call, name),
		host:     t.hosts.get(name),
		attempts: t.cfg.attempts,
		allow:    cooldown.Allowance{Each: t.cfg.maxWait, Total: t.cfg.maxTotal},
	}
	if call.Attempts > 0 {
		x.attempts = call.Attempts
	}
	if call.MaxWait > 0 {
		x.allow.Each = call.MaxWait
	}
	if t.cfg.bodyBuffer > 0 && x.attempts > 1 {
		var err error
		if x.req, err = buffered(req, t.cfg.bodyBuffer); err != nil {
			return nil, fmt.Errorf("httpclient: reading the request's body: %w", err)
		}
	}
	if t.paces != nil && x.key != "" {
		x.pace = t.paces.GetOrAdd(x.key, newPace)
	}
	return x.run()
}

// check refuses what no attempt could succeed with.
func check(req *http.Request, c Call) error {
	if req.URL == nil {
		return errors.New("httpclient: nil Request.URL")
	}
	return c.validate()
}

// exchange is one call of RoundTrip.
type exchange struct {
	t        *Transport
	orig     *http.Request // the caller's
	req      *http.Request // what the first attempt sends: orig, or a copy with its body in memory
	call     Call
	key      string // of limit and cooldown; "" is none
	host     *host
	pace     *pace // nil is not adaptive
	attempts int
	allow    cooldown.Allowance

	backoff *retry.Sequence // made when needed
	sent    int             // attempts so far
	sentAt  time.Duration   // of the last one, by pace
	last    *http.Response  // of the last one, parked
	lastErr error           // of the last one
	draw    float64         // of the throttle, for this attempt
	drawn   bool
	up      *upload // of the last one; nil without a body
}

func (x *exchange) run() (*http.Response, error) {
	for {
		if err := x.admit(); err != nil {
			return x.stop(err)
		}
		r, err := x.attempt()
		if err != nil {
			return x.stop(&Error{Reason: ReplayFailed, Key: x.host.name, Err: err})
		}
		resp, err := x.send(r)
		wait, again := x.judge(resp, err)
		if !again {
			return resp, err
		}
		if x.last, x.lastErr = resp, err; resp != nil {
			park(resp)
		}
		if err := x.sleep(wait); err != nil {
			return x.stop(err)
		}
	}
}

// format is how the host tells times in its quota headers.
func (x *exchange) format() retry.ResetFormat {
	if f := x.t.cfg.format; f != nil {
		return f(x.host.name)
	}
	return retry.ResetGuess
}

// attempt returns the request to send, and lets go of the last response.
func (x *exchange) attempt() (*http.Request, error) {
	r := x.req
	if x.sent > 0 {
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
		x.last.Body.Close() //nolint:errcheck // nobody will read it
		x.last = nil
	}
}

// send makes one attempt and reports it to the throttle.
func (x *exchange) send(r *http.Request) (resp *http.Response, err error) {
	x.sent++
	if x.pace != nil {
		x.sentAt = x.pace.start()
	}
	start := time.Now()
	if d := x.t.cfg.attemptTimeout; d > 0 {
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
			resp.Body.Close() //nolint:errcheck // the error is the one to tell
		}
		resp = nil
	}
	status, told := 0, evidence(0)
	if err != nil {
		told = evidenceOfError(err, gone(x.orig), took, x.up)
	} else {
		if status = resp.StatusCode; resp.Body == nil {
			resp.Body = http.NoBody
		}
		told = evidenceOfStatus(status, x.up)
		if resp.Request == nil || resp.Request == r {
			resp.Request = x.orig // not ours to show
		}
	}
	if th := x.host.throttle; th != nil && told != 0 {
		th.Report(told == accepted)
	}
	if f := x.t.cfg.hooks.Attempt; f != nil {
		f(AttemptInfo{x.orig, x.sent, status, err, took})
	}
	return resp, err
}

// transmit sends r through the base, with its bodies watched.
func (x *exchange) transmit(r *http.Request) (*http.Response, error) {
	var sent *http.Request
	sent, x.up = watched(r)
	resp, err := x.t.base.RoundTrip(sent)
	if resp != nil && resp.Request == sent {
		resp.Request = r
	}
	return resp, err
}

// stop ends the call because of err: an *Error, or the caller gave up.
func (x *exchange) stop(err error) (*http.Response, error) {
	if x.sent == 0 {
		closeBody(x.req)
	}
	e, ours := err.(*Error) //nolint:errorlint // it is not wrapped
	if !ours {
		x.drop()
		return nil, err
	}
	if f := x.t.cfg.hooks.GiveUp; f != nil {
		f(x.orig, e)
	}
	switch {
	case x.last != nil:
		return gaveUp(x.last, x.orig, e), nil
	case x.lastErr != nil:
		return nil, x.lastErr
	default:
		return nil, e
	}
}

// outcome is kept in the context of a response's request.
type outcome struct {
	resp *http.Response // of which it is true; contexts are passed on
	err  *Error
}

type outcomeKey struct{}

func gaveUp(resp *http.Response, req *http.Request, e *Error) *http.Response {
	resp.Request = req.WithContext(context.WithValue(req.Context(), outcomeKey{}, &outcome{resp, e}))
	return resp
}

// GaveUp returns why a [Transport] returned resp rather than tried again, or
// nil if there was no reason to try again.
func GaveUp(resp *http.Response) *Error {
	if resp == nil || resp.Request == nil {
		return nil
	}
	if o, ok := resp.Request.Context().Value(outcomeKey{}).(*outcome); ok && o.resp == resp {
		return o.err
	}
	return nil
}
