package admission

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/retry"
)

// Stop says why a call is not sent, or not sent again.
type Stop struct {
	Reason retry.Reason
	// Wait is how long to wait before another try makes sense; 0 when that is not known.
	Wait time.Duration
	// Err is the cause, if there is one.
	Err error
	// Key is the key or scope that cools down or is limited; "" is not one of them.
	Key string
	// Said is what the server answered when it asked for the cooldown that is the reason.
	Said any
}

// CallerGone is the reason of a Stop because the caller has given up.
const CallerGone retry.Reason = 0

// Then says the reason, the wait until another try makes sense, in milliseconds, and the
// cause, if there is one. Of a wait that ends after the deadline it does not say that the
// deadline was exceeded: it is still to come.
func Then(r retry.Reason, wait time.Duration, err error) string {
	s := r.String()
	if wait > 0 {
		s += ", retry in " + max(wait, time.Millisecond).Round(time.Millisecond).String()
		if errors.Is(err, context.DeadlineExceeded) {
			s += ", which is after the deadline"
		}
		if err == context.DeadlineExceeded { //nolint:errorlint // a cause that wraps it says more
			return s
		}
	}
	if err != nil {
		s += ": " + err.Error()
	}
	return s
}

// Wait is a wait that fits.
type Wait struct {
	For    time.Duration // jitter included
	Why    retry.WaitReason
	Source string // what asked for it, when Why is retry.WaitServer
}
