package httpclient_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestLearntLimitIsWaitedForInTurn: who came first goes first when a learnt limit admits more.
func TestLearntLimitIsWaitedForInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		base := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			order = append(order, r.URL.Path)
			mu.Unlock()
			return respond(r, status(200, "RateLimit-Policy", `"q";q=3;w=10`, "RateLimit", `"q";r=2;t=10`)), nil
		})
		rt := newTransport(t, base, httpclient.WithDiscovery(nil), httpclient.WithMaxWait(time.Hour))
		defer rt.Close()
		var wg sync.WaitGroup
		var want []string
		for i := range 12 {
			path := fmt.Sprintf("/%02d", i)
			want = append(want, path)
			wg.Go(func() {
				resp, err := rt.RoundTrip(get(t, "http://api.test"+path))
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
			})
			time.Sleep(100 * time.Millisecond)
		}
		wg.Wait()
		if !slices.Equal(order, want) {
			t.Errorf("%v", order)
		}
	})
}

// TestLimiterHoldsBesideWhatIsLearnt: requests that wait for a learnt limit do not leave beyond the rate of the limiter when that
// has room again, and those that wait for the limiter leave at its rate.
func TestLimiterHoldsBesideWhatIsLearnt(t *testing.T) {
	for name, c := range map[string]struct {
		limit  limiter.Limit
		quota  string        // of 60 s, as the server says it
		left   int           // of it, after the first request
		n      int           // requests
		within time.Duration // in which all are sent
		most   int           // in any second
	}{
		"the quota is less":   {limiter.GCRA(limiter.PerSecond(2), 1), `"q";q=100;w=60`, 20, 150, 150 * time.Second, 3},
		"the limiter is less": {limiter.GCRA(limiter.PerSecond(1), 1), `"q";q=1000;w=60`, 999, 100, 105 * time.Second, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var at []time.Duration
			start := time.Now()
			base := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Since(start))
				if len(at) > 1 {
					return respond(r, status(200)), nil
				}
				return respond(r, status(200, "RateLimit-Policy", c.quota, "RateLimit", fmt.Sprintf(`"q";r=%d;t=60`, c.left))), nil
			})
			lim, err := limiter.NewLocal(c.limit)
			if err != nil {
				t.Fatal(err)
			}
			rt := newTransport(t, base, httpclient.WithDiscovery(nil), httpclient.WithLimiter(lim), httpclient.WithMaxWait(time.Hour))
			defer rt.Close()
			send := func() {
				resp, err := rt.RoundTrip(get(t, api))
				if err != nil {
					t.Error(name, err)
					return
				}
				resp.Body.Close()
			}
			send()
			var wg sync.WaitGroup
			for range c.n - 1 {
				wg.Go(send)
			}
			wg.Wait()
			for i := range at {
				n := 0
				for n < len(at)-i && at[i+n] < at[i]+time.Second {
					n++
				}
				if n > c.most {
					t.Fatalf("%s: %d requests in the second from %v", name, n, at[i])
				}
			}
			if took := time.Since(start); took > c.within {
				t.Errorf("%s: %v", name, took)
			}
		})
	}
}

// TestGarbageQuotas: whatever a server says of its quota, a client with the defaults and with
// discovery gets its responses, in bounded time, and a caller that gives up gets away at once.
func TestGarbageQuotas(t *testing.T) {
	lies := []string{"", "0", "-1", "1e400", "9999999999999999999999", "NaN", "inf", "9999-12-31T23:59:59Z", "Fri, 31 Dec 9999 23:59:59 GMT", "Thu, 01 Jan 1970 00:00:00 GMT", "1, 2", ",", "0x10", "\x00", "5;w=-1", "1;w=99999999999999999999", `"`, "(", ":AAAA:", "٣"}
	for _, limit := range lies {
		for _, reset := range lies {
			synctest.Test(t, func(t *testing.T) {
				sent := 0
				base := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
					sent++
					h := http.Header{}
					for _, name := range []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "Ratelimit-Policy", "Ratelimit", "X-Shopify-Shop-Api-Call-Limit"} {
						h[name] = []string{limit, "0"}
					}
					for _, name := range []string{"X-Ratelimit-Reset", "Retry-After", "Retry-After-Ms", "X-Ratelimit-Reset-After", "Date", "Age"} {
						h[name] = []string{reset}
					}
					resp := respond(r, status(429))
					resp.Header = h
					return resp, nil
				})
				rt := newTransport(t, base, httpclient.WithDiscovery(nil))
				defer rt.Close()
				start := time.Now()
				for range 3 {
					if resp, err := rt.RoundTrip(get(t, api)); err == nil {
						resp.Body.Close()
					}
				}
				if took := time.Since(start); took > 3*5*time.Minute || sent > 9 || sent == 0 {
					t.Errorf("limit %q, reset %q: %v, %d requests", limit, reset, took, sent)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				defer cancel()
				start = time.Now()
				if resp, err := rt.RoundTrip(get(t, api).WithContext(ctx)); err == nil {
					resp.Body.Close()
				}
				if took := time.Since(start); took > 5*time.Millisecond {
					t.Errorf("limit %q, reset %q: a caller with 5 ms waited %v", limit, reset, took)
				}
			})
		}
	}
}

// TestWrongQuotaIsCorrected: a server that says once that nothing is left for weeks is asked again in
// an hour, as after any answer, and a window that it says then counts before long.
func TestWrongQuotaIsCorrected(t *testing.T) {
	for name, lie := range map[string][]string{
		"nothing left":       {"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1728000"},
		"one in twenty days": {"X-RateLimit-Limit", "1", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1728000"},
		"a policy":           {"RateLimit-Policy", `"q";q=1;w=1728000`, "RateLimit", `"q";r=0;t=1728000`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent := 0
				base := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
					time.Sleep(time.Millisecond)
					if sent++; sent == 1 {
						return respond(r, status(200, lie...)), nil
					}
					if lie[0] == "RateLimit-Policy" {
						return respond(r, status(200, lie[0], `"q";q=100;w=60`, "RateLimit", `"q";r=90;t=60`)), nil
					}
					return respond(r, status(200, "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "90", "X-RateLimit-Reset", "60")), nil
				})
				rt := newTransport(t, base, httpclient.WithDiscovery(nil))
				defer rt.Close()
				send := func() bool {
					was := sent
					if resp, err := rt.RoundTrip(get(t, api)); err == nil {
						resp.Body.Close()
					}
					return sent > was
				}
				send()
				for range 5 {
					if send() {
						t.Fatal("it was not heeded at all")
					}
					time.Sleep(10 * time.Minute)
				}
				time.Sleep(10 * time.Minute)
				if !send() {
					t.Fatal("it is not asked again after an hour")
				}
				for range 30 {
					send()
					time.Sleep(10 * time.Second)
				}
				if was := sent; true {
					for range 60 {
						send()
					}
					if sent-was < 50 {
						t.Errorf("%d of 60 requests were sent, of 100 in a minute", sent-was)
					}
				}
			})
		})
	}
}

// TestManyHosts: more hosts than are remembered do not wait for each other's quotas.
func TestManyHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			return respond(r, status(200, "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "9", "X-RateLimit-Reset", "3600")), nil
		})
		rt := newTransport(t, base, httpclient.WithDiscovery(nil))
		defer rt.Close()
		start := time.Now()
		for i := range 110_000 {
			resp, err := rt.RoundTrip(get(t, fmt.Sprintf("http://h%d.test/", i)))
			if err != nil {
				t.Fatalf("host %d: %v", i, err)
			}
			resp.Body.Close()
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("they waited for %v", took)
		}
	})
}

// TestQuotaThatIsPacedClosesNoGate: when nothing is left of a quota that requests are paced by,
// the next ones wait in line; a rejection closes the gate all the same.
func TestQuotaThatIsPacedClosesNoGate(t *testing.T) {
	paced := []string{"RateLimit-Policy", `"q";q=3;w=10`, "RateLimit", `"q";r=0;t=10`}
	for name, c := range map[string]struct {
		code   int
		header []string
		want   int
	}{
		"an answer":          {200, paced, 0},
		"a rejection":        {429, paced, 1},
		"a failure":          {500, paced, 0},
		"too large to pace":  {200, []string{"RateLimit-Policy", `"q";q=2000000;w=10`, "RateLimit", `"q";r=0;t=10`}, 1},
		"tokens, of a 500":   {500, []string{"X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "10s"}, 1},
		"nothing that ended": {500, nil, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			cooldowns := 0
			rt := newTransport(t, scripted(status(c.code, c.header...)),
				httpclient.WithDiscovery(nil), httpclient.WithAttempts(1), httpclient.WithHooks(httpclient.Hooks{
					Cooldown: func(context.Context, httpclient.CooldownInfo) { cooldowns++ },
				}))
			defer rt.Close()
			if respondsWith(t, rt, get(t, api), c.code); cooldowns != c.want {
				t.Errorf("%s: %d cooldowns, want %d", name, cooldowns, c.want)
			}
		})
	}
}

// TestNothingLeftStopsPacedRequests, also where less than all of the limit was counted here, or only a part of it is sent.
func TestNothingLeftStopsPacedRequests(t *testing.T) {
	said := func(code, left int, reset time.Duration) reply {
		return status(code, "RateLimit-Policy", `"q";q=1000;w=60`, "RateLimit", fmt.Sprintf(`"q";r=%d;t=%d`, left, int(reset.Seconds())))
	}
	for name, part := range map[string]bool{"nearly all": false, "a part": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				ours, after := 0, 0
				base := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
					used := time.Since(start) % time.Minute
					switch left := 1000 - ours - ours/12; { // others take a twelfth
					case part && ours == 500:
						ours++
						return respond(r, said(429, 500, time.Minute-used)), nil
					case left > 0:
						ours++
						return respond(r, said(200, left, time.Minute-used)), nil
					default:
						after++
						return respond(r, said(200, 0, time.Minute-used)), nil
					}
				})
				rt := newTransport(t, base, httpclient.WithAttempts(1), httpclient.WithDiscovery(nil), httpclient.WithMaxWait(0))
				defer rt.Close()
				for after == 0 {
					if resp, err := rt.RoundTrip(get(t, api)); err == nil {
						resp.Body.Close()
					}
					time.Sleep(20 * time.Millisecond)
				}
				for end := time.Now().Truncate(time.Minute).Add(time.Minute); time.Until(end) > time.Second; time.Sleep(20 * time.Millisecond) {
					if resp, err := rt.RoundTrip(get(t, api)); err == nil {
						resp.Body.Close()
					}
				}
				if after > 1 {
					t.Errorf("%d were sent after %d, when nothing was left", after-1, ours)
				}
			})
		})
	}
}

// TestPolicyThatIsNotNamedIsForgotten: two windows after the last response that named it, it paces no more.
func TestPolicyThatIsNotNamedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		base := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			if time.Since(start) < 5*time.Second {
				return respond(r, status(200, "RateLimit-Policy", `"free";q=10;w=90`, "RateLimit", `"free";r=9;t=90`)), nil
			}
			return respond(r, status(200, "RateLimit-Policy", `"pro";q=1000;w=10`, "RateLimit", `"pro";r=999;t=10`)), nil
		})
		rt := newTransport(t, base, httpclient.WithAttempts(1), httpclient.WithDiscovery(nil), httpclient.WithMaxWait(0))
		defer rt.Close()
		sends := func(d time.Duration) (n int) {
			for start := time.Now(); time.Since(start) < d; time.Sleep(time.Second) {
				if resp, err := rt.RoundTrip(get(t, api)); err == nil {
					resp.Body.Close()
					n++
				}
			}
			return n
		}
		if n := sends(3 * time.Minute); n > 30 {
			t.Errorf("%d were sent in two windows of ten", n)
		}
		sends(2 * time.Minute)
		if n := sends(time.Minute); n != 60 {
			t.Errorf("%d of 60 were sent under a limit of 1000 in 10 s", n)
		}
	})
}

// TestSilentServerIsPaced: after a 429 of a server that says nothing, requests are sent at seven
// tenths of the rate; a 503, which may come from a proxy, lowers nothing, and neither does a
// rejection that waiting does not end.
func TestSilentServerIsPaced(t *testing.T) {
	for name, c := range map[string]struct {
		p    reply
		want bool
	}{
		"429":        {status(429), true},
		"503":        {status(503), false},
		"it is over": {status(429, "X-Should-Retry", "false"), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			replies := make([]reply, 0, 102)
			for range 100 {
				replies = append(replies, status(200))
			}
			waits := 0
			rt := newTransport(t, scripted(append(replies, c.p, status(200))...), httpclient.WithDiscovery(nil), httpclient.WithAttempts(1),
				httpclient.WithHooks(httpclient.Hooks{Wait: func(context.Context, httpclient.WaitInfo) { waits++ }}))
			defer rt.Close()
			for range 100 {
				respondsWith(t, rt, get(t, api), 200)
			}
			if respondsWith(t, rt, get(t, api), c.p.status); waits != 0 {
				t.Errorf("%d waits before %s", waits, name)
			}
			for range 80 {
				respondsWith(t, rt, get(t, api), 200)
			}
			if (waits > 0) != c.want {
				t.Errorf("%d waits after %s", waits, name)
			}
		})
	}
}

// TestFailureIsNoAnswer: a server that says nothing of quotas is paced until it has answered;
// a failure, which may come from a proxy, is none.
func TestFailureIsNoAnswer(t *testing.T) {
	for code, want := range map[int]bool{200: false, 499: false, 500: true, 503: true} {
		synctest.Test(t, func(t *testing.T) {
			waits := 0
			rt := newTransport(t, scripted(status(code)), httpclient.WithDiscovery(nil), httpclient.WithAttempts(1), httpclient.WithoutThrottle(),
				httpclient.WithHooks(httpclient.Hooks{Wait: func(context.Context, httpclient.WaitInfo) { waits++ }}))
			defer rt.Close()
			for range 40 {
				respondsWith(t, rt, get(t, api), code)
			}
			if (waits > 0) != want {
				t.Errorf("%d: %d waits", code, waits)
			}
		})
	}
}

// TestQuotaOfAPartIsLearntApart: what belongs to another part of a server does not wait for it.
func TestQuotaOfAPartIsLearntApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &quotas{replies: map[string]reply{
			"/v1/responses": status(200, "X-RateLimit-Limit-Requests", "2", "X-RateLimit-Remaining-Requests", "0", "X-RateLimit-Reset-Requests", "10s"),
		}}
		rt := newTransport(t, q, httpclient.WithDiscovery(nil))
		defer rt.Close()
		sends(t, rt, "http://api.test/v1/responses", 200, 0)
		for range 20 {
			sends(t, rt, "http://api.test/v1/models", 200, 0)
		}
		sends(t, rt, "http://api.test/v1/responses", 200, 9*time.Second)
	})
}

// TestPacedQuotaOfAPartClosesNoGate: as one of all requests closes none.
func TestPacedQuotaOfAPartClosesNoGate(t *testing.T) {
	for name, header := range map[string][]string{
		"all requests": {"X-RateLimit-Limit", "3", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "10"},
		"of a part":    {"X-RateLimit-Limit-Requests", "3", "X-RateLimit-Remaining-Requests", "0", "X-RateLimit-Reset-Requests", "10s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			cooldowns := 0
			rt := newTransport(t, scripted(status(200, header...)), httpclient.WithDiscovery(nil), httpclient.WithAttempts(1),
				httpclient.WithHooks(httpclient.Hooks{Cooldown: func(context.Context, httpclient.CooldownInfo) { cooldowns++ }}))
			defer rt.Close()
			if respondsWith(t, rt, get(t, api), 200); cooldowns != 0 {
				t.Errorf("%s: %d cooldowns, want 0", name, cooldowns)
			}
		})
	}
}

// TestCoolsDownBeforeRedisKnows: a process sends nothing more once a host has asked it to wait, or has said that nothing
// is left, also while what the host said of its quota is being saved in a Redis that does not answer.
func TestCoolsDownBeforeRedisKnows(t *testing.T) {
	for name, last := range map[string]reply{
		"a rejection":     status(429, "RateLimit-Policy", `"q";q=100;w=10`, "RateLimit", `"q";r=90;t=10`, "Retry-After", "10"),
		"nothing is left": status(200, "RateLimit-Policy", `"q";q=4000;w=10`, "RateLimit", `"q";r=0;t=10`),
	} {
		t.Run(name, func(t *testing.T) {
			sim.Test(t, func(t *testing.T, r *sim.Redis) {
				rdb := r.Client("a", redis.Options{MaxRetries: -1, DialerRetries: 1})
				defer rdb.Close()
				sent := 0
				base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
					if sent++; sent == 1 {
						return respond(req, status(200, "RateLimit-Policy", `"q";q=5000;w=10`, "RateLimit", `"q";r=4900;t=10`)), nil
					}
					r.SetPath("a", func(p *sim.Path) { p.Lost = true })
					time.Sleep(20 * time.Millisecond)
					return respond(req, last), nil
				})
				rt := newTransport(t, base, httpclient.WithDiscovery(rdb, limiter.WithLogger(discard)), httpclient.WithAttempts(1), httpclient.WithMaxWait(time.Second))
				defer rt.Close()
				respondsWith(t, rt, get(t, "http://api.test/"), 200).Body.Close()
				var wg sync.WaitGroup
				wg.Go(func() { respondsWith(t, rt, get(t, "http://api.test/"), last.status).Body.Close() })
				for range 3 { // it is sent, and the next ones decided before there is an answer
					time.Sleep(10 * time.Millisecond)
					wg.Go(func() {
						if resp, err := rt.RoundTrip(get(t, "http://api.test/")); err == nil {
							resp.Body.Close()
						}
					})
				}
				wg.Wait()
				if sent != 2 {
					t.Errorf("%d requests were sent", sent)
				}
			})
		})
	}
}
