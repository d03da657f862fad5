package roundtrippertest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/internal/roundtrippertest"
)

// roundTripperFunc is a wrapper in a function.
type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// ours returns a wrapper that passes.
func ours(t *testing.T, base http.RoundTripper, opts ...httpclient.Option) http.RoundTripper {
	t.Helper()
	opts = append(opts, httpclient.WithLogger(slog.New(slog.DiscardHandler)))
	rt, err := httpclient.New(base, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// outside puts a bug around a wrapper that passes.
func outside(bug func(rt http.RoundTripper, r *http.Request) (*http.Response, error)) roundtrippertest.Make {
	return func(t *testing.T, base http.RoundTripper) http.RoundTripper {
		rt := ours(t, base)
		return roundTripperFunc(func(r *http.Request) (*http.Response, error) { return bug(rt, r) })
	}
}

// inside puts a bug between a wrapper that passes and its base.
func inside(bug func(base http.RoundTripper, r *http.Request) (*http.Response, error)) roundtrippertest.Make {
	return func(t *testing.T, base http.RoundTripper) http.RoundTripper {
		return ours(t, roundTripperFunc(func(r *http.Request) (*http.Response, error) { return bug(base, r) }))
	}
}

func configured(opts ...httpclient.Option) roundtrippertest.Make {
	return func(t *testing.T, base http.RoundTripper) http.RoundTripper { return ours(t, base, opts...) }
}

// noClose is a body that a wrapper forgets to close.
type noClose struct{ io.Reader }

func (noClose) Close() error { return nil }

// wrong has wrappers with one bug each, most of them seen in the wild, under the
// name of the case that must find it.
var wrong = map[string]roundtrippertest.Make{
	"the request is not modified": outside(func(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
		r.Header.Set("User-Agent", "mine")
		return rt.RoundTrip(r)
	}),
	"a sent body is closed": inside(func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		if r.Body != nil {
			r.Body = noClose{r.Body}
		}
		return base.RoundTrip(r)
	}),
	"an unsent body is closed": outside(func(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		return rt.RoundTrip(r)
	}),
	"GetBody is for the second attempt": outside(func(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
		if r.GetBody != nil {
			b, _ := r.GetBody()
			b.Close()
		}
		return rt.RoundTrip(r)
	}),
	"a body without GetBody is sent once": configured(httpclient.WithBodyBuffer(1 << 20)),
	"a body that fails to replay": outside(func(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		get := r.GetBody
		r.GetBody = func() (io.ReadCloser, error) {
			if b, err := get(); err == nil {
				return b, nil
			}
			return http.NoBody, nil
		}
		return rt.RoundTrip(r)
	}),
	"NoBody is replayed": outside(func(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(r.Body)
		return rt.RoundTrip(r)
	}),
	"ContentLength is kept": inside(func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.ContentLength = -1
		return base.RoundTrip(r)
	}),
	"a response means a nil error": outside(func(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
		resp, err := rt.RoundTrip(r)
		if err == nil && resp.StatusCode >= 500 {
			return resp, errors.New("giving up")
		}
		return resp, err
	}),
	"the last response is whole": outside(func(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
		resp, err := rt.RoundTrip(r)
		if err == nil && resp.StatusCode >= 500 {
			io.Copy(io.Discard, resp.Body)
		}
		return resp, err
	}),
	"a large last response is whole": outside(func(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
		resp, err := rt.RoundTrip(r)
		if err == nil {
			resp.Body = struct {
				io.Reader
				io.Closer
			}{io.LimitReader(resp.Body, 64<<10), resp.Body}
		}
		return resp, err
	}),
	"dropped responses are closed": inside(func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		if err == nil {
			resp.Body = noClose{resp.Body}
		}
		return resp, err
	}),
	"redirects are not followed": outside(func(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
		return (&http.Client{Transport: rt}).Do(r)
	}),
	"a success is not delayed": outside(func(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
		resp, err := rt.RoundTrip(r)
		time.Sleep(time.Second)
		return resp, err
	}),
	"a POST is not retried on 500": outside(func(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
		return rt.RoundTrip(r.WithContext(httpclient.WithCall(r.Context(), httpclient.Call{Idempotent: true})))
	}),
	"a POST is retried on 429": configured(httpclient.WithAttempts(1)),
	"errors of a GET are retried": inside(func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		if err != nil {
			return nil, context.Canceled
		}
		return resp, nil
	}),
	"certificate errors are not retried": inside(func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		if err != nil {
			return nil, errors.New("something with a certificate")
		}
		return resp, nil
	}),
	"the last error is returned": outside(func(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
		resp, err := rt.RoundTrip(r)
		if err != nil {
			return nil, fmt.Errorf("giving up: %v", err)
		}
		return resp, nil
	}),
	"Retry-After as a date": inside(func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		if err == nil && strings.Contains(resp.Header.Get("Retry-After"), ":") {
			resp.Header.Del("Retry-After")
		}
		return resp, err
	}),
	"Retry-After beyond the cap": configured(httpclient.WithMaxWait(time.Hour), httpclient.WithMaxTotalWait(24*time.Hour)),
	"Retry-After that overflows": outside(func(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
		resp, err := rt.RoundTrip(r.WithContext(httpclient.WithCall(r.Context(), httpclient.Call{Attempts: 1})))
		if err == nil && resp.StatusCode == 429 {
			resp.Body.Close()
			return rt.RoundTrip(r.WithContext(httpclient.WithCall(r.Context(), httpclient.Call{Key: "other"})))
		}
		return resp, err
	}),
	"a wait beyond the deadline is not begun": outside(func(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
		return rt.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
	}),
	"cancelling ends a wait": outside(func(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
		return rt.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
	}),
	"Request.Cancel ends a wait": outside(func(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Cancel = nil //nolint:staticcheck // that is the bug
		return rt.RoundTrip(r)
	}),
	"connections are reused": inside(func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		if err == nil && resp.StatusCode != 200 {
			resp.Body.Close() // without reading it
			resp.Body = http.NoBody
		}
		return resp, err
	}),
	"nothing is left of 1000 calls": outside(func(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
		time.AfterFunc(24*365*time.Hour, func() {})
		go time.Sleep(time.Hour)
		return rt.RoundTrip(r)
	}),
	"trailers are kept": inside(func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		return base.RoundTrip(r.Clone(r.Context())) // which copies them too soon
	}),
	"idle connections can be closed": outside(func(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
		return rt.RoundTrip(r)
	}),
	"101 is writable": outside(func(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
		resp, err := rt.RoundTrip(r)
		if err == nil {
			resp.Body = struct{ io.ReadCloser }{resp.Body}
		}
		return resp, err
	}),
}

const wrongEnv = "ROUNDTRIPPERTEST_WRONG"

// TestDefectiveWrapper is run by TestSuiteFindsBugs, in a process of its own.
func TestDefectiveWrapper(t *testing.T) {
	name := os.Getenv(wrongEnv)
	if name == "" {
		t.Skip("run by TestSuiteFindsBugs")
	}
	roundtrippertest.Run(t, wrong[name])
}

func TestSuiteFindsBugs(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name := range wrong {
		t.Run(name, func(t *testing.T) {
			pattern := strings.ReplaceAll(name, " ", "_")
			cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestDefectiveWrapper$/^"+pattern+"$", "-test.v", "-test.timeout=30s")
			cmd.Env = append(os.Environ(), wrongEnv+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Errorf("the suite did not find it:\n%s", out)
			}
			if !strings.Contains(string(out), "=== RUN   TestDefectiveWrapper/"+pattern) {
				t.Errorf("the case did not run:\n%s", out)
			}
		})
	}
}

func TestSuitePassesOurs(t *testing.T) {
	roundtrippertest.Run(t, configured())
}

func TestNames(t *testing.T) {
	names := make(map[string]bool)
	for _, name := range roundtrippertest.Names() {
		if names[name] {
			t.Errorf("two cases are named %q", name)
		}
		names[name] = true
	}
	for name := range wrong {
		if !names[name] {
			t.Errorf("there is no case %q", name)
		}
	}
}
