package httpclient_test

import (
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// TestResponseInPlace: while a key cools down, a request that is not sent gets a response
// like the one that asked for it.
func TestResponseInPlace(t *testing.T) {
	for name, c := range map[string]struct {
		p     reply
		want  int
		reset int64 // X-RateLimit-Reset, from the start of the bubble's clock if large
	}{
		"429":         {status(429, "Retry-After", "300"), 429, 0},
		"503":         {status(503, "Retry-After", "300"), 503, 0},
		"529":         {status(529, "Retry-After", "300"), 529, 0},
		"403 by time": {status(403, "X-RateLimit-Remaining", "0", "X-RateLimit-Resource", "core", "X-RateLimit-Reset", "2000000000", "X-RateLimit-Reset-After", "300"), 403, 2000000000},
		"403 delta":   {status(403, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "300"), 403, 1},
		"success":     {status(200, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "300"), 429, 1},
		// What is wrong with one request is not wrong with others.
		"not found": {status(404, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "300"), 429, 1},
		"failure":   {status(500, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "300"), 429, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := scripted(c.p, status(200))
				rt := newTransport(t, s)
				respondsWith(t, rt, once(get(t, api)), c.p.status)
				time.Sleep(100*time.Second + time.Millisecond)
				r := post(t, api, "x")
				closed := false
				r.Body, r.GetBody = closes{&closed}, nil
				resp, err := rt.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				if err != nil || int64(len(body)) != resp.ContentLength {
					t.Errorf("%d bytes of %d, %v", len(body), resp.ContentLength, err)
				}
				var problem struct {
					Status  int
					Title   string
					Message string
				}
				if err := json.Unmarshal(body, &problem); err != nil || problem.Status != c.want || problem.Message == "" {
					t.Errorf("%s: %v", body, err)
				}
				h := resp.Header
				if resp.StatusCode != c.want || resp.Status[:3] != strconv.Itoa(c.want) || h.Get("Retry-After") != "200" ||
					h.Get("Content-Type") != "application/problem+json" || h.Get("Holdfast-Not-Sent") != "cooling down" {
					t.Errorf("%s, %v", resp.Status, h)
				}
				if e := gaveUpFor(t, resp, retry.CoolingDown); e.Wait != 200*time.Second-time.Millisecond || e.Key[:8] != "api.test" {
					t.Errorf("%+v", e)
				}
				if d, ok := httpclient.Wait(resp); d != 200*time.Second-time.Millisecond || !ok {
					t.Errorf("the wait is %v", d)
				}
				want := map[bool]string{true: "200"}[c.reset == 1]
				if c.reset > 1 {
					want = strconv.FormatInt(time.Now().Add(200*time.Second).Unix(), 10)
				}
				if got := h.Get("X-RateLimit-Reset"); got != want || c.reset > 0 && h.Get("X-RateLimit-Remaining") != "0" {
					t.Errorf("the reset is %q, want %q, of %v", got, want, h)
				}
				if !closed {
					t.Error("the body was not closed")
				}
				s.wantSent(t, 1)
			})
		})
	}
}

// TestCooldownErrors: an option, and what the server did not say, are errors.
func TestCooldownErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newTransport(t, scripted(status(429, "Retry-After", "300")), httpclient.WithCooldownErrors())
		respondsWith(t, rt, once(get(t, api)), 429)
		if e := failsFor(t, rt, get(t, api), retry.CoolingDown); e.Wait != 5*time.Minute {
			t.Errorf("%+v", e)
		}
		rt = newTransport(t, scripted(status(200)), httpclient.WithLimiter(newLocal(t, limiter.FixedWindow(limiter.PerHour(1)))))
		respondsWith(t, rt, get(t, api), 200)
		failsFor(t, rt, get(t, api), retry.Throttled)
	})
}

// TestEarlierOutcomeInPlace: an attempt's own outcome comes before a response in its place.
func TestEarlierOutcomeInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errReset := errors.New("reset")
		s := scripted(reply{err: errReset}, status(429, "Retry-After", "300"))
		rt := newTransport(t, s, httpclient.WithBackoff(retry.Backoff{Initial: time.Minute, Max: time.Minute, Jitter: retry.JitterNone}))
		time.AfterFunc(time.Second, func() { respondsWith(t, rt, once(get(t, api)), 429) })
		if _, err := rt.RoundTrip(get(t, api)); !errors.Is(err, errReset) {
			t.Errorf("error %v, want that of the attempt", err)
		}
		s.wantSent(t, 2)
	})
}
