package holdfastgrpc

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/internal/cooldown"
	"github.com/holdfast-go/holdfast/retry"
)

const (
	// minThrottled is the shortest wait after a refusal by quota: less of jittered
	// backoff would be no pause.
	minThrottled = time.Second
	// minPause keeps a limiter that denies and yet names no time from being asked in a
	// busy loop.
	minPause = time.Millisecond
)

// call is one call of an interceptor.
type call struct {
	c              *Client
	ctx            context.Context
	target, method string
	key            string // of limit and cooldown; "" is none
	allow          cooldown.Allowance
	budget         *retry.Budget
	backoff        *retry.Sequence // made when needed
	sent           int             // attempts so far
	last           error           // of the last one
}

// run makes attempts until one is the outcome. told is what grpc-go tells of each.
func (x *call) run(told *attempt, send func() error) error {
	for {
		if err := x.admit(); err != nil {
			return x.stop(err)
		}
		*told = attempt{}
		err := send()
		x.sent++
		if err == nil {
			return nil
		}
		p, again := x.judge(err, told)
		if !again {
			return err
		}
		x.last = err
		if err := x.sleep(p); err != nil {
			return x.stop(err)
		}
	}
}

// stop ends the call because of err: an *Error, or the caller gave up.
func (x *call) stop(err error) error {
	e, ours := err.(*Error) //nolint:errorlint // it is not wrapped
	if !ours {
		return err
	}
	x.gaveUp(e)
	if x.last != nil {
		return x.last
	}
	return e
}

func (x *call) gaveUp(e *Error) {
	if f := x.c.cfg.hooks.GiveUp; f != nil {
		f(x.ctx, e)
	}
}

func (x *call) error(why Reason, wait time.Duration, err error) *Error {
	return &Error{Reason: why, Target: x.target, Method: x.method, Key: x.key, Wait: wait, Err: err}
}

// admit waits until an attempt may be sent: first the cooldown, so that a call never
// takes from the limit only to find the key cooling down. The error is an *Error, or that
// of a caller who gave up.
func (x *call) admit() error {
	if err := gone(x.ctx); err != nil {
		return err
	}
	if x.key == "" {
		return nil
	}
	if err := x.cooldown(); err != nil || x.c.cfg.limiter == nil {
		return err
	}
	return x.limit()
}

// cooldown waits until the key does not cool down, which may be prolonged meanwhile. The
// waiters of one cooldown come back spread over half its length.
func (x *call) cooldown() error {
	for {
		left, over, asked := x.c.gates.Left(x.key)
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

// limit waits until the limiter admits the call.
func (x *call) limit() error {
	for {
		res, err := x.c.cfg.limiter.AllowN(x.ctx, x.key, 1)
		if err != nil {
			if callerGone := gone(x.ctx); callerGone != nil {
				return callerGone
			}
			return x.error(LimiterFailed, 0, err)
		}
		d, over := res.Delay, time.Duration(0)
		if !res.Allowed {
			d = max(minPause, res.RetryAfter)
			rate := res.Limit.Rate()
			over = cooldown.Crowd(d, rate.N, rate.Per, 1)
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

// pause waits for d, lengthened by up to over; where d does not fit, it returns an *Error
// with the reason at once.
func (x *call) pause(d, over time.Duration, why WaitReason, reason Reason) error {
	most, ok, err := x.allow.Fits(x.ctx, d)
	if !ok {
		return x.error(reason, d, err)
	}
	return x.sleep(plan{d: retry.Spread(d, over, most), why: why})
}

// plan is a wait that was found to fit.
type plan struct {
	d      time.Duration
	why    WaitReason
	source string
}

func (x *call) sleep(p plan) error {
	if f := x.c.cfg.hooks.Wait; f != nil {
		f(x.ctx, WaitInfo{x.target, x.method, x.key, p.d, p.why, p.source})
	}
	if err := gone(x.ctx); err != nil {
		return err
	}
	if x.allow.Sleep(x.ctx, p.d, nil) {
		return nil
	}
	return gone(x.ctx)
}

// judge learns from an attempt that failed and decides whether there is another, and
// after which wait.
func (x *call) judge(err error, told *attempt) (p plan, again bool) {
	st := status.Convert(err)
	h := hintOf(st, told.trailer)
	x.learn(st.Code(), h)
	if x.ctx.Err() != nil || !x.retryable(st, h) {
		return plan{}, false
	}
	p, e := x.plan(st.Code(), h, told.unsent())
	if e != nil {
		x.gaveUp(e)
		return plan{}, false
	}
	return p, true
}

// retryable reports whether the failure is one that retries are for. Without a wait,
// ResourceExhausted may also say that a message was too large, which is for ever.
func (x *call) retryable(st *status.Status, h hint) bool {
	if f := x.c.cfg.retryIf; f != nil && !h.never {
		return f(x.method, st)
	}
	return st.Code() == codes.Unavailable || st.Code() == codes.ResourceExhausted && (h.asked || h.never)
}

// repeatable reports whether another attempt does no harm where the server may have done
// the work: that it names a wait, or a rule of the user's, says so.
func (x *call) repeatable(h hint, unsent bool) bool {
	cfg := &x.c.cfg
	return unsent || h.asked || cfg.retryIf != nil || cfg.idempotent[x.method]
}

// plan returns the wait before the next attempt, or why there is none. What asks for the
// budget comes last, so that it is spent only on retries made.
func (x *call) plan(code codes.Code, h hint, unsent bool) (plan, *Error) {
	switch {
	case h.never:
		return plan{}, x.error(PushedBack, h.wait, nil)
	case !x.repeatable(h, unsent):
		return plan{}, x.error(NotIdempotent, 0, nil)
	case x.sent >= x.c.cfg.attempts:
		return plan{}, x.error(AttemptsSpent, h.wait, nil)
	}
	d, over := x.waitFor(code, h)
	most, ok, cause := x.allow.Fits(x.ctx, d)
	if !ok {
		return plan{}, x.error(WaitTooLong, d, cause)
	}
	if !x.budget.Withdraw() {
		return plan{}, x.error(BudgetSpent, d, nil)
	}
	p := plan{d: retry.Spread(d, over, most), why: WaitBackoff}
	if h.wait > 0 {
		p.why, p.source = WaitServer, h.source
	}
	return p, nil
}

// waitFor returns the wait before the next attempt, and by how much at most it should be
// lengthened at random. Backoff brings its own jitter.
func (x *call) waitFor(code codes.Code, h hint) (d, over time.Duration) {
	if h.wait > 0 {
		x.backoff = nil // it begins again after a wait that was asked for
		return h.wait, h.wait / 2
	}
	if x.backoff == nil {
		x.backoff = x.c.cfg.backoff.Start()
	}
	if d = x.backoff.Next(); code == codes.ResourceExhausted && d < minThrottled {
		return minThrottled, minThrottled / 2 // jitter that the minimum has undone
	}
	return d, 0
}
