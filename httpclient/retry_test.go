package httpclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

func TestServerWaitIsLengthenedNeverShortened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shortest, longest time.Duration = time.Hour, 0
		for range 100 {
			s := scripted(status(429, "Retry-After", "10"), status(200))
			respondsWith(t, newTransport(t, s), get(t, api), 200)
			d := s.gap(1)
			between(t, "waited", d, 10*time.Second, 15*time.Second)
			shortest, longest = min(shortest, d), max(longest, d)
		}
		if longest-shortest < time.Second {
			t.Errorf("waits from %v to %v: no jitter", shortest, longest)
		}
	})
}

func TestMinimumWaits(t *testing.T) {
	for name, c := range map[string]struct {
		first       reply
		least, most time.Duration
	}{
		"429 without a wait":       {status(429), time.Second, 1500 * time.Millisecond},
		"429 now":                  {status(429, "Retry-After", "0"), time.Second, 1500 * time.Millisecond},
		"503 now":                  {status(503, "Retry-After", "0"), 500 * time.Millisecond, 750 * time.Millisecond},
		"503 without a wait":       {status(503), 0, 500 * time.Millisecond},
		"500 with a reset header":  {status(500, "X-RateLimit-Remaining", "7", "X-RateLimit-Reset", "60"), 0, 500 * time.Millisecond},
		"error":                    {reply{err: errors.New("reset")}, 0, 500 * time.Millisecond},
		"400 that is a rejection":  {status(400), 0, 500 * time.Millisecond},
		"200 that is a rejection":  {jsonReply(200, `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`, "X-ShopId", "1"), time.Second, 1500 * time.Millisecond},
		"429 with a reset header":  {status(429, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "7"), 7 * time.Second, 10500 * time.Millisecond},
		"502 with a wait is asked": {status(502, "Retry-After", "3"), 3 * time.Second, 4500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for range 20 {
					s := scripted(c.first, status(200))
					rt := newTransport(t, s, httpclient.WithProvider(retry.Shopify), httpclient.WithClassifier(func(resp *http.Response, _ error) retry.Verdict {
						if resp != nil && resp.StatusCode == 400 {
							return retry.Rejected
						}
						return retry.Default
					}))
					respondsWith(t, rt, get(t, api), 200)
					between(t, "waited", s.gap(1), c.least, c.most)
				}
			})
		})
	}
}

func TestJitterStaysWithinCapAndDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			s := scripted(status(429, "Retry-After", "10"), status(200))
			respondsWith(t, newTransport(t, s, httpclient.WithMaxWait(11*time.Second)), get(t, api), 200)
			between(t, "waited", s.gap(1), 10*time.Second, 11*time.Second)

			s = scripted(status(429, "Retry-After", "10"), status(200))
			ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
			respondsWith(t, newTransport(t, s), get(t, api).WithContext(ctx), 200)
			cancel()
			between(t, "waited", s.gap(1), 10*time.Second, 12*time.Second)
		}
	})
}

func TestGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(503, "Retry-After", "1"))
		resp := respondsWith(t, newTransport(t, s), get(t, api), 503)
		e := gaveUpFor(t, resp, retry.AttemptsSpent)
		if e.Wait != time.Second || e.Key != "api.test" {
			t.Errorf("%+v", e)
		}
		s.wantSent(t, 3)

		resp = respondsWith(t, newTransport(t, scripted(status(429, "Retry-After", "300"))), get(t, api), 429)
		e = gaveUpFor(t, resp, retry.WaitTooLong)
		if d, ok := httpclient.Wait(resp); !ok || d != 5*time.Minute || e.Wait != d || e.Err != nil {
			t.Errorf("wait %v, %v; %+v", d, ok, e)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		resp = respondsWith(t, newTransport(t, scripted(status(429, "Retry-After", "30"))), get(t, api).WithContext(ctx), 429)
		if e = gaveUpFor(t, resp, retry.WaitTooLong); !errors.Is(e, context.DeadlineExceeded) {
			t.Errorf("%+v", e)
		}

		resp = respondsWith(t, newTransport(t, scripted(status(500))), post(t, api, "x"), 500)
		gaveUpFor(t, resp, retry.NotIdempotent)

		r := post(t, api, "x")
		r.GetBody = nil
		resp = respondsWith(t, newTransport(t, scripted(status(429))), r, 429)
		gaveUpFor(t, resp, retry.NotReplayable)

		r = post(t, api, "x")
		r.GetBody = func() (io.ReadCloser, error) { return nil, io.ErrNoProgress }
		resp = respondsWith(t, newTransport(t, scripted(status(429, "Retry-After", "7"))), r, 429)
		if e = gaveUpFor(t, resp, retry.ReplayFailed); !errors.Is(e, io.ErrNoProgress) || e.Wait != 0 {
			t.Errorf("%+v", e)
		}
		if d, ok := httpclient.Wait(resp); !ok || d != 7*time.Second {
			t.Errorf("of no use is a wait of %v, %v; the headers ask for one", d, ok)
		}

		resp = respondsWith(t, newTransport(t, scripted(status(404))), get(t, api), 404)
		if e := httpclient.GaveUp(resp); e != nil {
			t.Errorf("gave up on a 404: %v", e)
		}
		// What is true of one response is not of another with its context.
		resp = respondsWith(t, newTransport(t, scripted(status(503))), get(t, api), 503)
		again := respondsWith(t, newTransport(t, scripted(status(200))), get(t, api).WithContext(resp.Request.Context()), 200)
		if e := httpclient.GaveUp(again); e != nil {
			t.Errorf("gave up on a 200: %v", e)
		}
		if httpclient.GaveUp(nil) != nil || httpclient.GaveUp(&http.Response{}) != nil {
			t.Error("gave up on nothing")
		}
	})
}

func TestWaitReadsHeadersOfAnyResponse(t *testing.T) {
	p := status(503, "Retry-After", "7")
	if d, ok := httpclient.Wait(respond(nil, p)); !ok || d != 7*time.Second {
		t.Errorf("%v, %v", d, ok)
	}
	for _, reset := range []string{"60", fmt.Sprint(time.Now().Add(time.Minute).Unix())} { // in seconds, or when
		p = status(429, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", reset)
		if d, ok := httpclient.Wait(respond(nil, p)); !ok || d <= 0 || d > time.Minute {
			t.Errorf("%s: %v, %v", reset, d, ok)
		}
	}
	if d, ok := httpclient.Wait(respond(nil, status(200))); ok {
		t.Errorf("%v", d)
	}
	if _, ok := httpclient.Wait(nil); ok {
		t.Error("a wait of nothing")
	}
}

func TestPOSTOn503NeedsAnInvitation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(503), status(200))
		respondsWith(t, newTransport(t, s), post(t, api, "x"), 503)
		s.wantSent(t, 1)
		s = scripted(status(503, "Retry-After", "1"), status(200))
		respondsWith(t, newTransport(t, s), post(t, api, "x"), 200)
		s.wantSent(t, 2)
	})
}

func TestSumOfWaitsHasACeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(503, "Retry-After", "20"))
		start := time.Now()
		resp := respondsWith(t, newTransport(t, s, httpclient.WithAttempts(100), httpclient.WithMaxTotalWait(time.Minute)), get(t, api), 503)
		gaveUpFor(t, resp, retry.WaitTooLong)
		between(t, "took", time.Since(start), 40*time.Second, time.Minute)
	})
}

// TestBudget: what succeeds pays for retries, and when that is spent failures
// are returned as they come.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := retry.NewBudget(retry.BudgetSettings{Floor: -1, Window: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		ok := newTransport(t, scripted(status(404)), httpclient.WithBudget(b))
		for range 40 {
			respondsWith(t, ok, get(t, api), 404) // an answer, and so a success
		}
		s := scripted(status(503))
		sick := newTransport(t, s, httpclient.WithBudget(b), httpclient.WithoutThrottle())
		var reasons []retry.Reason
		for range 6 {
			resp := respondsWith(t, sick, get(t, api), 503)
			reasons = append(reasons, httpclient.GaveUp(resp).Reason)
		}
		s.wantSent(t, 6+8)
		spent, empty := retry.AttemptsSpent, retry.BudgetSpent
		if want := []retry.Reason{spent, spent, spent, spent, empty, empty}; !slices.Equal(reasons, want) {
			t.Errorf("gave up for %v, want %v", reasons, want)
		}
	})
}

// TestFinalErrorsPayForNoRetry: only an answer is a success, and of a request whose body fails none is.
func TestFinalErrorsPayForNoRetry(t *testing.T) {
	for name, c := range map[string]struct {
		body io.Reader
		p    reply
	}{
		"a request that cannot be sent": {nil, reply{err: http.ErrSkipAltProtocol}},
		"a body that fails":             {failingReader{}, reply{err: errDisk}},
		"an answer to half a request":   {failingReader{}, status(400)},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, err := retry.NewBudget(retry.BudgetSettings{Floor: -1, Window: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			final := newTransport(t, scripted(c.p), httpclient.WithBudget(b))
			for range 40 {
				r := get(t, api)
				if c.body != nil {
					r.Method, r.Body = http.MethodPut, io.NopCloser(c.body)
				}
				if resp, err := final.RoundTrip(r); err == nil {
					resp.Body.Close()
				}
			}
			resp := respondsWith(t, newTransport(t, scripted(status(503)), httpclient.WithBudget(b)), get(t, api), 503)
			if e := gaveUpFor(t, resp, retry.BudgetSpent); e == nil {
				t.Error(name)
			}
		})
	}
}

// TestNobodyIsAskedAboutCallersWhoLeave: neither when the caller has gone, whatever the error says,
// nor when the base says so.
func TestNobodyIsAskedAboutCallersWhoLeave(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		leave bool
	}{"has gone": {errors.New("reset"), true}, "canceled": {context.Canceled, false}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			sent := 0
			rt := newTransport(t, roundTripperFunc(func(*http.Request) (*http.Response, error) {
				if sent++; c.leave {
					cancel()
				}
				return nil, c.err
			}), httpclient.WithClassifier(func(*http.Response, error) retry.Verdict {
				t.Errorf("%s: the classifier is asked", name)
				return retry.Default
			}), httpclient.WithHooks(httpclient.Hooks{GiveUp: func(context.Context, httpclient.GiveUpInfo) {
				t.Errorf("%s: there was no reason to try again", name)
			}}))
			if _, err := rt.RoundTrip(get(t, api).WithContext(ctx)); !errors.Is(err, c.err) || sent != 1 {
				t.Errorf("%s: %v after %d attempts", name, err, sent)
			}
		})
	}
}

// TestCallerLeavesDuringTheWait: what is left of the last response is closed.
func TestCallerLeavesDuringTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &stream{Reader: strings.NewReader(strings.Repeat("x", 1<<20))}
		rt := newTransport(t, roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			resp := respond(r, status(503, "Retry-After", "60"))
			resp.Body, resp.ContentLength = body, -1
			return resp, nil
		}))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := rt.RoundTrip(get(t, api).WithContext(ctx)); !errors.Is(err, context.Canceled) || body.closes != 1 {
			t.Errorf("%v, closed %d times", err, body.closes)
		}
	})
}

func TestCallOverrides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		with := func(r *http.Request, c httpclient.Call) *http.Request {
			return r.WithContext(httpclient.WithCall(r.Context(), c))
		}
		s := scripted(status(503))
		respondsWith(t, newTransport(t, s), with(get(t, api), httpclient.Call{Attempts: 1}), 503)
		s.wantSent(t, 1)
		s = scripted(status(503))
		respondsWith(t, newTransport(t, s), with(get(t, api), httpclient.Call{Attempts: 5}), 503)
		s.wantSent(t, 5)
		s = scripted(status(500), status(200))
		respondsWith(t, newTransport(t, s), with(post(t, api, "x"), httpclient.Call{Idempotent: true}), 200)
		s = scripted(status(503, "Retry-After", "5"))
		// The inner call keeps what the outer one said.
		r := with(with(get(t, api), httpclient.Call{MaxWait: time.Second}), httpclient.Call{Attempts: 2})
		gaveUpFor(t, respondsWith(t, newTransport(t, s), r, 503), retry.WaitTooLong)

		for _, c := range []httpclient.Call{{Attempts: -1}, {Cost: -1}, {MaxWait: -1}} {
			closed := false
			r := with(get(t, api), c)
			r.Body = closes{&closed}
			_, err := newTransport(t, s).RoundTrip(r)
			if !errors.Is(err, limiter.ErrInvalidConfig) || !strings.HasPrefix(err.Error(), "httpclient: Call.") {
				t.Errorf("%+v: %v", c, err)
			}
			if !closed {
				t.Errorf("%+v: the body was not closed", c)
			}
		}
	})
}

type closes struct{ closed *bool }

func (c closes) Read([]byte) (int, error) { return 0, io.EOF }
func (c closes) Close() error             { *c.closed = true; return nil }

// TestIdempotencyKey: by net/http's convention the header says that a request may be
// repeated also where it has no values, and then it is not sent.
func TestIdempotencyKey(t *testing.T) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		for _, values := range [][]string{{"8e03978e"}, {}, nil} {
			var got []string
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = append(got, fmt.Sprint(r.Header[name]))
				w.WriteHeader([]int{502, 200}[min(len(got), 2)-1])
			}))
			r := post(t, srv.URL, "x")
			r.Header[name] = values
			rt := newTransport(t, new(http.Transport), httpclient.WithBackoff(retry.Backoff{Initial: time.Millisecond, Max: time.Millisecond}))
			respondsWith(t, rt, r, 200)
			if want := fmt.Sprint(values); !slices.Equal(got, []string{want, want}) {
				t.Errorf("%s: %q: sent with %q", name, values, got)
			}
			rt.CloseIdleConnections()
			srv.Close()
		}
	}
}

// TestCookiesOfRetriedResponses: a response is as the server sent it, without the cookies
// of those that were retried; and each attempt is the caller's request, with the cookies
// that it had.
func TestCookiesOfRetriedResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(503, "Set-Cookie", "first=1", "Retry-After", "1"), status(200, "Set-Cookie", "second=2"))
		var sent []string
		rt := newTransport(t, roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			sent = append(sent, r.Header.Get("Cookie"))
			return s.RoundTrip(r)
		}))
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		u, _ := url.Parse(api)
		jar.SetCookies(u, []*http.Cookie{{Name: "mine", Value: "0"}})
		resp, err := (&http.Client{Transport: rt, Jar: jar}).Get(api)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header["Set-Cookie"]; !slices.Equal(got, []string{"second=2"}) || !slices.Equal(sent, []string{"mine=0", "mine=0"}) {
			t.Errorf("sent %q, got %q", sent, got)
		}
	})
}

// TestFailuresDoNotPayForRetries, also where they are final: nothing has succeeded.
func TestFailuresDoNotPayForRetries(t *testing.T) {
	for name, p := range map[string]reply{
		"a failure that the server forbids to retry": status(500, "X-Should-Retry", "false"),
		"a failure of the proxy before the server":   status(530),
		"a rejection": status(429, "X-Should-Retry", "false"),
	} {
		synctest.Test(t, func(t *testing.T) {
			b, err := retry.NewBudget(retry.BudgetSettings{Floor: -1})
			if err != nil {
				t.Fatal(err)
			}
			s := scripted(p)
			rt := newTransport(t, s, httpclient.WithBudget(b), httpclient.WithoutThrottle())
			for range 100 {
				respondsWith(t, rt, get(t, api), p.status)
			}
			s.replies = []reply{status(503)}
			gaveUpFor(t, respondsWith(t, rt, get(t, api), 503), retry.BudgetSpent)
			if n := len(s.sent()); n != 101 {
				t.Errorf("%s: %d sent, want 101", name, n)
			}
		})
	}
}
