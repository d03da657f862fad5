package admission

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/wait"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// Learnt is a limiter of what servers say of their quotas.
type Learnt interface {
	limiter.Allower
	blocker
}

// learnt waits until the quotas that servers have said admit the call: those of its scopes and
// of its key. Calls that wait for one quota come back spread over the time in which it admits
// one more: they meet at a limiter of ours, not at the server.
func (x *Call) learnt() *Stop {
	if x.Learnt == nil {
		return nil
	}
	for _, scope := range x.Scopes {
		if s := x.learntOf(scope); s != nil {
			return s
		}
	}
	return x.learntOf(x.Key)
}

func (x *Call) learntOf(key string) *Stop {
	for {
		res, err := x.Learnt.AllowN(x.ctx, key, 1)
		switch {
		case x.gone():
			return &Stop{}
		case err != nil || res.Allowed: // a quota that is not configured must not stop a call
			return nil
		}
		d, rate := max(minPause, res.RetryAfter), res.Limit.Rate()
		over := rate.Per / time.Duration(max(1, rate.N))
		if s := x.pause(wait.Spread(d, min(d, over), x.Allow.Most(x.ctx)), retry.WaitLimiter, retry.Throttled); s != nil {
			s.Key = key
			return s
		}
		if x.cooling() { // a cooldown has begun during the wait: the turn is void
			return nil
		}
	}
}
