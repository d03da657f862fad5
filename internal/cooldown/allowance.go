package cooldown

import (
	"context"
	"math"
	"time"
)

// Allowance is how long one call may still wait. Every sleep of a call goes
// through it, so that its bounds hold whatever servers and limiters say. It is
// not safe for concurrent use: each call has its own.
type Allowance struct {
	Each  time.Duration // the longest single wait
	Total time.Duration // the longest sum of waits

	waited time.Duration // so far
}

// Waited returns the sum of waits so far.
func (a *Allowance) Waited() time.Duration { return a.waited }

// Fits reports whether a wait of d is within the bounds and ends before the
// deadline of ctx. most is the longest wait that would. The error is
// context.DeadlineExceeded when it is the deadline that forbids it.
func (a *Allowance) Fits(ctx context.Context, d time.Duration) (most time.Duration, ok bool, err error) {
	most = min(a.Each, a.Total-a.waited)
	if d > most {
		return most, false, nil
	}
	if deadline, has := ctx.Deadline(); has {
		// A wait up to the very deadline leaves no time to send anything.
		left := time.Until(deadline) - 1
		if d > left {
			return left, false, context.DeadlineExceeded
		}
		most = min(most, left)
	}
	return most, true, nil
}

// Sleep waits for d, or until ctx or left, which may be nil, ends; then it reports
// false.
func (a *Allowance) Sleep(ctx context.Context, d time.Duration, left <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	a.waited += d
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-left:
	}
	return false
}

// Crowd returns over which time those spread whom a limiter sends away for d. It
// admits n units per period, of which each of them asks for cost. Up to the time
// that the rate takes to allow one more, d is the pace itself, and spreading would
// only lower it. More than that is a window's end or a cooldown of the fleet, at
// which all who wait would come back at one instant.
func Crowd(d time.Duration, n int, per time.Duration, cost int) time.Duration {
	if n > 0 {
		one := float64(per) / float64(n) * float64(cost)
		if float64(d) <= math.Ceil(one)+float64(time.Microsecond) {
			return 0
		}
	}
	return d / 2
}
