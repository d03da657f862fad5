package httpclient

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast/internal/cooldown"
	"github.com/holdfast-go/holdfast/retry"
)

// The shortest waits when the server names none, or zero. A 429 is a request
// for a pause: half a second of jittered backoff would not be one.
const (
	minBackoff   = 500 * time.Millisecond
	minThrottled = time.Second
)

// judge learns from an attempt and decides whether there is another, and after
// which wait. If there is none, resp and err are the outcome of the call, and
// resp knows why.
func (x *exchange) judge(resp *http.Response, err error) (p plan, again bool) {
	kind, h := Final, hint{}
	switch {
	case err == nil:
		h = hintOf(resp, x.format())
		kind = x.t.classify(resp, nil, h.verdict)
		x.learn(kind, resp, h)
	case x.up.broken(): // it would fail again
	case gone(x.orig) == nil && !errors.Is(err, context.Canceled) && !permanent(err):
		kind = x.t.classify(nil, err, Failed)
	}
	if kind == Final || x.up.broken() {
		if err == nil && !x.up.broken() {
			x.host.budget.Deposit()
		}
		return plan{}, false
	}
	p, e := x.plan(kind, resp, h)
	if e == nil {
		return p, true
	}
	if f := x.t.cfg.hooks.GiveUp; f != nil {
		f(x.orig, e)
	}
	if resp != nil {
		gaveUp(resp, x.orig, e)
	}
	return plan{}, false
}

// plan returns the wait before the next attempt, or why there is none. What
// asks for the budget comes last, so that it is spent only on retries made.
func (x *exchange) plan(kind Verdict, resp *http.Response, h hint) (plan, *Error) {
	e := &Error{Key: x.host.name, Wait: h.wait}
	switch {
	case kind == Failed && !isIdempotent(x.orig, x.call):
		e.Reason = NotIdempotent
		return plan{}, e
	case x.sent >= x.attempts:
		e.Reason = AttemptsSpent
		return plan{}, e
	case !replayable(x.req):
		e.Reason = NotReplayable
		return plan{}, e
	}
	throttled := resp != nil && resp.StatusCode == http.StatusTooManyRequests
	d, over := x.waitFor(throttled, h)
	most, ok, cause := x.allow.Fits(x.orig.Context(), d)
	e.Wait = d
	if !ok {
		e.Reason, e.Err = WaitTooLong, cause
		return plan{}, e
	}
	if !x.host.budget.Withdraw() {
		e.Reason = BudgetSpent
		return plan{}, e
	}
	p := plan{d: retry.Spread(d, over, most), why: WaitBackoff}
	if h.asked {
		p.why, p.source = WaitServer, h.source
	}
	return p, nil
}

// waitFor returns the wait before the next attempt, and by how much at most it
// should be lengthened at random. Backoff brings its own jitter.
func (x *exchange) waitFor(throttled bool, h hint) (d, over time.Duration) {
	least := time.Duration(0)
	switch {
	case throttled:
		least = minThrottled
	case h.asked:
		least = minBackoff
	}
	d = h.wait
	if h.asked {
		if d == 0 { // "now" is no pause, whatever the server says
			d = least
		}
		return d, d / 2
	}
	if x.backoff == nil {
		x.backoff = x.t.cfg.backoff.Start()
	}
	if d = x.backoff.Next(); d < least {
		return least, least / 2 // jitter that the minimum has undone
	}
	return d, 0
}

// learn tells the gate, the limiter and adaptive pacing what a response says
// about the key.
func (x *exchange) learn(kind Verdict, resp *http.Response, h hint) {
	if x.key == "" {
		return
	}
	if h.wait > 0 && (h.exhausted || kind == Refused && h.asked) {
		x.cool(h)
		return
	}
	if x.pace != nil && resp.StatusCode == http.StatusTooManyRequests {
		x.pace.throttled(x.sentAt)
	}
}

// cool closes the key's gate, and the fleet's.
func (x *exchange) cool(h hint) {
	t, d := x.t, min(h.wait, cooldown.Max)
	wasOpen, longer := t.gates.Close(x.key, h.wait)
	if longer <= 0 {
		return
	}
	if wasOpen {
		t.cfg.logger.LogAttrs(x.orig.Context(), slog.LevelInfo, "holdfast: cooling down",
			slog.String("host", x.host.name), slog.Duration("for", d),
			slog.Time("until", time.Now().Add(d)), slog.String("source", h.source))
	}
	if f := t.cfg.hooks.Cooldown; f != nil {
		f(CooldownInfo{x.key, d, h.source})
	}
	if t.block != nil && cooldown.Prolongs(longer, d) {
		// If Redis can't be reached this process still heeds the gate, which is
		// all that can be done.
		_ = t.block.Block(x.orig.Context(), x.key, d)
	}
}
