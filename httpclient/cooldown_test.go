package httpclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// TestOne429StopsAll: a hundred goroutines send, one is refused for 4 s. Until
// then nobody sends, and then they come back spread.
func TestOne429StopsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(429, "Retry-After", "4"), status(200))
		rt := newTransport(t, s)
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 30 * time.Millisecond)
				respondsWith(t, rt, get(t, api), 200)
			})
		}
		wg.Wait()
		s.wantSent(t, 101)
		var after []time.Duration
		for _, at := range s.sent()[1:] {
			after = append(after, at.Sub(start))
		}
		slices.Sort(after)
		between(t, "the first came back after", after[0], 4*time.Second, 6*time.Second)
		between(t, "the last came back after", after[99], 4*time.Second, 6*time.Second)
		// Spread: no tenth of the two seconds sees more than a third of them.
		for i := range after {
			j := i
			for j < len(after) && after[j]-after[i] < 200*time.Millisecond {
				j++
			}
			if j-i > 33 {
				t.Fatalf("%d of 100 came back within 200ms", j-i)
			}
		}
	})
}

func TestOtherHostsDoNotCoolDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newTransport(t, scripted(status(429, "Retry-After", "60"), status(200)))
		respondsWith(t, rt, once(get(t, api)), 429)
		start := time.Now()
		respondsWith(t, rt, get(t, "http://other.test/"), 200)
		if d := time.Since(start); d != 0 {
			t.Errorf("another host waited %v", d)
		}
		// The same host by other names.
		for _, url := range []string{"http://API.test/", "http://api.test:80/x", "https://api.test:443/"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			coolsDown(t, rt, get(t, url).WithContext(ctx), 429)
			cancel()
		}
	})
}

func once(r *http.Request) *http.Request {
	return r.WithContext(httpclient.WithCall(r.Context(), httpclient.Call{Attempts: 1}))
}

// TestCachedResponseClosesNoGate: a response that a cache has kept speaks of an
// earlier request's quota.
func TestCachedResponseClosesNoGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newTransport(t, scripted(status(200, "Age", "300", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "600"), status(200)))
		respondsWith(t, rt, get(t, api), 200)
		start := time.Now()
		respondsWith(t, rt, get(t, api), 200)
		if d := time.Since(start); d != 0 {
			t.Errorf("the next request waited %v", d)
		}
	})
}

func TestNothingLeftOfAQuotaCoolsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(200, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "10"), status(200))
		rt := newTransport(t, s)
		start := time.Now()
		resp := respondsWith(t, rt, get(t, api), 200)
		if d := time.Since(start); d != 0 {
			t.Errorf("the response itself was held up for %v", d)
		}
		if httpclient.GaveUp(resp) != nil {
			t.Error("gave up on a success")
		}
		respondsWith(t, rt, get(t, api), 200)
		between(t, "the next was sent after", s.gap(1), 10*time.Second, 15*time.Second)

		s = scripted(status(200, "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "10"), status(200))
		rt = newTransport(t, s)
		respondsWith(t, rt, get(t, api), 200)
		respondsWith(t, rt, get(t, api), 200)
		if d := s.gap(1); d != 0 {
			t.Errorf("with one left the next was sent after %v", d)
		}
	})
}

func TestCooldownThatDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(429, "Retry-After", "1800"), status(200))
		rt := newTransport(t, s)
		respondsWith(t, rt, get(t, api), 429)
		time.Sleep(5 * time.Minute)
		closed := false
		r := get(t, api)
		r.Body = closes{&closed}
		start := time.Now()
		e := coolsDown(t, rt, r, 429)
		if e.Wait != 25*time.Minute || e.Key != "api.test" || time.Since(start) != 0 {
			t.Errorf("%+v after %v", e, time.Since(start))
		}
		if !closed {
			t.Error("the body was not closed")
		}
		time.Sleep(24 * time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if e = coolsDown(t, rt, get(t, api).WithContext(ctx), 429); !errors.Is(e, context.DeadlineExceeded) {
			t.Errorf("%v does not match context.DeadlineExceeded", e)
		}
		respondsWith(t, rt, get(t, api), 200)
		s.wantSent(t, 2)
	})
}

// TestCooldownIsAtMostAnHour: what callers are told is the wait that the server
// named nevertheless.
func TestCooldownIsAtMostAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(503), status(429, "Retry-After", "7200"), status(200))
		rt := newTransport(t, s, httpclient.WithBackoff(retry.Backoff{Initial: time.Minute, Max: time.Minute, Jitter: retry.JitterNone}))
		var before *http.Response
		var wg sync.WaitGroup
		wg.Go(func() { before = respondsWith(t, rt, get(t, api), 503) })
		time.Sleep(30 * time.Second)
		resp := respondsWith(t, rt, get(t, api), 429)
		if d, _ := httpclient.Wait(resp); d != 2*time.Hour {
			t.Errorf("the caller is told %v", d)
		}
		wg.Wait()
		if e := gaveUpFor(t, before, retry.CoolingDown); e.Wait != 2*time.Hour-30*time.Second {
			t.Errorf("whoever waited for another try is told %v", e.Wait)
		}
		if e := coolsDown(t, rt, get(t, api), 429); e.Wait != 2*time.Hour-30*time.Second {
			t.Errorf("the next one is told %v", e.Wait)
		}
		s.wantSent(t, 2)
		time.Sleep(time.Hour)
		respondsWith(t, rt, get(t, api), 200)
	})
}

func TestKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(429, "Retry-After", "60"), status(200))
		rt := newTransport(t, s, httpclient.WithKey(func(r *http.Request) string { return r.Header.Get("Tenant") }))
		tenant := func(name string) *http.Request {
			r := once(get(t, api))
			r.Header.Set("Tenant", name)
			return r
		}
		respondsWith(t, rt, tenant("a"), 429)
		start := time.Now()
		respondsWith(t, rt, tenant("b"), 200)
		respondsWith(t, rt, tenant(""), 200)
		respondsWith(t, rt, tenant("a").WithContext(httpclient.WithCall(t.Context(), httpclient.Call{Key: "c"})), 200)
		if d := time.Since(start); d != 0 {
			t.Errorf("other keys waited %v", d)
		}
		respondsWith(t, rt, tenant("a"), 200)
		between(t, "the key waited", time.Since(start), time.Minute, 90*time.Second)
	})
}

func TestNoKeyIsNotPacedButRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := newLocal(t, limiter.FixedWindow(limiter.PerHour(1)))
		s := scripted(status(429, "Retry-After", "9"), status(200))
		rt := newTransport(t, s, httpclient.WithLimiter(lim), httpclient.WithKey(func(*http.Request) string { return "" }))
		respondsWith(t, rt, get(t, api), 200)
		between(t, "waited", s.gap(1), 9*time.Second, 13500*time.Millisecond)
		respondsWith(t, rt, get(t, api), 200)
	})
}

// blocking is a limiter that admits all and remembers blocks.
type blocking struct {
	mu     sync.Mutex
	blocks []string
}

func (*blocking) AllowN(context.Context, string, int) (limiter.Result, error) {
	return limiter.Result{Allowed: true}, nil
}

func (b *blocking) Block(_ context.Context, key string, d time.Duration, _ ...limiter.Limit) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.blocks = append(b.blocks, fmt.Sprint(key, " ", d))
	return limiter.ErrUnavailable
}

func TestTheFleetIsBlockedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := new(blocking)
		// All are on their way when the rejections come.
		rt := newTransport(t, roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return respond(r, status(429, "Retry-After", "10")), nil
		}), httpclient.WithLimiter(b))
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				respondsWith(t, rt, once(get(t, api)), 429)
			})
		}
		wg.Wait()
		if !slices.Equal(b.blocks, []string{"api.test 10s"}) {
			t.Errorf("blocks %q", b.blocks)
		}
	})
}

// TestLateBodyOfARejection: the key cools down by the headers while the body is waited for, and goes on when
// that says that there is nothing to wait for.
func TestLateBodyOfARejection(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		took time.Duration
		sent int
	}{
		"cools down":  {`{}`, 100 * time.Millisecond, 1},
		"comes late":  {`{}`, time.Minute, 1},
		"is no limit": {`{"error":{"code":"insufficient_quota"}}`, 100 * time.Millisecond, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent := 0
				base := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
					sent++
					resp := respond(r, status(429, "Retry-After", "60", "Content-Type", "application/json"))
					body, w := io.Pipe()
					time.AfterFunc(c.took, func() {
						w.Write([]byte(c.body))
						w.Close()
					})
					resp.Body, resp.ContentLength = body, -1
					return resp, nil
				})
				var cooled []httpclient.CooldownInfo
				hooks := httpclient.Hooks{Cooldown: func(_ context.Context, i httpclient.CooldownInfo) { cooled = append(cooled, i) }}
				rt := newTransport(t, base, httpclient.WithAttempts(1), httpclient.WithMaxWait(time.Millisecond), httpclient.WithHooks(hooks), httpclient.WithoutThrottle())
				var wg sync.WaitGroup
				ask := func() {
					if resp, err := rt.RoundTrip(get(t, api)); err == nil {
						resp.Body.Close()
					}
				}
				wg.Go(ask)
				synctest.Wait()
				for range 90 {
					time.Sleep(time.Millisecond)
					resp := coolsDown(t, rt, get(t, api), 429)
					between(t, "the wait is", resp.Wait, 59*time.Second, time.Minute)
				}
				wg.Wait()
				ask()
				if sent != c.sent || len(cooled) != 2-c.sent {
					t.Errorf("%d were sent, with %d cooldowns; want %d", sent, len(cooled), c.sent)
				}
			})
		})
	}
}

// TestNothingLeftBesideRetryAfter: a shorter wait of one request does not hide that the quota of all is used up.
func TestNothingLeftBesideRetryAfter(t *testing.T) {
	for code, want := range map[int]time.Duration{401: time.Minute, 404: time.Minute, 500: time.Minute, 429: time.Second, 503: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := scripted(status(code, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "60", "Retry-After", "1"), status(200))
			rt := newTransport(t, s)
			respondsWith(t, rt, once(get(t, api)), code)
			respondsWith(t, rt, get(t, api), 200)
			between(t, strconv.Itoa(code), s.gap(1), want, want*3/2)
		})
	}
}
