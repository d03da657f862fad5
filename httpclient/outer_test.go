package httpclient_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/retry"
)

// outer sends a request n times, as an SDK does: with the headers that it sets for each.
func outer(t *testing.T, rt http.RoundTripper, method string, n int, header func(i int) (name, value string)) (last *http.Response) {
	t.Helper()
	for i := range n {
		r := get(t, api)
		r.Method = method
		r.Header.Set(header(i))
		resp, err := rt.RoundTrip(r)
		if err == nil {
			resp.Body.Close()
		}
		last = resp
		time.Sleep(time.Second)
	}
	return last
}

// TestOuterLayerRetries: where the layer above says that it repeats a request there are as
// many attempts as it makes, not a multiple of them.
func TestOuterLayerRetries(t *testing.T) {
	for name, c := range map[string]struct {
		header func(i int) (string, string)
		calls  int
		sent   int
	}{
		"stainless":     {func(i int) (string, string) { return "X-Stainless-Retry-Count", fmt.Sprint(i) }, 3, 3},
		"aws":           {func(i int) (string, string) { return "Amz-Sdk-Request", fmt.Sprintf("attempt=%d; max=3", i+1) }, 3, 3},
		"aws, for ever": {func(i int) (string, string) { return "Amz-Sdk-Request", fmt.Sprintf("attempt=%d", i+1) }, 4, 4},
		"aws, no retry": {func(int) (string, string) { return "Amz-Sdk-Request", "attempt=1; max=1" }, 1, 3},
		"google storage": {func(i int) (string, string) {
			return "X-Goog-Api-Client", fmt.Sprintf("gl-go/1.26 gccl-invocation-id/x gccl-attempt-count/%d", i+1)
		}, 3, 3},
		"google":        {func(int) (string, string) { return "X-Goog-Api-Client", "gl-go/1.26" }, 1, 3},
		"the key again": {func(int) (string, string) { return "Idempotency-Key", "k" }, 3, 5},
		"another key":   {func(i int) (string, string) { return "Idempotency-Key", fmt.Sprint(i) }, 2, 6},
		"X-, again":     {func(int) (string, string) { return "X-Idempotency-Key", "k" }, 2, 4},
		"nothing said":  {func(int) (string, string) { return "Accept", "*/*" }, 2, 6},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, p := range map[string]reply{"503": status(503), "429": status(429), "error": {err: errors.New("reset")}} {
				synctest.Test(t, func(t *testing.T) {
					s := scripted(p)
					rt := newTransport(t, s)
					resp := outer(t, rt, http.MethodGet, c.calls, c.header)
					if n := len(s.sent()); n != c.sent {
						t.Errorf("%s: %d attempts, want %d", kind, n, c.sent)
					}
					if p.err == nil && c.calls > 1 && c.sent < 3*c.calls {
						gaveUpFor(t, resp, retry.OuterRetries)
					}
				})
			}
		})
	}
}

// TestOuterLayerOfStripe: stripe-go repeats failures, and no rejections by quota.
func TestOuterLayerOfStripe(t *testing.T) {
	for name, c := range map[string]struct {
		p     reply
		calls int
	}{"failures": {status(503), 3}, "errors": {reply{err: errors.New("reset")}, 3}, "rejections": {status(429), 1}} {
		synctest.Test(t, func(t *testing.T) {
			s := scripted(c.p)
			outer(t, newTransport(t, s), http.MethodGet, c.calls, func(int) (string, string) { return "X-Stripe-Client-User-Agent", "{}" })
			if n := len(s.sent()); n != 3 {
				t.Errorf("%s: %d attempts, want 3", name, n)
			}
		})
	}
}

// TestOuterLayerIsOverruled: for an SDK whose own retries are off.
func TestOuterLayerIsOverruled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(503))
		r := get(t, api)
		r.Header.Set("X-Stainless-Retry-Count", "0")
		r = r.WithContext(httpclient.WithCall(t.Context(), httpclient.Call{Attempts: 4}))
		gaveUpFor(t, respondsWith(t, newTransport(t, s), r, 503), retry.AttemptsSpent)
		s.wantSent(t, 4)
	})
}

// TestOuterLayerWaits: a request of such a layer waits for a cooldown as any does.
func TestOuterLayerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(429, "Retry-After", "30"), status(200))
		outer(t, newTransport(t, s), http.MethodGet, 2, func(i int) (string, string) { return "X-Stainless-Retry-Count", fmt.Sprint(i) })
		s.wantSent(t, 2)
		between(t, "waited", s.gap(1), 30*time.Second, 45*time.Second)
	})
}

// TestKeysAreForgotten: a key that comes again after minutes is a new try, and a flood of
// keys takes no more room.
func TestKeysAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		same := func(int) (string, string) { return "Idempotency-Key", "k" }
		s := scripted(status(503))
		rt := newTransport(t, s, httpclient.WithoutThrottle())
		outer(t, rt, http.MethodPost, 1, same)
		time.Sleep(3 * time.Minute)
		outer(t, rt, http.MethodPost, 1, same)
		s.wantSent(t, 6)
		s.replies = []reply{status(200)}
		for i := range 5000 {
			r := post(t, api, "x")
			r.Header.Set("Idempotency-Key", fmt.Sprint("flood ", i))
			respondsWith(t, rt, r, 200)
		}
		s.replies = []reply{status(503)}
		outer(t, rt, http.MethodPost, 1, same)
		s.wantSent(t, 6+5000+3)
	})
}

// TestSignedRequests: a wait that outlives the signature of a request is not begun.
func TestSignedRequests(t *testing.T) {
	const stamp = "20060102T150405Z"
	for name, c := range map[string]struct {
		age  time.Duration // of the signature
		url  string        // with the time it was made
		wait string        // what the server asks for
		sent int
	}{
		"fits":                   {0, "", "200", 2},
		"outlives it":            {0, "", "300", 1},
		"is older":               {2 * time.Minute, "", "200", 1},
		"clock ahead of ours":    {-time.Hour, "", "200", 2},
		"clock behind ours":      {time.Hour, "", "200", 2},
		"presigned, fits":        {0, "?X-Amz-Expires=900&X-Amz-Signature=a&X-Amz-Date=", "600", 2},
		"presigned, outlives it": {10 * time.Minute, "?X-Amz-Expires=900&X-Amz-Signature=a&X-Amz-Date=", "600", 1},
		"not signed":             {0, "?X-Amz-Date=", "600", 2},
		"presigned, garbage":     {0, "?X-Amz-Expires=x&X-Amz-Signature=a&X-Amz-Date=", "600", 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(24 * time.Hour)
				made := time.Now().Add(-c.age).UTC().Format(stamp)
				s := scripted(status(429, "Retry-After", c.wait), status(200))
				rt := newTransport(t, s, httpclient.WithMaxWait(time.Hour), httpclient.WithMaxTotalWait(time.Hour))
				r := get(t, api)
				if c.url != "" {
					r = get(t, api+c.url+made)
				} else {
					r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=a")
					r.Header.Set("X-Amz-Date", made)
				}
				resp, err := rt.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				s.wantSent(t, c.sent)
				if c.sent == 1 {
					if e := gaveUpFor(t, resp, retry.WaitTooLong); e.Err == nil {
						t.Errorf("%+v does not say why", e)
					}
					// The same for one that finds the gate closed.
					coolsDown(t, rt, r, 429)
				}
			})
		})
	}
}

// TestRedirectsAreNoRetries: http.Client sends the key of a request again to where it is redirected.
func TestRedirectsAreNoRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(308, "Location", "/new"), status(503), status(200))
		r := post(t, api, "x")
		r.Header.Set("Idempotency-Key", "k")
		resp, err := (&http.Client{Transport: newTransport(t, s)}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if s.wantSent(t, 3); resp.StatusCode != 200 {
			t.Errorf("status %d, want 200", resp.StatusCode)
		}
	})
}
