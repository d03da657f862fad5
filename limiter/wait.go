package limiter

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// decider is the way of a limiter to a decision.
type decider = func(ctx context.Context, s *spec, key string, n int, rc *receipt) (Result, error)

// wait asks until the cost is admitted, sleeping for exactly what each denial
// says, and never past ctx.
func wait(ctx context.Context, decide decider, closed <-chan struct{}, s *spec, key string, n int) (Result, error) {
	for {
		bounded := s
		left := time.Duration(-1)
		if deadline, ok := ctx.Deadline(); ok {
			left = time.Until(deadline)
			if s.args.Kind == algo.LeakyBucketShaping {
				// A place in the queue that comes too late must not be taken.
				bounded = s.withMaxDelay(max(1, left.Microseconds()))
			}
		}
		res, err := decide(ctx, bounded, key, n, nil)
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
