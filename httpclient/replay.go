package httpclient

import (
	"bytes"
	"io"
	"net/http"
)

// replayable reports whether the request can be sent again: it has no body, or
// one that GetBody can make again.
func replayable(req *http.Request) bool {
	return req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
}

// again returns a clone of req with a body of its own, for another attempt. It
// is deep, so that whatever still works on the earlier attempt shares nothing
// with it but the trailers, which the caller may set while the body is read.
func again(req *http.Request) (*http.Request, error) {
	body := req.Body
	if body != nil && body != http.NoBody {
		var err error
		if body, err = req.GetBody(); err != nil {
			return nil, err
		}
	}
	r := req.Clone(req.Context())
	r.Body = body
	r.Trailer = req.Trailer
	return r, nil
}

// buffered returns req with its body in memory, replayable, if the body is not
// replayable and at most max bytes long. A longer one is sent as it comes, once.
// It reads ahead, until the caller gives up. req itself is not changed; its body
// is closed on error and as soon as it was read to its end.
func buffered(req *http.Request, max int64) (*http.Request, error) {
	if replayable(req) || req.ContentLength > max {
		return req, nil
	}
	original := req.Body
	head, err := readAhead(req, max+1)
	if err != nil {
		return nil, err
	}
	r := req.WithContext(req.Context())
	if int64(len(head)) > max {
		r.Body = parked{io.MultiReader(bytes.NewReader(head), original), original}
		return r, nil
	}
	original.Close() //nolint:errcheck // it was read to its end
	r.GetBody = func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(head)), nil
	}
	r.Body, _ = r.GetBody()
	// Trailers, which may be set by now, can only follow chunks.
	if r.ContentLength <= 0 && len(r.Trailer) == 0 {
		r.ContentLength, r.TransferEncoding = int64(len(head)), nil
		if len(head) == 0 {
			r.Body, r.GetBody = http.NoBody, nil
		}
	}
	return r, nil
}

// readAhead reads up to n bytes of the request's body, and closes it on error.
// When the caller gives up it returns at once, as net/http does on HTTP/2: Close
// ends a Read that can be ended, and one that cannot ends when it does.
func readAhead(req *http.Request, n int64) ([]byte, error) {
	var head []byte
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		head, err = io.ReadAll(io.LimitReader(req.Body, n))
	}()
	select {
	case <-done:
		if err != nil {
			closeBody(req)
			return nil, err
		}
		return head, nil
	case <-req.Context().Done():
	case <-req.Cancel: //nolint:staticcheck // see gone
	}
	// It may wait for the Read, such as that of a server's request.
	go closeBody(req)
	return nil, gone(req)
}

// closeBody closes the body of a request that was not sent.
func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close() //nolint:errcheck // the error has no receiver
	}
}
