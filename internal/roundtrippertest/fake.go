package roundtrippertest

import (
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// step is what the fake server does with one request.
type step struct {
	status int
	header map[string]string
	body   string
	stream io.ReadCloser // instead of body
	err    error         // instead of a response
	hang   bool          // until the caller gives up
}

// fake is a base that keeps the contract of http.RoundTripper and does what its
// steps say, the last one again and again.
type fake struct {
	steps []step

	mu    sync.Mutex
	calls []seen
	open  int // bodies of responses
}

// seen is one request that arrived.
type seen struct {
	at     time.Time
	header http.Header
	body   string
	length int64
}

var errRefused = errors.New("dial tcp 192.0.2.1:443: connect: connection refused")

func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	text := ""
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return nil, err
		}
		text = string(b)
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	s := f.steps[min(len(f.calls), len(f.steps)-1)]
	f.calls = append(f.calls, seen{time.Now(), maps.Clone(r.Header), text, r.ContentLength})
	f.mu.Unlock()
	switch {
	case s.hang:
		select {
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		case <-r.Cancel: //nolint:staticcheck // a base must honour it
			return nil, errors.New("net/http: request canceled")
		}
	case s.err != nil:
		return nil, s.err
	}
	h := make(http.Header)
	for k, v := range s.header {
		h.Set(k, v)
	}
	rc := s.stream
	if rc == nil {
		rc = io.NopCloser(strings.NewReader(s.body))
	}
	f.mu.Lock()
	f.open++
	f.mu.Unlock()
	return &http.Response{
		StatusCode: s.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: &body{Reader: rc, close: sync.OnceValue(func() error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.open--
			return rc.Close()
		})}, ContentLength: -1, Request: r,
	}, nil
}

// body is a Reader with a function that closes it.
type body struct {
	io.Reader
	close func() error
}

func (b *body) Close() error { return b.close() }

// sent returns what has arrived so far.
func (f *fake) sent() []seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// wantSent fails the test unless n requests arrived.
func (f *fake) wantSent(t *testing.T, n int) {
	t.Helper()
	if got := len(f.sent()); got != n {
		t.Errorf("the base was called %d times, want %d", got, n)
	}
}

// wantClosed fails the test if a response's body is still open.
func (f *fake) wantClosed(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open != 0 {
		t.Errorf("%d bodies of responses were not closed", f.open)
	}
}

// replayBody makes bodies that can be sent again, and counts.
type replayBody struct {
	text string
	mu   sync.Mutex
	made int // by GetBody
	open int
	idle chan struct{} // closed when open is 0 again
}

func (b *replayBody) body() io.ReadCloser {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open++; b.open == 1 {
		b.idle = make(chan struct{})
	}
	return &body{Reader: strings.NewReader(b.text), close: sync.OnceValue(func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.open--; b.open == 0 {
			close(b.idle)
		}
		return nil
	})}
}

func (b *replayBody) getBody() (io.ReadCloser, error) {
	rc := b.body()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.made++
	return rc, nil
}

func (b *replayBody) wantClosed(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open != 0 {
		t.Errorf("%d bodies of the request were not closed", b.open)
	}
}

// willBeClosed is wantClosed for a base that closes bodies on a goroutine of its
// own, after RoundTrip has returned, as it may.
func (b *replayBody) willBeClosed(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	idle := b.idle
	b.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(10 * time.Second):
		b.wantClosed(t)
	}
}

// newRequest returns a request with a body, if there is one, that can be sent
// again.
func newRequest(t *testing.T, method, body string) (*http.Request, *replayBody) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://api.test/v1/things?q=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &replayBody{text: body}
	if body != "" {
		r.Body, r.GetBody, r.ContentLength = b.body(), b.getBody, int64(len(body))
	}
	return r, b
}

// do sends the request, which must give a response.
func do(t *testing.T, rt http.RoundTripper, r *http.Request) *http.Response {
	t.Helper()
	resp, err := rt.RoundTrip(r)
	if err != nil {
		t.Fatalf("error %v, want a response", err)
	}
	if resp == nil {
		t.Fatal("neither a response nor an error")
	}
	return resp
}

// finish reads the body to its end and closes it.
func finish(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("reading the response: %v", err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Errorf("closing the response: %v", err)
	}
	return string(b)
}

// fails sends the request, which must give an error.
func fails(t *testing.T, rt http.RoundTripper, r *http.Request) error {
	t.Helper()
	resp, err := rt.RoundTrip(r)
	if err == nil {
		resp.Body.Close()
		t.Fatalf("status %d, want an error", resp.StatusCode)
	}
	if resp != nil {
		t.Errorf("a response besides the error %v", err)
	}
	return err
}

func wantStatus(t *testing.T, resp *http.Response, want int) {
	t.Helper()
	if resp.StatusCode != want {
		t.Errorf("status %d, want %d", resp.StatusCode, want)
	}
}

// quiet is a logger for servers that are meant to meet errors.
func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// roundTripperFunc is a base in a function.
type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
