package httpclient

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/cooldown"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// minPause keeps a limiter that denies and yet names no time from being asked
// in a busy loop.
const minPause = time.Millisecond

// admit waits until an attempt may be sent: cooldown, throttle, limiter, in this
// order, so that a request never takes from the limit only to find the key
// cooling down, or that it is not sent. The error is an *Error, or that of a
// caller who gave up.
func (x *exchange) admit() error {
	if err := gone(x.orig); err != nil {
		return err
	}
	x.drawn = false
	if x.key != "" {
		if err := x.cooldown(); err != nil {
			return err
		}
		// What the throttle rejects must not take from a limit that others share.
		if err := x.throttle(); err != nil {
			return err
		}
		if x.t.cfg.limiter != nil {
			if err := x.limit(); err != nil {
				return err
			}
		}
		if x.pace != nil {
			if err := x.adapt(); err != nil {
				return err
			}
		}
	}
	return x.throttle() // the host may have failed during the waits
}

// throttle rejects the attempt, at random, in the measure in which the host
// fails.
func (x *exchange) throttle() error {
	th := x.host.throttle
	if th == nil || !th.Rejecting() {
		return nil
	}
	if !x.drawn {
		x.draw, x.drawn = th.Draw(), true
	}
	if x.draw >= th.Probability(limiter.IsCritical(x.orig.Context())) {
		return nil
	}
	return &Error{Reason: HostFailing, Key: x.host.name, Wait: th.Wait()}
}

// cooldown waits until the key does not cool down, which may be prolonged
// meanwhile. The waiters of one cooldown come back spread over half its length.
func (x *exchange) cooldown() error {
	for {
		left, over, asked := x.t.gates.Left(x.key)
		if left <= 0 {
			return nil
		}
		if err := x.pause(left, over, WaitCooldown, CoolingDown); err != nil {
			if e, ours := err.(*Error); ours { //nolint:errorlint // it is not wrapped
				e.Wait = asked
			}
			return err
		}
	}
}

// limit waits until the limiter admits the request.
func (x *exchange) limit() error {
	cost := max(1, x.call.Cost)
	for {
		res, err := x.t.cfg.limiter.AllowN(x.orig.Context(), x.key, cost)
		if err != nil {
			if callerGone := gone(x.orig); callerGone != nil {
				return callerGone
			}
			return &Error{Reason: LimiterFailed, Key: x.key, Err: err}
		}
		d, over := res.Delay, time.Duration(0)
		if !res.Allowed {
			d = max(minPause, res.RetryAfter)
			rate := res.Limit.Rate()
			over = cooldown.Crowd(d, rate.N, rate.Per, cost)
		}
		if d <= 0 {
			return nil
		}
		if err := x.pause(d, over, WaitLimiter, Throttled); err != nil {
			return err
		}
		// While this one waited another may have been told to.
		if err := x.cooldown(); err != nil || res.Allowed {
			return err
		}
	}
}

// adapt waits for the slot of adaptive pacing.
func (x *exchange) adapt() error {
	most, _, _ := x.allow.Fits(x.orig.Context(), 0)
	d, ok := x.pace.delay(most)
	if ok && d == 0 {
		return nil
	}
	// If it did not get the slot, neither does the wait fit.
	if err := x.pause(d, 0, WaitAdaptive, Throttled); err != nil {
		return err
	}
	return x.cooldown()
}

// pause waits for d, lengthened by up to over; where d does not fit, it returns
// an *Error with the reason at once.
func (x *exchange) pause(d, over time.Duration, why WaitReason, reason Reason) error {
	most, ok, err := x.allow.Fits(x.orig.Context(), d)
	if !ok {
		return &Error{Reason: reason, Key: x.key, Wait: d, Err: err}
	}
	return x.sleep(plan{d: retry.Spread(d, over, most), why: why})
}

// plan is a wait that was found to fit.
type plan struct {
	d      time.Duration
	why    WaitReason
	source string
}

func (x *exchange) sleep(p plan) error {
	if f := x.t.cfg.hooks.Wait; f != nil {
		f(WaitInfo{x.orig, p.d, p.why, p.source})
	}
	return x.rest(p.d)
}
