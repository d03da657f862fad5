package limiter

import (
	"context"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/critical"
	"github.com/holdfast-go/holdfast/internal/random"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/internal/wait"
)

const (
	// maxPause is the longest that a line waits for what Redis decides: another process may have
	// given units back, reset the key or changed its limit.
	maxPause = 10 * time.Second
	// maxSpread bounds the time over which the lines of several processes ask: it is more
	// than their distances to Redis differ by, and than ten of them need for 100 units a second.
	maxSpread = 2 * redislink.DefaultBudget
)

// lineOf names a line. Calls with a limit of their own stand in one of their own: those of
// a small limit must not hold up those of a larger one.
type lineOf struct {
	key   string
	limit Limit // the zero value is the limiter's own
}

// waiter waits until a cost is admitted. It is not safe for concurrent use.
type waiter struct {
	ctx    context.Context
	closed <-chan struct{}
	n      int
	// own is that what it costs cannot be compared by n: what denies it may admit another.
	own bool
	// ask decides, for a caller that can wait as long as ctx lasts.
	ask func(ctx context.Context) (Result, error)
	// queue checks the call before it stands in line, and returns the least time in which
	// the limit admits so many units.
	queue func(units int) (time.Duration, error)
	// processes returns how many processes share the limit; nil is one without Redis.
	processes func() int

	res    Result
	denied int // how often
}

// wait waits in line until the cost is admitted, and then, out of the line, for its delay.
func (w *waiter) wait(lines *wait.Lines[lineOf], of lineOf) error {
	err := lines.Wait(of, w.n, critical.Is(w.ctx), w)
	if err == nil && w.res.Delay > 0 {
		err = w.sleep(w.res.Delay, nil)
	}
	return err
}

// Ask asks for a decision.
func (w *waiter) Ask() (a wait.Answer, err error) {
	if w.res, err = w.ask(wait.WithMostDelay(w.ctx, math.MaxInt64)); err != nil {
		return a, err
	}
	processes := 1
	if w.processes != nil && w.res.Source != SourceLocal {
		processes = w.processes()
	}
	over := w.spread(processes)
	if w.res.Allowed {
		a.Go = true
		if !w.own && w.res.Limit.kind != algo.LeakyBucketShaping { // in which who asks first starts first
			a.Room = min(w.res.Remaining, w.res.Limit.Burst()/processes-w.n)
		}
		if a.Room > 0 {
			a.After = over / 2 // in which others take their part
		}
		return a, nil
	}
	if err := w.fits(w.res.RetryAfter); err != nil {
		return a, err
	}
	if w.denied == 0 {
		over -= random.Below(over / 4)
	} else {
		over = random.Below(over / 2 >> min(w.denied-1, 3))
	}
	// Half of what the context leaves stays for the call itself.
	a.After = w.res.RetryAfter + min(over, max(0, w.left()-w.res.RetryAfter)/2)
	switch s := w.res.Source; {
	case w.processes == nil: // what changes here calls the line
	case s == SourceLocal || s == SourceClosed:
		a.InPlaceOfRedis()
	default:
		a.Least, a.After = a.After, min(a.After, maxPause)
	}
	w.denied++
	a.Own, a.Aside = w.own, w.res.BeyondClaim
	return a, nil
}

// spread returns the time over which the lines of several processes take turns, which were
// all denied until one moment: without it the nearest to Redis would take each unit. A line
// that was just served asks at the end of that time, and one that has lost asks the earlier
// the more often it has. It is the time in which the burst fills by a unit for each of the
// others, as far as there is a burst, so that none is lost; of a bucket to a quarter at least,
// because others may wait for more units at once than this one. For windows it is the time in which
// each process takes its part of the next one.
func (w *waiter) spread(processes int) time.Duration {
	if processes <= 1 {
		return 0
	}
	rate, n := w.res.Limit.Rate(), max(1, w.n)
	one := float64(rate.Per) / float64(rate.N) * float64(n)
	over := one / 4
	if others := min(processes, w.res.Limit.Burst()/n) - 1; others > 0 {
		if over = one * float64(others); !w.res.Limit.kind.Windowed() {
			over = max(over, one/float64(n)*float64(w.res.Limit.Burst())/4)
		}
	}
	return time.Duration(min(over, float64(maxSpread)))
}

// Queue returns an error for a call that need not stand in line.
func (w *waiter) Queue(ahead int, after time.Duration) error {
	least, err := w.queue(ahead + w.n)
	if err != nil {
		return err
	}
	return w.fits(after + least)
}

// Sleep waits for d, or until it is called.
func (w *waiter) Sleep(d time.Duration, called <-chan struct{}) error {
	if d > 0 {
		if err := w.fits(d); err != nil {
			return err
		}
	}
	return w.sleep(d, called)
}

// fits returns an error if the context ends in less than d.
func (w *waiter) fits(d time.Duration) error {
	if left := w.left(); left < d {
		return &WaitError{RetryAfter: d, Remaining: left}
	}
	return nil
}

// left is what the context leaves.
func (w *waiter) left() time.Duration {
	if deadline, ok := w.ctx.Deadline(); ok {
		return max(1, time.Until(deadline))
	}
	return math.MaxInt64
}

func (w *waiter) sleep(d time.Duration, called <-chan struct{}) error {
	var over <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
		return nil
	case <-called:
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	case <-w.closed:
		return ErrClosed
	}
}
