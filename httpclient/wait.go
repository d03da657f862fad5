package httpclient

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// rest waits for d, or until the caller gives up; then it returns the error that
// says so at once.
func (x *exchange) rest(d time.Duration) error {
	if err := gone(x.orig); err != nil {
		return err
	}
	// Cancel is how Client.Timeout reaches a RoundTripper.
	if x.allow.Sleep(x.orig.Context(), d, x.orig.Cancel) { //nolint:staticcheck // see above
		return nil
	}
	return gone(x.orig)
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
	case <-req.Cancel: //nolint:staticcheck // see rest
		return fmt.Errorf("httpclient: request canceled: %w", context.Canceled)
	default:
		return nil
	}
}
