package httpclient

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"
)

// The bounds within which the body of a response that will be retried is read,
// so that its connection can be used again. Beyond them a new connection is
// cheaper.
const (
	drainBytes = 64 << 10
	drainTime  = 50 * time.Millisecond
)

// errCut stands in for the rest of a body that was slower than drainTime.
var errCut = errors.New("httpclient: the rest of the body was too slow to be kept")

// park takes a response out of the way until the next attempt. It reads the
// body into memory, which frees the connection for others during the wait, yet
// keeps the response whole: should the next attempt not be possible, this one
// is the caller's. A body larger than drainBytes stays open and unread beyond
// them; one slower than drainTime is cut there, which only a caller who gets it
// after all can notice.
//
// Nothing outlives it: the reading is done by this goroutine, and ended by a
// timer that closes the body.
func park(resp *http.Response) {
	body := resp.Body
	if body == nil || body == http.NoBody {
		resp.Body = http.NoBody
		return
	}
	cut := make(chan struct{})
	timer := time.AfterFunc(drainTime, func() {
		defer close(cut)
		body.Close() //nolint:errcheck // it is only to end the Read
	})
	var buf bytes.Buffer
	if n := resp.ContentLength; n > 0 && n <= drainBytes {
		buf.Grow(int(n) + bytes.MinRead)
	}
	// One byte more distinguishes a body that ends here from one that goes on.
	n, err := buf.ReadFrom(io.LimitReader(body, drainBytes+1))
	whole := err == nil && n <= drainBytes
	stopped := timer.Stop()
	if !stopped {
		<-cut
	}
	switch {
	case whole:
		err = io.EOF
	case !stopped:
		err = errCut
	case err == nil: // too large
		resp.Body = parked{io.MultiReader(&buf, body), body}
		return
	}
	if stopped {
		body.Close() //nolint:errcheck // nothing more is wanted of it
	}
	resp.Body = parked{io.MultiReader(&buf, failing{err}), io.NopCloser(nil)}
}

// parked is a body of which a part, or all, is in memory.
type parked struct {
	io.Reader
	io.Closer
}

// failing is a Reader that only fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
