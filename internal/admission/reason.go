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

// Then says the reason, the wait until another try makes sense, and the cause, if there
// is one.
func Then(r retry.Reason, wait time.Duration, err error) string {
	s := r.String()
	if wait > 0 {
		s += ", retry in " + wait.String()
	}
	switch {
	case err == nil:
		return s
	case wait > 0 && errors.Is(err, context.DeadlineExceeded):
		s += ", after the deadline"
	}
	return s + ": " + err.Error()
}

// Wait is a wait that fits.
type Wait struct {
	For    time.Duration // jitter included
	Why    retry.WaitReason
	Source string // what asked for it, when Why is retry.WaitServer
}
