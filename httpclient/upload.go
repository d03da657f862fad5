package httpclient

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
)

// upload watches the bodies of one attempt, to tell what is the caller's fault
// from what is the host's: a transport returns a body's error like one of the
// connection, and the host may answer the broken request before it does.
// It is safe for concurrent use, as transports read bodies on goroutines of
// their own, also after they have returned.
type upload struct {
	failed  atomic.Bool // a body ended otherwise than by EOF at its declared length
	reading atomic.Bool // the transport waits for a body, or did when the attempt ended
}

// watched returns req with its bodies watched, and their upload; nil if it has
// none that can fail. One with a length and without a body has failed.
func watched(req *http.Request) (*http.Request, *upload) {
	switch {
	case req.Body == nil && req.ContentLength > 0: // net/http rejects it, and may return an error of the connection
		u := new(upload)
		u.failed.Store(true)
		return req, u
	case req.Body == nil || req.Body == http.NoBody || inMemory(req):
		return req, nil
	}
	u := new(upload)
	length := req.ContentLength
	if length == 0 {
		length = -1 // so net/http understands it when there is a body
	}
	r := req.WithContext(req.Context())
	r.Body = &uploadBody{ReadCloser: req.Body, u: u, ctx: req.Context(), declared: length}
	if req.GetBody != nil { // for retries of the base's own
		r.GetBody = func() (io.ReadCloser, error) {
			b, err := req.GetBody()
			if err != nil {
				u.failed.Store(true)
				return nil, err
			}
			return &uploadBody{ReadCloser: b, u: u, ctx: req.Context(), declared: length}, nil
		}
	}
	return r, u
}

// The types in which http.NewRequest wraps bytes and strings.
var (
	nopCloser         = reflect.TypeOf(io.NopCloser(nil))
	nopCloserWriterTo = reflect.TypeOf(io.NopCloser(new(bytes.Reader)))
)

// inMemory reports whether the request's body is in memory, of the declared
// length. Nothing can go wrong with it, and most requests with a body have such
// a one: they need not pay for being watched.
func inMemory(req *http.Request) bool {
	v := reflect.ValueOf(req.Body)
	if t := v.Type(); t != nopCloser && t != nopCloserWriterTo {
		return false
	}
	switch r := v.Field(0).Interface().(type) { // as net/http does
	case *bytes.Reader:
		return r != nil && int64(r.Len()) == req.ContentLength
	case *strings.Reader:
		return r != nil && int64(r.Len()) == req.ContentLength
	case *bytes.Buffer:
		return r != nil && int64(r.Len()) == req.ContentLength
	}
	return false
}

// broken reports whether a body failed.
func (u *upload) broken() bool { return u != nil && u.failed.Load() }

// stalled reports whether the attempt ended while the transport waited for the
// body: the host had nothing to answer yet.
func (u *upload) stalled() bool { return u != nil && u.reading.Load() }

// uploadBody is one of the bodies.
type uploadBody struct {
	io.ReadCloser
	u        *upload
	ctx      context.Context // the attempt's
	declared int64           // -1 is unknown
	n        int64           // read so far
	closed   atomic.Bool
}

// Read does not tell the end of a Read from that of the attempt by Close alone:
// net/http closes the body on HTTP/1.1 only after Read has returned.
func (b *uploadBody) Read(p []byte) (int, error) {
	b.u.reading.Store(true)
	n, err := b.ReadCloser.Read(p)
	if b.closed.Load() || b.ctx.Err() != nil { // an error may come from that
		return n, err
	}
	b.n += int64(n)
	if d := b.declared; d >= 0 && (b.n > d || b.n < d && err == io.EOF) { //nolint:errorlint // readers return it as it is
		err = fmt.Errorf("httpclient: ContentLength is %d, and %d bytes of the body were read", d, b.n)
	}
	if err != nil && err != io.EOF { //nolint:errorlint // the same
		b.u.failed.Store(true)
	}
	b.u.reading.Store(false)
	return n, err
}

func (b *uploadBody) Close() error {
	b.closed.Store(true)
	return b.ReadCloser.Close()
}
