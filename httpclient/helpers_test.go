package httpclient_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/retry"
)

// reply is what a script answers.
type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

func status(code int, header ...string) reply {
	h := make(http.Header)
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return reply{status: code, header: h}
}

// script is a base that gives its replies in turn, the last one for ever.
type script struct {
	mu      sync.Mutex
	replies []reply
	at      []time.Time
	hosts   []string
}

func scripted(replies ...reply) *script { return &script{replies: replies} }

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
	s.mu.Lock()
	p := s.replies[min(len(s.at), len(s.replies)-1)]
	s.at = append(s.at, time.Now())
	s.hosts = append(s.hosts, r.URL.Host)
	s.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	return respond(r, p), nil
}

func respond(r *http.Request, p reply) *http.Response {
	h := p.header.Clone()
	if h == nil {
		h = make(http.Header)
	}
	return &http.Response{
		StatusCode: p.status, Header: h, Request: r, ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(strings.NewReader(p.body)), ContentLength: int64(len(p.body)),
	}
}

func (s *script) sent() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

func (s *script) wantSent(t *testing.T, n int) {
	t.Helper()
	if got := len(s.sent()); got != n {
		t.Fatalf("the base was called %d times, want %d", got, n)
	}
}

// gap is the time between attempts i and i+1, from 1.
func (s *script) gap(i int) time.Duration { return s.sent()[i].Sub(s.sent()[i-1]) }

// roundTripperFunc is a base in a function.
type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func get(t testing.TB, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func post(t testing.TB, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// respondsWith sends r and fails the test unless a response with the status
// comes.
func respondsWith(t testing.TB, rt http.RoundTripper, r *http.Request, want int) *http.Response {
	t.Helper()
	resp, err := rt.RoundTrip(r)
	if err != nil {
		t.Fatalf("error %v, want status %d", err, want)
	}
	resp.Body.Close()
	if resp.StatusCode != want {
		t.Fatalf("status %d, want %d", resp.StatusCode, want)
	}
	return resp
}

// failsFor sends r and fails the test unless it is not sent, for the reason.
func failsFor(t testing.TB, rt http.RoundTripper, r *http.Request, want retry.Reason) *httpclient.Error {
	t.Helper()
	resp, err := rt.RoundTrip(r)
	if err == nil {
		resp.Body.Close()
		t.Fatalf("status %d, want an error", resp.StatusCode)
	}
	e, ok := errors.AsType[*httpclient.Error](err)
	if !ok || e.Reason != want {
		t.Fatalf("error %v, want the reason %v", err, want)
	}
	return e
}

// coolsDown sends r and fails the test unless it is not sent because its key cools down, and
// a response with the status comes in place of the server's.
func coolsDown(t testing.TB, rt http.RoundTripper, r *http.Request, want int) *httpclient.Error {
	t.Helper()
	resp := respondsWith(t, rt, r, want)
	if got := resp.Header.Get("Holdfast-Not-Sent"); got != "cooling down" {
		t.Fatalf("not sent because of %q", got)
	}
	return gaveUpFor(t, resp, retry.CoolingDown)
}

// gaveUpFor fails the test unless the transport gave up on resp for the reason.
func gaveUpFor(t testing.TB, resp *http.Response, want retry.Reason) *httpclient.Error {
	t.Helper()
	e := httpclient.GaveUp(resp)
	if e == nil || e.Reason != want {
		t.Fatalf("gave up because of %v, want %v", e, want)
	}
	return e
}

func between(t testing.TB, what string, d, least, most time.Duration) {
	t.Helper()
	if d < least || d > most {
		t.Errorf("%s %v, want %v to %v", what, d, least, most)
	}
}

// strict is a throttle that rejects whatever it may reject after n failures.
func strict(n int) httpclient.Option {
	return httpclient.WithThrottle(retry.ThrottleSettings{MinRequests: n, Rand: zero})
}

func zero() float64 { return 0 }

const api = "http://api.test/v1/things"
