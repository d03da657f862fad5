package holdfastgrpc

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/internal/admission"
	"github.com/holdfast-go/holdfast/retry"
)

// minThrottled is the shortest wait after a rejection by quota: less of jittered backoff
// would be no pause.
const minThrottled = time.Second

// call is one call of an interceptor. It is not safe for concurrent use.
type call struct {
	adm            admission.Call
	cfg            *clientConfig
	ctx            context.Context
	target, method string
	last           error // of the last attempt
}

// run makes attempts until one is the outcome. grpc-go fills in seen for each of them.
func (x *call) run(seen *attempt, send func() error) error {
	for {
		if s := x.adm.Admit(); s != nil {
			return x.stop(s)
		}
		*seen = attempt{}
		start := time.Now()
		err := send()
		x.adm.Send()
		if err == nil {
			return nil
		}
		x.adm.Report(evidenceOf(x.ctx, err, time.Since(start), seen.unsent()))
		w, again := x.afterAttempt(err, seen)
		if !again {
			return err
		}
		x.last = err
		if s := x.adm.Wait(w); s != nil {
			return x.stop(s)
		}
	}
}

// stop ends the call without another attempt.
func (x *call) stop(s *admission.Stop) error {
	if s.Reason == admission.CallerGone {
		return gone(x.ctx)
	}
	e := x.giveUp(s)
	if x.last != nil {
		return x.last
	}
	return e
}

// giveUp reports why there is no attempt, or no other one.
func (x *call) giveUp(s *admission.Stop) *Error {
	e := &Error{Reason: s.Reason, Target: x.target, Method: x.method, Key: x.adm.Key, Wait: s.Wait, Err: s.Err}
	if f := x.cfg.hooks.GiveUp; f != nil {
		f(x.ctx, e)
	}
	return e
}

// afterAttempt learns from an attempt that failed and decides whether there is another, and
// after which wait.
func (x *call) afterAttempt(err error, seen *attempt) (w admission.Wait, again bool) {
	st := status.Convert(err)
	h := hintOf(st, seen.trailer)
	x.learn(st.Code(), h)
	if x.ctx.Err() != nil || !x.cfg.retryable(x.method, st, h) {
		return w, false
	}
	w, s := x.next(st.Code(), h, seen.unsent())
	if s != nil {
		_ = x.giveUp(s) // for the hook; the error of the call is s
	}
	return w, s == nil
}

// next returns the wait before the next attempt, or why there is none.
func (x *call) next(code codes.Code, h hint, unsent bool) (w admission.Wait, s *admission.Stop) {
	switch {
	case h.never:
		return w, &admission.Stop{Reason: retry.PushedBack, Wait: h.wait}
	case !unsent && !x.cfg.repeatable(x.method, h):
		return w, &admission.Stop{Reason: retry.NotIdempotent}
	case x.adm.Sent() >= x.adm.Attempts:
		return w, &admission.Stop{Reason: retry.AttemptsSpent, Wait: h.wait}
	}
	a := admission.Answer{Asked: h.wait > 0, Wait: h.wait, Source: h.source}
	if a.Asked {
		x.adm.RestartBackoff() // as gRFC A6 says
	} else if code == codes.ResourceExhausted {
		a.Least = minThrottled
	}
	return x.adm.Next(a)
}

// learn closes the gate of the call's key when the server has named a wait.
func (x *call) learn(code codes.Code, h hint) {
	if code != codes.ResourceExhausted && code != codes.Unavailable {
		return
	}
	d := x.adm.Cool(admission.Cooldown{For: h.wait, Source: h.source})
	if f := x.cfg.hooks.Cooldown; f != nil && d > 0 {
		f(x.ctx, CooldownInfo{x.target, x.method, x.adm.Key, d, h.source})
	}
}
