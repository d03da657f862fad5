package retry

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/internal/wait"
)

// The defaults of [Policy].
const (
	DefaultAttempts = 3
	DefaultMaxWait  = 2 * time.Minute
)

// Policy says how often, and for how long, [Do] tries. The zero value is
// usable, and so is each zero field: it has its default. A Policy is a value,
// safe to share between calls.
type Policy struct {
	// Attempts is how often the function is called at most, by default 3; 1 is
	// without retries, negative is without a bound.
	Attempts int
	// MaxElapsed bounds the time from the first call of the function to the end
	// of the last wait. By default, 0, only the context does.
	MaxElapsed time.Duration
	// MaxWait is the longest wait that is begun, by default 2 minutes.
	MaxWait time.Duration
	// Backoff is the waits, where the error does not say (see [After]).
	Backoff Backoff
	// Budget bounds retries over all calls that share it. By default, nil,
	// nothing does: with more than a few callers, set one.
	Budget *Budget
	// RetryIf reports whether an error is worth another attempt. By default
	// every error is but those marked by [Permanent], for which it is not asked.
	RetryIf func(error) bool
	// OnRetry is called before each wait.
	OnRetry func(context.Context, RetryInfo)
}

// RetryInfo is one wait before another attempt.
type RetryInfo struct {
	Attempts int           // made so far
	Err      error         // of the last one
	Wait     time.Duration // until the next one; jitter included
}

// Validate returns nil, or an error that matches [ErrInvalidConfig].
func (p Policy) Validate() error {
	switch {
	case p.MaxElapsed < 0:
		return invalid("Policy.MaxElapsed", p.MaxElapsed, "must not be negative")
	case p.MaxWait < 0:
		return invalid("Policy.MaxWait", p.MaxWait, "must not be negative")
	}
	return p.Backoff.Validate()
}

// Do calls f until it returns nil, and then returns nil, or until the policy
// gives up, and then returns an [*Error]. f is given ctx. If ctx has ended
// before the first call f is not called. The error for a policy that is not
// valid matches [ErrInvalidConfig].
//
// Before each wait it is decided whether the wait fits: before the deadline of
// ctx, within MaxElapsed and MaxWait. One that does not is not begun.
func Do(ctx context.Context, p Policy, f func(context.Context) error) error {
	_, err := DoValue(ctx, p, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f(ctx)
	})
	return err
}

// DoValue is [Do] for a function with a result. With an error the result is
// that of the last attempt, or the zero value if there was none.
func DoValue[T any](ctx context.Context, p Policy, f func(context.Context) (T, error)) (T, error) {
	var v T
	if err := p.Validate(); err != nil {
		return v, err
	}
	p.Attempts = cmp.Or(p.Attempts, DefaultAttempts)
	p.MaxWait = cmp.Or(p.MaxWait, DefaultMaxWait)
	c := call{p: p, start: time.Now()}
	for {
		if err := ctx.Err(); err != nil {
			return v, c.giveUp(Canceled, 0, err)
		}
		var err error
		v, err = f(ctx)
		c.attempts++
		if err == nil {
			p.Budget.Deposit()
			return v, nil
		}
		if err := c.pause(ctx, err); err != nil {
			return v, err
		}
	}
}

// call is one call of Do.
type call struct {
	p        Policy
	start    time.Time
	attempts int
	err      error // of the last attempt
	waits    *Sequence
}

// bounds says what it means that a wait does not fit.
var bounds = [...]Reason{
	wait.Each: WaitTooLong, wait.Total: ElapsedSpent, wait.Deadline: DeadlineTooNear, wait.Budget: BudgetSpent,
}

// pause waits until the next attempt, or returns why there is none.
func (c *call) pause(ctx context.Context, err error) error {
	m := marksOf(err)
	c.err = m.err
	d, over := m.wait, m.wait/2
	switch {
	case ctx.Err() != nil:
		return c.giveUp(Canceled, 0, ctx.Err())
	case m.final || c.p.RetryIf != nil && !c.p.RetryIf(m.err):
		return c.giveUp(PermanentError, 0, nil)
	case c.p.Attempts > 0 && c.attempts >= c.p.Attempts:
		return c.giveUp(AttemptsSpent, d, nil)
	}
	if !m.asked {
		if c.waits == nil {
			c.waits = c.p.Backoff.Start()
		}
		d, over = c.waits.Next(), 0
	}
	allow := wait.Allowance{Each: c.p.MaxWait, Total: math.MaxInt64}
	if c.p.MaxElapsed > 0 {
		allow.Total = c.p.MaxElapsed - time.Since(c.start)
	}
	d, bound := allow.Next(ctx, d, over, c.p.Budget)
	if bound != 0 {
		return c.giveUp(bounds[bound], d, bound.Err())
	}
	if c.p.OnRetry != nil {
		c.p.OnRetry(ctx, RetryInfo{c.attempts, m.err, d})
	}
	if !allow.Sleep(ctx, d, nil, nil) {
		return c.giveUp(Canceled, 0, ctx.Err())
	}
	return nil
}

func (c *call) giveUp(r Reason, next time.Duration, ctxErr error) error {
	return &Error{Reason: r, Attempts: c.attempts, Elapsed: time.Since(c.start), Wait: next, Err: c.err, ctx: ctxErr}
}
