package limiter

import (
	"context"
	"time"
)

// waitFor asks until the cost is admitted, sleeping for exactly what each denial
// says, and never past ctx. ask gets how long the caller can wait, 0 for as long
// as it takes.
func waitFor(ctx context.Context, closed <-chan struct{}, ask func(most time.Duration) (Result, error)) (Result, error) {
	for {
		var left time.Duration
		if deadline, ok := ctx.Deadline(); ok {
			left = max(1, time.Until(deadline))
		}
		res, err := ask(left)
		if err != nil {
			return res, err
		}
		pause := res.Delay
		if !res.Allowed {
			pause = res.RetryAfter
			if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < pause {
				return res, &WaitError{RetryAfter: pause, Remaining: left}
			}
		}
		if err := sleep(ctx, pause, closed); err != nil {
			return res, err
		}
		if res.Allowed {
			return res, nil
		}
	}
}

func sleep(ctx context.Context, d time.Duration, closed <-chan struct{}) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-closed:
		return ErrClosed
	}
}
