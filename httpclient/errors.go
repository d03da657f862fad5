package httpclient

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/admission"
)

// pkg is how errors name this package.
const pkg = "httpclient"

// Reason says why a request was not sent, or not sent again. The zero value is
// no reason.
type Reason uint8

const (
	// Throttled: the limiter, or adaptive pacing, admits the request only
	// after a wait that does not fit.
	Throttled Reason = Reason(admission.Throttled)
	// CoolingDown: the server asked for a pause that is not over, and waiting
	// for its end does not fit.
	CoolingDown Reason = Reason(admission.CoolingDown)
	// HostFailing: the host fails most of the time, and is sent only some of the
	// requests; see [WithThrottle].
	HostFailing Reason = Reason(admission.HostFailing)
	// LimiterFailed: the limiter returned an error; [Error.Unwrap] has it.
	LimiterFailed Reason = Reason(admission.LimiterFailed)
	// BudgetSpent: the retry budget allows no further retry now.
	BudgetSpent Reason = Reason(admission.BudgetSpent)
	// AttemptsSpent: every attempt was made.
	AttemptsSpent Reason = Reason(admission.AttemptsSpent)
	// WaitTooLong: the wait before the next attempt is longer than the cap,
	// than what is left of the sum of waits, than the time to the deadline, or than
	// the request's signature of AWS is valid.
	WaitTooLong Reason = Reason(admission.WaitTooLong)
	// NotIdempotent: repeating the request could do its work twice.
	NotIdempotent Reason = Reason(admission.NotIdempotent)
	// NotReplayable: the request's body can be read only once.
	NotReplayable Reason = Reason(admission.NotReplayable)
	// ReplayFailed: the request's GetBody failed; [Error.Unwrap] has its error.
	ReplayFailed Reason = Reason(admission.ReplayFailed)
	// OuterRetries: the layer above repeats the request by itself, as its headers say. A
	// retry here would multiply those.
	OuterRetries Reason = Reason(admission.OuterRetries)
)

// String returns the reason in lower-case words.
func (r Reason) String() string { return admission.Reason(r).String() }

// Error says why a request was not sent, or not sent again. It is returned by
// [Transport.RoundTrip] only when there is no response, neither of an earlier attempt
// nor in place of one: see [WithCooldownErrors]. Otherwise the response is returned, and
// [GaveUp] finds the Error of it. Its fields must not be changed.
type Error struct {
	// Reason is why.
	Reason Reason
	// Key is the key that was throttled or is cooling down, as in [CooldownInfo],
	// otherwise the host.
	Key string
	// Wait is how long to wait before another try makes sense; 0 when that is
	// not known.
	Wait time.Duration
	// Err is the cause, if there is one. It is context.DeadlineExceeded when
	// the wait did not fit before the deadline, and says so when the request's
	// signature would expire.
	Err error
}

// Error names the key, the reason and the wait.
func (e *Error) Error() string {
	return "httpclient: " + strconv.Quote(e.Key) + ": " + admission.Reason(e.Reason).Then(e.Wait, e.Err)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

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
	case <-req.Cancel: //nolint:staticcheck // Cancel is how Client.Timeout reaches a RoundTripper
		return fmt.Errorf("httpclient: request canceled: %w", context.Canceled)
	default:
		return nil
	}
}
