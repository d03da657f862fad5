package httpclient_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// quotas is a base that answers by the path of the request, and counts.
type quotas struct {
	replies map[string]reply
	sent    map[string]int
}

func (q *quotas) RoundTrip(r *http.Request) (*http.Response, error) {
	if q.sent == nil {
		q.sent = map[string]int{}
	}
	q.sent[r.URL.Path]++
	p, ok := q.replies[r.URL.Path]
	if !ok {
		p = status(200)
	}
	return respond(r, p), nil
}

func github(code int, resource, left string) reply {
	return status(code, "X-RateLimit-Resource", resource, "X-RateLimit-Remaining", left, "X-RateLimit-Reset-After", "60", "X-RateLimit-Reset", "60")
}

// sends fails the test unless a request is answered with the status, at once or after at
// least d.
func sends(t *testing.T, rt http.RoundTripper, url string, want int, d time.Duration) {
	t.Helper()
	start := time.Now()
	respondsWith(t, rt, once(get(t, url)), want)
	if took := time.Since(start); d == 0 && took != 0 || took < d {
		t.Errorf("%s took %v, want %v", url, took, d)
	}
}

// TestQuotasOfResources: a quota that is used up stops what belongs to it, and nothing else.
func TestQuotasOfResources(t *testing.T) {
	for name, c := range map[string]struct {
		core, used, others string // paths: outside the quota, inside, and inside by another one
		p, fresh           reply
	}{
		"github": {"/repos/a/b", "/search/issues", "/search/users", github(200, "search", "0"), github(200, "core", "4999")},
		"github enterprise": {"/api/v3/user", "/api/v3/search/issues", "/api/v3/search/users",
			github(403, "search", "0"), github(200, "core", "4999")},
		"github graphql": {"/repos/a/b", "/graphql", "/graphql", github(200, "graphql", "0"), github(200, "core", "4999")},
		"openai": {"/v1/models", "/v1/responses", "/v1/responses",
			status(200, "X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "1m0s"), status(200)},
		"anthropic": {"/v1/models", "/v1/messages", "/v1/messages",
			status(200, "Anthropic-RateLimit-Output-Tokens-Remaining", "0", "Anthropic-RateLimit-Output-Tokens-Reset", "60"), status(200)},
		"shopify": {"/admin/api/2026-01/graphql.json", "/admin/api/2026-01/orders.json", "/admin/api/2026-01/shop.json",
			status(200, "X-Shopify-Shop-Api-Call-Limit", "40/40"), status(200)},
		"discord": {"/api/v10/channels/2/messages", "/api/v10/channels/1/messages", "/api/v10/channels/1/messages",
			status(429, "X-RateLimit-Bucket", "abc", "X-RateLimit-Scope", "user", "Retry-After", "1.5"), status(200, "X-RateLimit-Bucket", "abc")},
		"discord, by way of a cache": {"/api/v10/users/@me", "/api/v10/channels/1/messages", "/api/v10/channels/1/messages",
			status(429, "X-RateLimit-Bucket", "abc", "X-RateLimit-Scope", "user", "Retry-After", "1.5", "Age", "1"), status(200, "X-RateLimit-Bucket", "def")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const host = "http://api.test"
				q := &quotas{replies: map[string]reply{c.used: c.p, c.core: c.fresh}}
				rt := newTransport(t, q)
				sends(t, rt, host+c.core, c.fresh.status, 0)
				sends(t, rt, host+c.used, c.p.status, 0)
				sends(t, rt, host+c.core, c.fresh.status, 0) // not stopped
				sends(t, rt, "http://other.test"+c.used, c.p.status, 0)
				least := 400 * time.Millisecond
				q.replies[c.used] = status(200)
				sends(t, rt, host+c.others, 200, least)
			})
		})
	}
}

// TestRetryWaitsForItsQuota: of which the response of its first attempt has told, also when another
// one says meanwhile that it lasts longer.
func TestRetryWaitsForItsQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, n := time.Now(), 0
		var mu sync.Mutex
		rt := newTransport(t, roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			n++
			i := n
			mu.Unlock()
			p := status(200)
			if i <= 2 {
				time.Sleep(time.Duration(i) * time.Second)
				p = status(403, "X-RateLimit-Resource", "search", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", []string{"4", "60"}[i-1])
			} else if took := time.Since(start); took < 62*time.Second {
				t.Errorf("sent again after %v", took)
			}
			return respond(r, p), nil
		}))
		var wg sync.WaitGroup
		wg.Go(func() { respondsWith(t, rt, get(t, "http://api.test/search/issues"), 200) })
		synctest.Wait()
		wg.Go(func() { respondsWith(t, rt, once(get(t, "http://api.test/search/issues")), 403) })
		wg.Wait()
	})
}

// TestWaitersLearnOfAQuota: requests that wait for the limiter when the first response names a quota that is
// used up wait for that, too.
func TestWaitersLearnOfAQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := scripted(github(403, "search", "0"), github(200, "search", "29"))
		slow := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			defer time.Sleep(10 * time.Millisecond)
			return base.RoundTrip(r)
		})
		rt := newTransport(t, slow, httpclient.WithLimiter(newLocal(t, limiter.GCRA(limiter.PerSecond(1), 1))), httpclient.WithAttempts(1))
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if resp, err := rt.RoundTrip(get(t, "http://api.test/search/issues")); err != nil {
					t.Error(err)
				} else {
					resp.Body.Close()
				}
			})
		}
		wg.Wait()
		base.wantSent(t, 10)
		between(t, "the second request was sent after", base.gap(1), time.Minute, 90*time.Second)
	})
}

// TestWaitForAll: a wait that is not the end of one quota is for all requests.
func TestWaitForAll(t *testing.T) {
	for name, p := range map[string]reply{
		"github, secondary limit": status(403, "Retry-After", "60", "X-RateLimit-Resource", "search", "X-RateLimit-Remaining", "9", "X-RateLimit-Reset", "60"),
		"discord, global":         status(429, "Retry-After", "60", "X-RateLimit-Bucket", "abc", "X-RateLimit-Global", "true"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := newTransport(t, &quotas{replies: map[string]reply{"/search/issues": p}})
				sends(t, rt, "http://api.test/repos/a/b", 200, 0)
				sends(t, rt, "http://api.test/search/issues", p.status, 0)
				sends(t, rt, "http://api.test/repos/a/b", 200, time.Minute)
			})
		})
	}
}

// TestBucketOfManyRoutes: routes of Discord share a bucket, for each channel apart, whatever
// other ids are in the path.
func TestBucketOfManyRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const channel = "http://discord.test/api/v10/channels/"
		in := status(200, "X-RateLimit-Bucket", "abc", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset-After", "5")
		last := status(200, "X-RateLimit-Bucket", "abc", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset-After", "5")
		q := &quotas{replies: map[string]reply{
			"/api/v10/channels/1/messages/10": in, "/api/v10/channels/1/pins": in, "/api/v10/channels/1/messages/11": last,
		}}
		rt := newTransport(t, q)
		sends(t, rt, channel+"1/pins", 200, 0)
		sends(t, rt, channel+"1/messages/10", 200, 0)
		sends(t, rt, channel+"1/messages/11", 200, 0)
		sends(t, rt, channel+"2/messages/12", 200, 0) // of another channel
		sends(t, rt, channel+"1/typing", 200, 0)      // not known to be of the bucket
		sends(t, rt, channel+"1/pins", 200, 5*time.Second)
	})
}

// TestQuotasOfResourcesInTheFleet: another process hears of a quota that is used up, and of
// no more than that.
func TestQuotasOfResourcesInTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := newLocal(t, limiter.TokenBucket(limiter.PerSecond(1000), 1000)) // stands for Redis
		q := &quotas{replies: map[string]reply{"/search/issues": github(200, "search", "9"), "/repos/a/b": github(200, "core", "9")}}
		one, two := newTransport(t, q, httpclient.WithLimiter(lim)), newTransport(t, q, httpclient.WithLimiter(lim))
		for _, rt := range []http.RoundTripper{one, two} {
			sends(t, rt, "http://api.test/search/issues", 200, 0)
			sends(t, rt, "http://api.test/repos/a/b", 200, 0)
		}
		q.replies["/search/issues"] = github(403, "search", "0")
		sends(t, one, "http://api.test/search/issues", 403, 0)
		sends(t, two, "http://api.test/repos/a/b", 200, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		e := failsFor(t, two, get(t, "http://api.test/search/issues").WithContext(ctx), retry.Throttled)
		if e.Key != "api.test#github/search" {
			t.Errorf("the key is %q", e.Key)
		}
		q.replies["/search/issues"] = github(200, "search", "9")
		sends(t, two, "http://api.test/search/issues", 200, time.Minute)
		if n := q.sent["/search/issues"]; n != 4 {
			t.Errorf("%d searches were sent, want 4", n)
		}
	})
}

func jsonReply(code int, body string, header ...string) reply {
	p := status(code, append(header, "Content-Type", "application/json")...)
	p.body = body
	return p
}

// TestNeverEnds: a 429 for an account without credit is returned at once, whole, and stops
// nobody else.
func TestNeverEnds(t *testing.T) {
	for _, body := range []string{
		`{"error":{"code":"insufficient_quota"}}`,
		`{"error":{"type":"rate_limit_error","details":{"error_code":"enforced_spend_limit_reached"}}}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := scripted(jsonReply(429, body, "Retry-After", "60", "X-RateLimit-Remaining-Requests", "0", "X-RateLimit-Reset-Requests", "60"), status(200))
			rt := newTransport(t, s, httpclient.WithAdaptive())
			start := time.Now()
			resp, err := rt.RoundTrip(get(t, api))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 429 || string(got) != body || err != nil || httpclient.GaveUp(resp) != nil {
				t.Errorf("%d %q, %v, %v", resp.StatusCode, got, err, httpclient.GaveUp(resp))
			}
			respondsWith(t, rt, get(t, api), 200)
			if d := time.Since(start); d != 0 {
				t.Errorf("it took %v", d)
			}
			s.wantSent(t, 2)
		})
	}
}

const throttledQuery = `{"errors":[{"extensions":{"code":"THROTTLED"}}],"extensions":{"cost":{"requestedQueryCost":100,"throttleStatus":{"currentlyAvailable":0,"restoreRate":50}}}}`

// TestRejectedInASuccess: with its provider a 200 that is a rejection is one for all
// goroutines; without, and for another server, it is a success.
func TestRejectedInASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := jsonReply(200, throttledQuery, "X-Shopify-API-Version", "2026-01")
		s := scripted(p, status(200))
		respondsWith(t, newTransport(t, s, httpclient.WithProvider(retry.Shopify)), post(t, api, "{}"), 200)
		s.wantSent(t, 2)
		between(t, "waited", s.gap(1), 2*time.Second, 3*time.Second)

		rt := newTransport(t, scripted(p, status(200)), httpclient.WithProvider(retry.GitHub), httpclient.WithProvider(retry.Shopify))
		resp := respondsWith(t, rt, once(post(t, api, "{}")), 200)
		if e := gaveUpFor(t, resp, retry.AttemptsSpent); e.Wait != 2*time.Second {
			t.Errorf("%+v", e)
		}
		start := time.Now()
		respondsWith(t, rt, get(t, api), 200)
		between(t, "the next one waited", time.Since(start), 2*time.Second, 3*time.Second)

		for _, opts := range [][]httpclient.Option{nil, {httpclient.WithProvider(retry.GitHub)}} {
			s = scripted(p, status(200))
			resp, err := newTransport(t, s, opts...).RoundTrip(post(t, api, "{}"))
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(resp.Body); string(body) != throttledQuery || err != nil {
				t.Errorf("%q, %v", body, err)
			}
			resp.Body.Close()
			s.wantSent(t, 1)
		}
	})
}

// TestStreamsAreNotHeldBack: a body that does not end soon, or is long, is the caller's as
// it comes.
func TestStreamsAreNotHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		long := strings.Repeat("x", retry.MaxBody)
		for name, body := range map[string]io.ReadCloser{"slow": r, "long": io.NopCloser(strings.NewReader(throttledQuery + long))} {
			rt := newTransport(t, roundTripperFunc(func(req *http.Request) (*http.Response, error) {
				resp := respond(req, jsonReply(200, "", "X-ShopId", "1"))
				resp.Body, resp.ContentLength = body, -1
				return resp, nil
			}), httpclient.WithProvider(retry.Shopify))
			start := time.Now()
			resp, err := rt.RoundTrip(get(t, api))
			if err != nil {
				t.Fatal(err)
			}
			if d := time.Since(start); d > time.Second {
				t.Errorf("%s: held back for %v", name, d)
			}
			if name == "slow" {
				go func() {
					io.WriteString(w, throttledQuery)
					time.Sleep(time.Hour)
					io.WriteString(w, long)
					w.Close()
				}()
			}
			if got, err := io.ReadAll(resp.Body); string(got) != throttledQuery+long || err != nil {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
			}
			resp.Body.Close()
		}
		// Whoever does not want it closes it.
		sl, _ := io.Pipe()
		rt := newTransport(t, roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			resp := respond(req, jsonReply(429, ""))
			resp.Body, resp.ContentLength = sl, -1
			return resp, nil
		}))
		respondsWith(t, rt, once(get(t, api)), 429)
	})
}

// TestLongBodiesAreNotRead: a body that is known to say nothing is the caller's to read.
func TestLongBodiesAreNotRead(t *testing.T) {
	for extra, want := range map[int]bool{0: true, 1: false} {
		read := false
		rt := newTransport(t, roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			resp := respond(r, jsonReply(429, ""))
			resp.ContentLength = int64(retry.MaxBody + extra)
			resp.Body = io.NopCloser(readerFunc(func([]byte) (int, error) { read = true; return 0, io.EOF }))
			return resp, nil
		}), httpclient.WithAttempts(1))
		if respondsWith(t, rt, get(t, api), 429); read != want {
			t.Errorf("%d bytes beyond what is read: read %v", extra, read)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestProviderIsChecked(t *testing.T) {
	for _, p := range []retry.Provider{0, 99} {
		if _, err := httpclient.New(nil, httpclient.WithProvider(p)); err == nil || !strings.Contains(err.Error(), "provider is ") {
			t.Errorf("provider %d: %v", p, err)
		}
	}
}
