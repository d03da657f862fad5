package httpclient

import (
	"context"
	"io"
	"net/http"
	"time"
)

// headerTimeout is the error of an attempt whose response headers did not come
// in time. It is the attempt's, not the caller's: it does not match
// context.DeadlineExceeded, but is a timeout by the convention of package net.
type headerTimeout struct{ after time.Duration }

func (e *headerTimeout) Error() string {
	return "httpclient: no response headers within " + e.after.String()
}
func (e *headerTimeout) Timeout() bool   { return true }
func (e *headerTimeout) Temporary() bool { return true }

// sendWithin sends r by send and gives up unless the headers come within d. The
// body may take as long as it likes. The response's request is r, or one of the
// base's own, but none whose context ends with the attempt.
func sendWithin(send func(*http.Request) (*http.Response, error), r *http.Request, d time.Duration) (*http.Response, error) {
	late := &headerTimeout{d}
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(d, func() { cancel(late) })
	sent := r.WithContext(ctx)
	resp, err := send(sent)
	inTime := timer.Stop()
	if err != nil {
		if context.Cause(ctx) == late { //nolint:errorlint // identity is meant
			err = late
		}
		cancel(nil)
		return resp, err
	}
	if !inTime && resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
		// It came in the instant in which its context ended: the body is lost.
		if resp.Body != nil {
			resp.Body.Close() //nolint:errcheck // the timeout is the error to tell
		}
		cancel(nil)
		return nil, late
	}
	switch {
	case resp == nil || resp.Request == nil:
	case resp.Request == sent:
		resp.Request = r
	default:
		resp.Request = resp.Request.WithContext(context.WithoutCancel(resp.Request.Context()))
	}
	switch {
	case resp == nil || resp.Body == nil || resp.Body == http.NoBody:
		cancel(nil)
	case resp.StatusCode == http.StatusSwitchingProtocols:
		// A wrapped body would not be an io.Writer, and ending ctx might end the
		// connection. What stays registered goes with the request's context.
	default:
		resp.Body = &cancelling{resp.Body, cancel}
	}
	return resp, nil
}

// cancelling releases the context of an attempt when its body is done with.
type cancelling struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b *cancelling) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.cancel(nil)
	}
	return n, err
}

func (b *cancelling) Close() error {
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}
