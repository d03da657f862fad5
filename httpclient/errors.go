package httpclient

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/admission"
	"github.com/holdfast-go/holdfast/retry"
)

// pkg is how errors name this package.
const pkg = "httpclient"

// Error says why a request was not sent, or not sent again. It is returned by
// [Transport.RoundTrip] only when there is no response, neither of an earlier attempt
// nor in place of one: see [WithCooldownErrors]. Otherwise the response is returned, and
// [GaveUp] finds the Error of it. Its fields must not be changed.
type Error struct {
	// Reason is why.
	Reason retry.Reason
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
	return "httpclient: " + strconv.Quote(e.Key) + ": " + admission.Then(e.Reason, e.Wait, e.Err)
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
