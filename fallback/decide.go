package fallback

import (
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// newClock returns the time in microseconds of the epoch. It starts from the
// wall clock, so that windows are aligned to the epoch, and goes on by the
// monotonic one, so that it never steps back.
func newClock() func() int64 {
	start := time.Now()
	base := start.UnixMicro()
	return func() int64 { return base + time.Since(start).Microseconds() }
}

// decide charges n to the entry, or only looks when it is blocked.
func (e *entry) decide(p algo.Params, now, n int64) algo.Decision {
	e.revive(p, now)
	var d algo.Decision
	if p.Kind == algo.TokenBucket {
		d = e.tokenBucket(p, now, n, e.state.Blocked(now))
	} else {
		d = algo.Decide(p, &e.state, now, n)
	}
	e.idleAt = max(e.idleAt, now+d.ResetAfter)
	return d
}

// debit charges as much of n as there is room for, also when it is blocked.
func (e *entry) debit(p algo.Params, now, n int64) {
	e.revive(p, now)
	var d algo.Decision
	if p.Kind == algo.TokenBucket {
		left := min(n, e.tokenBucket(p, now, 0, 0).Remaining)
		if d = e.tokenBucket(p, now, left, 0); !d.Allowed && left > 1 {
			d = e.tokenBucket(p, now, left-1, 0) // a hair was missing
		}
	} else {
		d = algo.Debit(p, &e.state, now, n)
	}
	e.idleAt = max(e.idleAt, now+d.ResetAfter)
}

// tokenBucket is x/time/rate with its answers in our terms, for a key that is blocked
// for some time.
func (e *entry) tokenBucket(p algo.Params, now, n, blocked int64) algo.Decision {
	limit := rate.Limit(float64(p.Num) / float64(p.Den) * 1e6)
	t := time.UnixMicro(now)
	switch {
	case e.bucket == nil:
		e.bucket = rate.NewLimiter(limit, int(p.Cap))
		if used := p.Cap - e.state.V; e.state.W != 0 && used > 0 {
			// Started warm: the state holds what was left.
			e.bucket.AllowN(t, int(used))
		}
		e.state.V, e.state.W = 0, 0
	case e.bucket.Limit() != limit || e.bucket.Burst() != int(p.Cap):
		// A bucket keeps its tokens, at most the new burst.
		e.bucket.SetLimitAt(t, limit)
		e.bucket.SetBurstAt(t, int(p.Cap))
	}
	var d algo.Decision
	need := n
	if n > 0 {
		need += p.Keep
	}
	kept := p.Keep == 0 || e.bucket.TokensAt(t)+1e-9 >= float64(need)
	d.Allowed = blocked == 0 && (n == 0 || kept && e.bucket.AllowN(t, int(n)))
	tokens := e.bucket.TokensAt(t)
	d.Remaining = max(0, int64(tokens+1e-9))
	if !d.Allowed {
		if missing := float64(need) - tokens; missing > 0 {
			d.RetryAfter = max(1, int64(math.Ceil(missing/float64(limit)*1e6)))
			// Rounding may leave the last microsecond out, or more of them where
			// a microsecond is less than what a float64 of this size can tell.
			for step := int64(1); e.bucket.TokensAt(time.UnixMicro(now+d.RetryAfter)) < float64(need); step *= 2 {
				d.RetryAfter += step
			}
		}
	}
	if missing := float64(p.Cap) - tokens; missing > 0 {
		d.ResetAfter = int64(math.Ceil(missing / float64(limit) * 1e6))
	}
	if blocked > 0 {
		d.Remaining, d.RetryAfter, d.ResetAfter = 0, max(d.RetryAfter, blocked), max(d.ResetAfter, d.RetryAfter, blocked)
	}
	return d
}
