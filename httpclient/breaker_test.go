package httpclient_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/httpclient"
)

// send sends n requests, each once, whatever comes of them.
func send(t *testing.T, rt http.RoundTripper, n int) {
	t.Helper()
	for range n {
		if resp, err := rt.RoundTrip(once(get(t, api))); err == nil {
			resp.Body.Close()
		}
	}
}

func TestBreakerOpens(t *testing.T) {
	for name, p := range map[string]reply{"500": status(500), "503": status(503), "error": {err: errors.New("refused")}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := scripted(p)
				var changes []string
				rt := newTransport(t, s, httpclient.WithHooks(httpclient.Hooks{BreakerChange: func(c breaker.Change) {
					changes = append(changes, fmt.Sprint(c.Name, " ", c.To))
				}}))
				send(t, rt, 19)
				s.wantSent(t, 19)
				send(t, rt, 10)
				s.wantSent(t, 20)
				e := failsFor(t, rt, get(t, api), httpclient.BreakerOpen)
				if e.Key != "api.test" {
					t.Errorf("%+v", e)
				}
				between(t, "wait", e.Wait, 15*time.Second, 30*time.Second)
				respondsOther(t, rt, s)

				s.replies = []reply{status(200)}
				time.Sleep(e.Wait)
				respondsWith(t, rt, get(t, api), 200)
				respondsWith(t, rt, get(t, api), 200)
				want := []string{"api.test open", "api.test half-open", "api.test closed"}
				if fmt.Sprint(changes) != fmt.Sprint(want) {
					t.Errorf("changes %q, want %q", changes, want)
				}
			})
		})
	}
}

// respondsOther checks that another host is still asked.
func respondsOther(t *testing.T, rt http.RoundTripper, s *script) {
	t.Helper()
	n := len(s.sent())
	if resp, err := rt.RoundTrip(once(get(t, "http://other.test/"))); err == nil {
		resp.Body.Close()
	}
	s.wantSent(t, n+1)
}

func TestBreakerIgnores(t *testing.T) {
	cancelled := func(r *http.Request) (*http.Response, error) { return nil, context.Canceled }
	for name, base := range map[string]http.RoundTripper{
		"429":          scripted(status(429)),
		"404":          scripted(status(404)),
		"501":          scripted(status(501)),
		"certificate":  scripted(reply{err: x509.UnknownAuthorityError{}}),
		"verification": scripted(reply{err: &tls.CertificateVerificationError{Err: errors.New("revoked")}}),
		"scheme":       scripted(reply{err: errors.New(`unsupported protocol scheme "gopher"`)}),
		"cancel":       roundTripperFunc(cancelled),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := newTransport(t, base)
				send(t, rt, 100)
				resp, err := rt.RoundTrip(once(get(t, api)))
				if e, ok := errors.AsType[*httpclient.Error](err); ok {
					t.Errorf("it is refused: %v", e)
				}
				if err == nil {
					resp.Body.Close()
				}
			})
		})
	}
}

// hang is a base that never answers.
func hang(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestDeadlinesCountOnlyIfTheHostHadTheTime: a host that hangs is found out by
// callers' deadlines, but not by what a long wait has left of them.
func TestDeadlinesCountOnlyIfTheHostHadTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, deadline := range []time.Duration{time.Second, 5 * time.Second} {
			rt := newTransport(t, roundTripperFunc(hang))
			for range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				if _, err := rt.RoundTrip(get(t, api).WithContext(ctx)); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
				cancel()
			}
			failsFor(t, rt, get(t, api), httpclient.BreakerOpen)
		}
		n := 0
		rt := newTransport(t, roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			if n++; n%2 == 1 {
				return respond(r, status(429)), nil
			}
			return hang(r)
		}))
		for range 40 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			if _, err := rt.RoundTrip(get(t, api).WithContext(ctx)); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
			time.Sleep(time.Second)
		}
	})
}

// TestImpatientCallersAreNotTheHost: a host that answers in 30 ms is as healthy as
// before when some callers give it 5 ms.
func TestImpatientCallersAreNotTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newTransport(t, roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			select {
			case <-time.After(30 * time.Millisecond):
				return respond(r, status(200)), nil
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}))
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			if _, err := rt.RoundTrip(get(t, api).WithContext(ctx)); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
			impatient := http.Client{Transport: rt, Timeout: 5 * time.Millisecond}
			if _, err := impatient.Get(api); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
		respondsWith(t, rt, get(t, api), 200)
	})
}

func TestWithoutBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(500))
		send(t, newTransport(t, s, httpclient.WithoutBreaker()), 100)
		s.wantSent(t, 100)
	})
}

// TestBreakerOpensBetweenAttempts: the response before it is the caller's.
func TestBreakerOpensBetweenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(503))
		rt := newTransport(t, s, httpclient.WithBreaker(breaker.Settings{FailuresInRow: 1}))
		resp := respondsWith(t, rt, get(t, api), 503)
		gaveUpFor(t, resp, httpclient.BreakerOpen)
		s.wantSent(t, 1)

		s = scripted(reply{err: errors.New("reset")})
		rt = newTransport(t, s, httpclient.WithBreaker(breaker.Settings{FailuresInRow: 1}))
		if _, err := rt.RoundTrip(get(t, api)); err == nil || err.Error() != "reset" {
			t.Errorf("error %v, want that of the attempt", err)
		}
	})
}

// TestProbeThatIsNotSentIsGivenBack: a body that can't be made again must not
// keep others from being the probe.
func TestProbeThatIsNotSentIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(503, "Retry-After", "1"), status(200))
		rt := newTransport(t, s, httpclient.WithBreaker(breaker.Settings{
			FailuresInRow: 1, OpenMin: time.Millisecond, OpenMax: time.Millisecond,
		}))
		r := post(t, api, "x")
		r.GetBody = func() (io.ReadCloser, error) { return nil, io.ErrNoProgress }
		gaveUpFor(t, respondsWith(t, rt, r, 503), httpclient.ReplayFailed)
		respondsWith(t, rt, get(t, api), 200)
	})
}

func TestAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		var inner context.Context
		base := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			if calls++; calls == 1 {
				<-r.Context().Done()
				return nil, context.Cause(r.Context())
			}
			inner = r.Context()
			return respond(r, status(200)), nil
		})
		start := time.Now()
		resp, err := newTransport(t, base, httpclient.WithAttemptTimeout(time.Second)).RoundTrip(get(t, api))
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		between(t, "took", time.Since(start), time.Second, 1500*time.Millisecond)
		time.Sleep(time.Hour) // the body may take longer
		if err := inner.Err(); err != nil {
			t.Errorf("the context ended while the body was open: %v", err)
		}
		resp.Body.Close()
		if inner.Err() == nil {
			t.Error("the context outlives the body")
		}

		base = roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		})
		_, err = newTransport(t, base, httpclient.WithAttemptTimeout(time.Second)).RoundTrip(get(t, api))
		var timeout interface{ Timeout() bool }
		if !errors.As(err, &timeout) || !timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}

// TestAttemptTimeoutKeepsTheRequest: the response's request is the caller's; one of
// the base's own does not end with the attempt.
func TestAttemptTimeoutKeepsTheRequest(t *testing.T) {
	s, _ := backend(t, 1)
	type key struct{}
	for _, base := range []roundTripperFunc{
		s.Client().Transport.RoundTrip,
		func(r *http.Request) (*http.Response, error) { // as instrumentation does
			return s.Client().Transport.RoundTrip(r.Clone(context.WithValue(r.Context(), key{}, "span")))
		},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			r := get(t, s.URL)
			if r.Method = method; method == http.MethodPost {
				r.Body = io.NopCloser(strings.NewReader("abc"))
			}
			resp, err := newTransport(t, base, httpclient.WithAttemptTimeout(time.Minute)).RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if v := resp.Request.Context().Value(key{}); v == nil && resp.Request != r || v != nil && v != "span" {
				t.Errorf("%s: it is another request", method)
			}
			if err := resp.Request.Context().Err(); err != nil {
				t.Errorf("%s: its context ended: %v", method, err)
			}
		}
	}
}

// TestSlowCallsCount: the breaker is told how long attempts took.
func TestSlowCallsCount(t *testing.T) {
	for _, took := range []time.Duration{time.Second, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			base := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
				time.Sleep(took)
				return respond(r, status(200)), nil
			})
			rt := newTransport(t, base, httpclient.WithBreaker(breaker.Settings{SlowCall: 2 * time.Second}))
			send(t, rt, 20)
			if took < 2*time.Second {
				respondsWith(t, rt, get(t, api), 200)
				return
			}
			failsFor(t, rt, get(t, api), httpclient.BreakerOpen)
		})
	}
}
