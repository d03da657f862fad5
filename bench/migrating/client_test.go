package migrating

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/retry"
)

// server answers every request alike, and counts them.
type server struct {
	status int
	header http.Header
	bodies []string
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = string(b)
		r.Body.Close()
	}
	s.bodies = append(s.bodies, body)
	h := s.header.Clone()
	if h == nil {
		h = http.Header{}
	}
	return &http.Response{
		StatusCode: s.status, Status: http.StatusText(s.status), Header: h, Request: r,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: io.NopCloser(strings.NewReader("why")), ContentLength: 3,
	}, nil
}

// retryable is go-retryablehttp as it comes, but for the log.
func retryable(base http.RoundTripper) *http.Client {
	c := retryablehttp.NewClient()
	c.Logger, c.HTTPClient = nil, &http.Client{Transport: base}
	return c.StandardClient()
}

// alike is Holdfast with the attempts and waits of go-retryablehttp.
func alike(t *testing.T, base http.RoundTripper, opts ...httpclient.Option) *http.Client {
	t.Helper()
	tr, err := httpclient.New(base, append([]httpclient.Option{
		httpclient.WithAttempts(5),
		httpclient.WithBackoff(retry.Backoff{Initial: time.Second, Max: 30 * time.Second, Jitter: retry.JitterNone}),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: tr}
}

// TestClients: what is tried how often, for how long, and what is returned then.
func TestClients(t *testing.T) {
	const post, get = http.MethodPost, http.MethodGet
	for name, test := range map[string]struct {
		method        string
		status        int
		header        http.Header
		before, after int // attempts
		was, is       time.Duration
		reason        retry.Reason // after; 0: the server's answer is final
	}{
		"GET, 500":                  {method: get, status: 500, before: 5, after: 5, was: 15 * time.Second, is: 15 * time.Second, reason: retry.AttemptsSpent},
		"POST, 500":                 {method: post, status: 500, before: 5, after: 1, was: 15 * time.Second, reason: retry.NotIdempotent},
		"POST, 503":                 {method: post, status: 503, before: 5, after: 1, was: 15 * time.Second, reason: retry.NotIdempotent},
		"POST, 503, Retry-After":    {method: post, status: 503, header: http.Header{"Retry-After": {"7"}}, before: 5, after: 5, was: 28 * time.Second, is: 28 * time.Second, reason: retry.AttemptsSpent},
		"POST, 429, Retry-After":    {method: post, status: 429, header: http.Header{"Retry-After": {"7"}}, before: 5, after: 5, was: 28 * time.Second, is: 28 * time.Second, reason: retry.AttemptsSpent},
		"GET, 429, Retry-After: 1h": {method: get, status: 429, header: http.Header{"Retry-After": {"3600"}}, before: 5, after: 1, was: 4 * time.Hour, reason: retry.WaitTooLong},
		"GET, 408":                  {method: get, status: 408, before: 1, after: 5, is: 15 * time.Second, reason: retry.AttemptsSpent},
		"GET, 501":                  {method: get, status: 501, before: 1, after: 1},
		"GET, 520":                  {method: get, status: 520, before: 5, after: 5, was: 15 * time.Second, is: 15 * time.Second, reason: retry.AttemptsSpent},
		"GET, 525":                  {method: get, status: 525, before: 5, after: 1, was: 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				send := func(c *http.Client, s *server) (*http.Response, time.Duration, error) {
					start := time.Now()
					req, err := http.NewRequest(test.method, "http://api.test/", strings.NewReader("what"))
					if err != nil {
						t.Fatal(err)
					}
					resp, err := c.Do(req)
					return resp, time.Since(start), err
				}
				s := &server{status: test.status, header: test.header}
				resp, took, err := send(retryable(s), s)
				if len(s.bodies) != test.before || took != test.was || strings.Join(s.bodies, "") != strings.Repeat("what", test.before) {
					t.Errorf("before: %q in %v", s.bodies, took)
				}
				if gaveUp := test.before > 1; gaveUp != (err != nil) || gaveUp && (resp != nil || !strings.Contains(err.Error(), "giving up after 5 attempt(s)")) {
					t.Errorf("before: %v, %v", resp, err)
				}

				s = &server{status: test.status, header: test.header}
				resp, took, err = send(alike(t, s), s)
				if err != nil {
					t.Fatal(err)
				}
				// What a server asks for is lengthened by up to half at random.
				if len(s.bodies) != test.after || took < test.is || took > test.is*3/2 || strings.Join(s.bodies, "") != strings.Repeat("what", test.after) {
					t.Errorf("after: %q in %v", s.bodies, took)
				}
				body, err := io.ReadAll(resp.Body)
				if err != nil || string(body) != "why" || resp.StatusCode != test.status {
					t.Errorf("after: %d %q, %v", resp.StatusCode, body, err)
				}
				var reason retry.Reason
				if e := httpclient.GaveUp(resp); e != nil {
					reason = e.Reason
				}
				if reason != test.reason {
					t.Errorf("after: %v, want %v", reason, test.reason)
				}
			})
		})
	}
}

// TestIdempotent: a POST that says that it may be repeated is.
func TestIdempotent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, mark := range map[string]func(*http.Request) *http.Request{
			"header": func(r *http.Request) *http.Request { r.Header.Set("Idempotency-Key", "1"); return r },
			"call": func(r *http.Request) *http.Request {
				return r.WithContext(httpclient.WithCall(r.Context(), httpclient.Call{Idempotent: true}))
			},
		} {
			s := &server{status: 500}
			req, err := http.NewRequest(http.MethodPost, "http://api.test/", strings.NewReader("what"))
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := alike(t, s).Do(mark(req)); err != nil || resp.StatusCode != 500 || len(s.bodies) != 5 {
				t.Errorf("%s: %d attempts, %v", name, len(s.bodies), err)
			}
		}
	})
}

// TestDeadline: one sleeps until the deadline, the other returns what it has.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		get := func(c *http.Client) (*http.Response, time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			start := time.Now()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := c.Do(req)
			return resp, time.Since(start), err
		}
		s := &server{status: 429, header: http.Header{"Retry-After": {"7"}}}
		if _, took, err := get(retryable(s)); took != 5*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before: %v after %v", err, took)
		}
		resp, took, err := get(alike(t, s))
		if err != nil || took != 0 || resp.StatusCode != 429 {
			t.Fatalf("after: %v after %v", err, took)
		}
		if e := httpclient.GaveUp(resp); e == nil || e.Reason != retry.WaitTooLong || e.Wait != 7*time.Second {
			t.Errorf("after: %v", e)
		}
	})
}

// TestBodies: a body that can be read only once is read into memory before, and after
// only where that is asked for, up to a size.
func TestBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			client   func(*server) *http.Client
			attempts int
		}{
			"before":      {func(s *server) *http.Client { return retryable(s) }, 5},
			"after":       {func(s *server) *http.Client { return alike(t, s) }, 1},
			"with buffer": {func(s *server) *http.Client { return alike(t, s, httpclient.WithBodyBuffer(4)) }, 5},
			"beyond it":   {func(s *server) *http.Client { return alike(t, s, httpclient.WithBodyBuffer(3)) }, 1},
		} {
			s := &server{status: 500}
			req, err := http.NewRequest(http.MethodPut, "http://api.test/", io.MultiReader(strings.NewReader("what")))
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := test.client(s).Do(req); err == nil {
				resp.Body.Close()
			}
			if strings.Join(s.bodies, "") != strings.Repeat("what", test.attempts) {
				t.Errorf("%s: %q", name, s.bodies)
			}
		}
	})
}

// TestClassifier: as many statuses retried as before.
func TestClassifier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{status: 525}
		as := func(resp *http.Response, _ error) retry.Verdict {
			if resp != nil && resp.StatusCode >= 500 && resp.StatusCode != http.StatusNotImplemented {
				return retry.Failed
			}
			return retry.Default
		}
		resp, err := alike(t, s, httpclient.WithClassifier(as)).Get("http://api.test/")
		if err != nil || resp.StatusCode != 525 || len(s.bodies) != 5 {
			t.Errorf("%d attempts, %v", len(s.bodies), err)
		}
	})
}

// TestFailsafe: what docs/comparison.md says of failsafe-go.
func TestFailsafe(t *testing.T) {
	for _, whole := range []bool{false, true} {
		b := failsafehttp.NewRetryPolicyBuilder()
		if whole {
			b.ReturnLastFailure()
		}
		s := &server{status: 500}
		c := &http.Client{Transport: failsafehttp.NewRoundTripper(s, b.Build())}
		resp, err := c.Post("http://api.test/", "text/plain", strings.NewReader("what"))
		if len(s.bodies) != 3 || whole != (err == nil) || !whole && !errors.Is(err, retrypolicy.ErrExceeded) {
			t.Errorf("%d attempts, %v", len(s.bodies), err)
		}
		if resp != nil {
			resp.Body.Close()
		}
	}
}
