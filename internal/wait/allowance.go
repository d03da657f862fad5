// Package wait decides whether a call may wait once more, and for how long: the same for
// retry.Do and for the clients that keep to limits.
package wait

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/internal/random"
)

// Bound is what forbids a wait. The zero value forbids nothing.
type Bound uint8

const (
	// Each: the wait is longer than the longest single one.
	Each Bound = iota + 1
	// Total: it is longer than what is left of the sum of waits.
	Total
	// Deadline: the context ends before it.
	Deadline
	// Budget: the budget of retries is spent.
	Budget
	// Expiry: what is to be sent is not valid any more after it.
	Expiry
)

var errExpiry = errors.New("the request's signature expires before")

// Err returns context.DeadlineExceeded if the deadline forbids the wait, an error that says
// so of the expiry, else nil.
func (b Bound) Err() error {
	switch b {
	case Deadline:
		return context.DeadlineExceeded
	case Expiry:
		return errExpiry
	default:
		return nil
	}
}

// Allowance is how long one call may still wait. Every wait of a call goes
// through it, so that its bounds hold whatever servers and limiters say. It is
// not safe for concurrent use: each call has its own.
type Allowance struct {
	Each  time.Duration // the longest single wait
	Total time.Duration // the longest sum of waits
	// Until is when what is to be sent expires; zero is never.
	Until time.Time

	waited time.Duration // so far
}

// Most returns the longest wait that is within the bounds and ends before the
// deadline of ctx.
func (a *Allowance) Most(ctx context.Context) time.Duration {
	most, _ := a.fits(ctx, 0)
	return most
}

func (a *Allowance) fits(ctx context.Context, d time.Duration) (most time.Duration, b Bound) {
	most = min(a.Each, a.Total-a.waited)
	switch {
	case d > a.Each:
		return most, Each
	case d > most:
		return most, Total
	}
	if !a.Until.IsZero() {
		most = min(most, max(0, time.Until(a.Until)-1))
		if d > most {
			return most, Expiry
		}
	}
	if deadline, has := ctx.Deadline(); has {
		// A wait up to the very deadline leaves no time to send anything.
		most = min(most, time.Until(deadline)-1)
		if d > most {
			return most, Deadline
		}
	}
	return most, 0
}

// Next returns d lengthened at random by up to over, as far as that fits; where d
// itself does not fit, it returns d and the bound. The budget of retries, which may
// be nil, is asked last, so that it is spent only on retries that are made.
func (a *Allowance) Next(ctx context.Context, d, over time.Duration, budget interface{ Withdraw() bool }) (time.Duration, Bound) {
	most, b := a.fits(ctx, d)
	if b == 0 && budget != nil && !budget.Withdraw() {
		b = Budget
	}
	if b != 0 {
		return d, b
	}
	return Spread(d, over, most), 0
}

// Sleep waits for d, or until called has a value, or until ctx or canceled ends; then it
// reports false. Both channels may be nil.
func (a *Allowance) Sleep(ctx context.Context, d time.Duration, canceled, called <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	start := time.Now()
	defer func() { a.waited += time.Since(start) }()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-called:
		return true
	case <-ctx.Done():
	case <-canceled:
	}
	return false
}

// Spread returns a random time in [d, d+over], at most most. It is the jitter
// for a wait that a server asked for, which must not be shortened: coming back
// sooner than asked is what gets clients banned. If d is not less than most it
// is returned as it is.
func Spread(d, over, most time.Duration) time.Duration {
	over = min(over, most-d)
	if over <= 0 {
		return d
	}
	return d + random.Below(over+1)
}

// Crowd returns over which time those spread whom a limiter denies for d. It
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
