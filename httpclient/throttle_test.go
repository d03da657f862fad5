package httpclient_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
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

func TestThrottles(t *testing.T) {
	for name, p := range map[string]reply{"500": status(500), "503": status(503), "error": {err: errors.New("refused")}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := scripted(p)
				var changes []string
				rt := newTransport(t, s, strict(20), httpclient.WithHooks(httpclient.Hooks{ThrottleChange: func(_ context.Context, c retry.ThrottleChange) {
					changes = append(changes, fmt.Sprint(c.Name, " ", c.Throttling))
				}}))
				send(t, rt, 19)
				s.wantSent(t, 19)
				send(t, rt, 10)
				s.wantSent(t, 20)
				time.Sleep(time.Minute)
				e := failsFor(t, rt, get(t, api), retry.HostFailing)
				if e.Key != "api.test" || e.Wait != 3*time.Second {
					t.Errorf("%+v", e)
				}
				respondsOther(t, rt, s)

				s.replies = []reply{status(200)}
				time.Sleep(time.Minute + time.Second)
				respondsWith(t, rt, get(t, api), 200)
				respondsWith(t, rt, get(t, api), 200)
				if got, want := fmt.Sprint(changes), "[api.test true api.test false]"; got != want {
					t.Errorf("changes %s, want %s", got, want)
				}
			})
		})
	}
}

// TestDeliveries: a host that fails half of the time gets as much done as without
// the throttle.
func TestDeliveries(t *testing.T) {
	for name, works := range map[string]func(n int, rnd float64) bool{
		"every second request fails": func(n int, _ float64) bool { return n%2 == 0 },
		"half of them, at random":    func(_ int, rnd float64) bool { return rnd < 0.5 },
	} {
		for _, together := range []int{1, 10, 150} {
			for _, retried := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %d at once, retried %v", name, together, retried), func(t *testing.T) {
					draws := rand.New(rand.NewPCG(7, 8))
					var mu sync.Mutex
					draw := func() float64 {
						mu.Lock()
						defer mu.Unlock()
						return draws.Float64()
					}
					with, rejected := deliver(t, works, together, retried, httpclient.WithThrottle(retry.ThrottleSettings{Rand: draw}))
					without, _ := deliver(t, works, together, retried, httpclient.WithoutThrottle())
					t.Logf("%d of 150 with the throttle, which rejected %d attempts, %d without", with, rejected, without)
					// Which retries the budget pays for is a matter of chance.
					if rejected > 5 || !retried && with < without-5 {
						t.Errorf("%d of 150 are delivered and %d attempts rejected, %d without the throttle", with, rejected, without)
					}
				})
			}
		}
	}
}

// deliver sends 150 requests, some together, to a host that works as works says,
// and returns how many it did, and how many attempts the throttle rejected.
func deliver(t *testing.T, works func(n int, rnd float64) bool, together int, retried bool, o httpclient.Option) (done, rejected int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		n, rnd := 0, rand.New(rand.NewPCG(3, 4))
		var keys atomic.Int64
		rt := newTransport(t, roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			if n++; works(n, rnd.Float64()) {
				return respond(r, status(200)), nil
			}
			return respond(r, status(500)), nil
		}), o, httpclient.WithHooks(httpclient.Hooks{GiveUp: func(_ context.Context, g httpclient.GiveUpInfo) {
			e := g.Error
			mu.Lock()
			defer mu.Unlock()
			if e.Reason == retry.HostFailing {
				rejected++
			}
		}}))
		var wg sync.WaitGroup
		for range together {
			wg.Go(func() {
				for range 150 / together {
					r := post(t, api, "x")
					if retried {
						r.Header.Set("Idempotency-Key", fmt.Sprint(keys.Add(1)))
					}
					resp, err := rt.RoundTrip(r)
					mu.Lock()
					if err == nil && resp.StatusCode == 200 {
						done++
					}
					mu.Unlock()
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		wg.Wait()
	})
	return done, rejected
}

// TestCriticalIsThrottledLast: when four of five attempts fail all that is critical
// is still sent, and of the rest a part.
func TestCriticalIsThrottledLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, draws := 0, rand.New(rand.NewPCG(5, 6))
		rt := newTransport(t, roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			if n++; n%5 == 0 {
				return respond(r, status(200)), nil
			}
			return respond(r, status(500)), nil
		}), httpclient.WithThrottle(retry.ThrottleSettings{Rand: draws.Float64}))
		rejected := map[bool]int{}
		for i := range 2000 {
			r, critical := once(get(t, api)), i%2 == 0
			if critical {
				r = r.WithContext(limiter.Critical(r.Context()))
			}
			if resp, err := rt.RoundTrip(r); err == nil {
				resp.Body.Close()
			} else {
				rejected[critical]++
			}
		}
		if n := rejected[true]; n != 0 {
			t.Errorf("%d of 1,000 critical requests were rejected", n)
		}
		if n := rejected[false]; n < 300 || n > 500 { // 1 - 3/5 of them
			t.Errorf("%d of 1,000 others were rejected, want about 400", n)
		}
	})
}

// TestOneDrawPerAttempt: though the throttle is asked before the limiter and after.
func TestOneDrawPerAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		draws := 0
		rt := newTransport(t, scripted(status(500)), httpclient.WithLimiter(newLocal(t, limiter.TokenBucket(limiter.PerSecond(1000), 1000))),
			httpclient.WithThrottle(retry.ThrottleSettings{Rand: func() float64 { draws++; return 0.999 }}))
		send(t, rt, 30)
		if draws != 10 {
			t.Errorf("%d draws for 10 attempts that may be rejected", draws)
		}
	})
}

// TestHostThatFailsDuringTheWait: who waits for the limiter meanwhile is not sent.
func TestHostThatFailsDuringTheWait(t *testing.T) {
	for _, limit := range []limiter.Limit{
		limiter.TokenBucket(limiter.PerSecond(1), 2),         // the others stand in line
		limiter.LeakyBucketShaping(limiter.PerSecond(1), 10), // each has a turn of its own
	} {
		synctest.Test(t, func(t *testing.T) {
			s := scripted(status(500))
			rt := newTransport(t, roundTripperFunc(func(r *http.Request) (*http.Response, error) {
				time.Sleep(100 * time.Millisecond) // all others come to the limiter
				return s.RoundTrip(r)
			}), httpclient.WithLimiter(newLocal(t, limit)), strict(2))
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					if resp, err := rt.RoundTrip(once(get(t, api))); err == nil {
						resp.Body.Close()
					}
				})
			}
			wg.Wait()
			s.wantSent(t, 2)
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

func TestThrottleIgnores(t *testing.T) {
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
				rt := newTransport(t, base, strict(1))
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

// TestShortDeadlinesAreNotEvidence: a host that hangs is found out by
// callers' deadlines, but not by what a long wait has left of them.
func TestShortDeadlinesAreNotEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, deadline := range []time.Duration{time.Second, 5 * time.Second} {
			rt := newTransport(t, roundTripperFunc(hang), strict(20))
			for range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				if _, err := rt.RoundTrip(get(t, api).WithContext(ctx)); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
				cancel()
			}
			failsFor(t, rt, get(t, api), retry.HostFailing)
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

// TestShortTimeoutsAreNotEvidence: a host that answers in 30 ms is as healthy as
// before when some callers give it 5 ms.
func TestShortTimeoutsAreNotEvidence(t *testing.T) {
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

func TestWithoutThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(500))
		send(t, newTransport(t, s, httpclient.WithoutThrottle()), 100)
		s.wantSent(t, 100)
	})
}

// TestThrottledBetweenAttempts: the response before it is the caller's.
func TestThrottledBetweenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(503))
		rt := newTransport(t, s, strict(1))
		resp := respondsWith(t, rt, get(t, api), 503)
		gaveUpFor(t, resp, retry.HostFailing)
		s.wantSent(t, 1)

		s = scripted(reply{err: errors.New("reset")})
		rt = newTransport(t, s, strict(1))
		if _, err := rt.RoundTrip(get(t, api)); err == nil || err.Error() != "reset" {
			t.Errorf("error %v, want that of the attempt", err)
		}
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

// TestAttemptTimeoutOfAnyBase: an error that comes of the timeout is the timeout, whatever the base makes of
// it, and so is a response that comes later; but a connection that was taken over is kept.
func TestAttemptTimeoutOfAnyBase(t *testing.T) {
	closed := false
	for name, c := range map[string]struct {
		took time.Duration
		resp *http.Response
		err  error // "late" is the timeout
	}{
		"its context's error":  {2 * time.Second, nil, context.Canceled},
		"an error of its own":  {2 * time.Second, nil, errors.New("reset")},
		"an early error":       {0, nil, errors.New("reset")},
		"late":                 {2 * time.Second, &http.Response{StatusCode: 200, Body: closes{&closed}}, nil},
		"late, without a body": {2 * time.Second, &http.Response{StatusCode: 200}, nil},
		"late, taken over":     {2 * time.Second, &http.Response{StatusCode: 101, Body: closes{&closed}}, nil},
		"in time":              {0, &http.Response{StatusCode: 200, Body: closes{&closed}}, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			closed = false
			rt := newTransport(t, roundTripperFunc(func(*http.Request) (*http.Response, error) {
				time.Sleep(c.took)
				return c.resp, c.err
			}), httpclient.WithAttemptTimeout(time.Second))
			resp, err := rt.RoundTrip(once(get(t, api)))
			want := c.took > 0 && (c.resp == nil || c.resp.StatusCode != 101)
			var timeout interface{ Timeout() bool }
			if got := errors.As(err, &timeout); got != want || got && errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
			if !want && (resp != c.resp || c.err != nil && !errors.Is(err, c.err)) {
				t.Errorf("%s: %v, %v", name, resp, err)
			}
			if c.resp != nil && c.resp.Body != nil && closed != want {
				t.Errorf("%s: the body is closed: %v", name, closed)
			}
			if resp != nil {
				resp.Body.Close()
			}
		})
	}
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
