package httpclient

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// allowance is how long one call may still wait. Every sleep of a call goes
// through it, so that its bounds hold whatever servers and limiters say.
type allowance struct {
	each   time.Duration // the longest single wait
	total  time.Duration // the longest sum of waits
	waited time.Duration // so far
}

// fits reports whether a wait of d is within the bounds and ends before the
// deadline of ctx. most is the longest wait that would. The error is
// context.DeadlineExceeded when it is the deadline that forbids it.
func (a *allowance) fits(ctx context.Context, d time.Duration) (most time.Duration, ok bool, err error) {
	most = min(a.each, a.total-a.waited)
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

// sleep waits for d, or until the caller gives up; then it returns the error
// that says so at once.
func (a *allowance) sleep(req *http.Request, d time.Duration) error {
	if err := gone(req); err != nil {
		return err
	}
	if d <= 0 {
		return nil
	}
	a.waited += d
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-req.Context().Done():
	case <-req.Cancel: //nolint:staticcheck // it is how Client.Timeout reaches a RoundTripper
	}
	return gone(req)
}

// gone returns the error of a caller who has given up, by the request's context
// or its Cancel channel; else nil. It matches context.Canceled or
// context.DeadlineExceeded, and the context's cause.
func gone(req *http.Request) error {
	ctx := req.Context()
	if err := ctx.Err(); err != nil {
		if cause := context.Cause(ctx); cause != err { //nolint:errorlint // identity is meant
			return fmt.Errorf("httpclient: %w: %w", err, cause)
		}
		return err
	}
	select {
	case <-req.Cancel: //nolint:staticcheck // see sleep
		return fmt.Errorf("httpclient: request canceled: %w", context.Canceled)
	default:
		return nil
	}
}
