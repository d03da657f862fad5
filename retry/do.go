package retry

import (
	"context"
	"time"
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
	// OnRetry is called before each wait with how many attempts were made, the
	// last error, and how long the wait will be.
	OnRetry func(attempts int, err error, wait time.Duration)
}

// Validate returns nil, or a [*ConfigError] that names the field, its value and
// the rule that it breaks.
func (p Policy) Validate() error {
	switch {
	case p.MaxElapsed < 0:
		return &ConfigError{"Policy.MaxElapsed", p.MaxElapsed, "must not be negative"}
	case p.MaxWait < 0:
		return &ConfigError{"Policy.MaxWait", p.MaxWait, "must not be negative"}
	}
	return p.Backoff.Validate()
}

// Do calls f until it returns nil, and then returns nil, or until the policy
// gives up, and then returns an [*Error]. f is given ctx. If ctx has ended
// before the first call f is not called. The error for a policy that is not
// valid is a [*ConfigError].
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
	def(&p.Attempts, DefaultAttempts)
	def(&p.MaxWait, DefaultMaxWait)
	c := call{p: p, start: time.Now()}
	for {
		if err := ctx.Err(); err != nil {
			return v, c.giveUp(Canceled, 0, err)
		}
		var err error
		v, err = f(ctx)
		c.attempts++
		if err == nil {
			if p.Budget != nil {
				p.Budget.Deposit()
			}
			return v, nil
		}
		wait, e := c.next(ctx, err)
		if e != nil {
			return v, e
		}
		if err := sleep(ctx, wait); err != nil {
			return v, c.giveUp(Canceled, 0, err)
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

// next returns the wait before the next attempt, or why there is none. The
// budget is asked last, so that it is spent only on retries that are made.
func (c *call) next(ctx context.Context, err error) (time.Duration, error) {
	m := marksOf(err)
	c.err = m.err
	d := m.wait
	switch {
	case ctx.Err() != nil:
		return 0, c.giveUp(Canceled, 0, ctx.Err())
	case m.final || c.p.RetryIf != nil && !c.p.RetryIf(m.err):
		return 0, c.giveUp(PermanentError, 0, nil)
	case c.p.Attempts > 0 && c.attempts >= c.p.Attempts:
		return 0, c.giveUp(AttemptsSpent, d, nil)
	}
	if !m.asked {
		if c.waits == nil {
			c.waits = c.p.Backoff.Start()
		}
		d = c.waits.Next()
	}
	most := c.p.MaxWait
	if d > most {
		return 0, c.giveUp(WaitTooLong, d, nil)
	}
	if c.p.MaxElapsed > 0 {
		if most = min(most, c.p.MaxElapsed-time.Since(c.start)); d > most {
			return 0, c.giveUp(ElapsedSpent, d, nil)
		}
	}
	if deadline, ok := ctx.Deadline(); ok {
		// A wait that ends at the very deadline leaves no time to try.
		if most = min(most, time.Until(deadline)-1); d > most {
			return 0, c.giveUp(DeadlineTooNear, d, context.DeadlineExceeded)
		}
	}
	if c.p.Budget != nil && !c.p.Budget.Withdraw() {
		return 0, c.giveUp(BudgetSpent, d, nil)
	}
	if m.asked {
		d = Spread(d, d/2, most)
	}
	if c.p.OnRetry != nil {
		c.p.OnRetry(c.attempts, m.err, d)
	}
	return d, nil
}

func (c *call) giveUp(r Reason, wait time.Duration, ctxErr error) error {
	return &Error{Reason: r, Attempts: c.attempts, Elapsed: time.Since(c.start), Wait: wait, Err: c.err, ctx: ctxErr}
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
