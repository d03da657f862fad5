package httpclient_test

import (
	"bufio"
	"cmp"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// TestForbiddenByQuota: a 403 that names a wait is a rejection by quota, which
// any request may be sent again after; any other is final.
func TestForbiddenByQuota(t *testing.T) {
	for name, c := range map[string]struct {
		p    reply
		sent int
		wait time.Duration
	}{
		"Retry-After":    {status(403, "Retry-After", "60"), 2, time.Minute},
		"nothing left":   {status(403, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30"), 2, 30 * time.Second},
		"something left": {status(403, "X-RateLimit-Remaining", "7", "X-RateLimit-Reset", "30"), 1, 0},
		"nothing said":   {status(403), 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := scripted(c.p, status(200))
				want := 200
				if c.sent == 1 {
					want = 403
				}
				respondsWith(t, newTransport(t, s), post(t, api, "x"), want)
				s.wantSent(t, c.sent)
				if c.sent > 1 {
					between(t, "waited", s.gap(1), c.wait, c.wait*3/2)
				}
			})
		})
	}
}

func TestClassifier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errOdd := errors.New("odd")
		asked := 0
		classify := httpclient.WithClassifier(func(resp *http.Response, err error) retry.Verdict {
			asked++
			switch {
			case errors.Is(err, errOdd):
				return retry.Final
			case err != nil:
				return retry.Default
			case resp.StatusCode == 400:
				return retry.Rejected
			case resp.StatusCode == 409:
				return retry.Failed
			case resp.StatusCode == 500:
				return retry.Final
			case resp.StatusCode == 418:
				return 99
			}
			return retry.Default
		})
		for name, c := range map[string]struct {
			p        reply
			post     bool
			attempts int
		}{
			"rejected, of a POST": {status(400, "Retry-After", "1"), true, 3},
			"failed":              {status(409), false, 3},
			"failed, of a POST":   {status(409), true, 1},
			"final":               {status(500), false, 1},
			"default":             {status(502), false, 3},
			"no such verdict":     {status(418), false, 1},
			"a final error":       {reply{err: errOdd}, false, 1},
			"a default error":     {reply{err: errors.New("reset")}, false, 3},
		} {
			s := scripted(c.p)
			r := get(t, api)
			if c.post {
				r = post(t, api, "x")
			}
			if resp, err := newTransport(t, s, classify).RoundTrip(r); err == nil {
				resp.Body.Close()
			}
			if n := len(s.sent()); n != c.attempts {
				t.Errorf("%s: %d attempts, want %d", name, n, c.attempts)
			}
		}
		// Successes are nobody's to question.
		asked = 0
		for _, code := range []int{101, 200, 204, 301, 304} {
			respondsWith(t, newTransport(t, scripted(status(code)), classify), get(t, api), code)
		}
		if asked != 0 {
			t.Errorf("asked %d times about responses below 400", asked)
		}
	})
}

// TestDialects sends a GET and a POST to servers that answer as the examples of package
// retry do: a rejection is retried for both, a failure for the GET alone.
func TestDialects(t *testing.T) {
	files, err := filepath.Glob("../retry/testdata/dialects/*.txt")
	if err != nil || len(files) < 25 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	// For each verdict: attempts of a GET and of a POST.
	attempts := map[string][2]int{"final": {1, 1}, "failed": {2, 1}, "rejected": {2, 2}}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		wants, response, _ := strings.Cut(string(data), "\n\n")
		verdict := after(wants, "verdict: ")
		want, known := attempts[verdict]
		if !known {
			t.Fatalf("%s: verdict %q", file, verdict)
		}
		var opts []httpclient.Option
		if name := after(wants, "provider: "); name != "" {
			opts = append(opts, httpclient.WithProvider(map[string]retry.Provider{"github": retry.GitHub, "shopify": retry.Shopify, "graphql": retry.GraphQL}[name]))
		}
		url := "http://api.test" + cmp.Or(after(wants, "path: "), "/v1/things")
		for i := range want {
			synctest.Test(t, func(t *testing.T) {
				r := []*http.Request{get(t, url), post(t, url, "x")}[i]
				time.Sleep(time.Until(time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)))
				n := 0
				rt := newTransport(t, roundTripperFunc(func(r *http.Request) (*http.Response, error) {
					if n++; n > 1 {
						return respond(r, status(200)), nil
					}
					return http.ReadResponse(bufio.NewReader(strings.NewReader(response)), r)
				}), append(opts, httpclient.WithMaxWait(time.Hour), httpclient.WithMaxTotalWait(2*time.Hour))...)
				resp, err := rt.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if n != want[i] {
					t.Errorf("%s: %s: %d attempts, want %d", filepath.Base(file), r.Method, n, want[i])
				}
			})
		}
	}
}

// after returns the rest of the line in which a text has prefix.
func after(text, prefix string) string {
	_, rest, _ := strings.Cut(text, prefix)
	rest, _, _ = strings.Cut(rest, "\n")
	return rest
}

// TestForbiddenRetryClosesNoGate: a rejection that never ends, such as that of an account
// without credit, is returned at once and holds up nobody else.
func TestForbiddenRetryClosesNoGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(429, "Retry-After", "60", "X-Should-Retry", "false"), status(200))
		rt := newTransport(t, s)
		start := time.Now()
		respondsWith(t, rt, get(t, api), 429)
		respondsWith(t, rt, get(t, api), 200)
		if d := time.Since(start); d != 0 {
			t.Errorf("it took %v", d)
		}
	})
}

// TestForbiddenRetryOfAUsedUpQuota: that nothing is left of a quota concerns the next request, also where this one is not
// to be sent again.
func TestForbiddenRetryOfAUsedUpQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(429, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30", "X-Should-Retry", "false"), status(200))
		rt := newTransport(t, s)
		respondsWith(t, rt, get(t, api), 429)
		respondsWith(t, rt, get(t, api), 200)
		between(t, "waited", s.gap(1), 30*time.Second, 45*time.Second)
	})
}

// TestClassifiedRejectionCoolsDown: what the classifier calls a rejection is one for
// every goroutine.
func TestClassifiedRejectionCoolsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(430, "Retry-After", "20"), status(200))
		rt := newTransport(t, s, httpclient.WithClassifier(func(resp *http.Response, _ error) retry.Verdict {
			return retry.Rejected
		}))
		respondsWith(t, rt, once(get(t, api)), 430)
		respondsWith(t, rt, get(t, api), 200)
		between(t, "waited", s.gap(1), 20*time.Second, 30*time.Second)
	})
}

func TestResetFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A bubble's clock starts with the year 2000, when such a time still
		// looked like a number of seconds to wait.
		reset := status(429, "X-RateLimit-Reset", "946684807")
		resp := respondsWith(t, newTransport(t, scripted(reset, status(200))), get(t, api), 429)
		gaveUpFor(t, resp, retry.WaitTooLong)

		var hosts []string
		s := scripted(reset, status(200))
		rt := newTransport(t, s, httpclient.WithResetFormat(func(host string) retry.ResetFormat {
			hosts = append(hosts, host)
			return retry.ResetEpoch
		}))
		respondsWith(t, rt, get(t, "http://API.test:80/"), 200)
		between(t, "waited", s.gap(1), 7*time.Second, 10500*time.Millisecond)
		if hosts[0] != "api.test" {
			t.Errorf("asked about %q", hosts)
		}
	})
}

// TestRetryAfterOfASuccessIsNotForIt: a 202 says when to look again.
func TestRetryAfterOfASuccessIsNotForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(202, "Retry-After", "60"), status(200))
		rt := newTransport(t, s)
		resp := respondsWith(t, rt, get(t, api), 202)
		respondsWith(t, rt, get(t, api), 200)
		if d := s.gap(1); d != 0 {
			t.Errorf("the next request waited %v", d)
		}
		if d, ok := httpclient.Wait(resp); ok {
			t.Errorf("a wait of %v", d)
		}
	})
}

// TestThrottleTakesNothingFromTheLimit: others may need it.
func TestThrottleTakesNothingFromTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := newLocal(t, limiter.TokenBucket(limiter.PerHour(10), 10))
		rt := newTransport(t, scripted(status(500)), httpclient.WithLimiter(lim),
			strict(2))
		send(t, rt, 2)
		for range 20 {
			failsFor(t, rt, get(t, api), retry.HostFailing)
		}
		if res, err := lim.AllowN(t.Context(), "api.test", 8); err != nil || !res.Allowed {
			t.Errorf("%+v, %v: two attempts took more than two", res, err)
		}
	})
}
