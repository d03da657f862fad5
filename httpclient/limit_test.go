package httpclient_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

func TestLimiterPaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(200))
		rt := newTransport(t, s, httpclient.WithLimiter(newLocal(t, limiter.GCRA(limiter.PerSecond(10), 1))))
		start := time.Now()
		for range 11 {
			respondsWith(t, rt, get(t, api), 200)
		}
		// The pace itself is not lengthened by jitter.
		between(t, "11 requests at 10 per second took", time.Since(start), time.Second, 1020*time.Millisecond)
	})
}

// TestWindowsEndIsSpread: those who wait for a window's end, or for the end of
// a block of the fleet, do not come back at that instant.
func TestWindowsEndIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := newLocal(t, limiter.TokenBucket(limiter.PerSecond(1000), 1000))
		s := scripted(status(200))
		rt := newTransport(t, s, httpclient.WithLimiter(lim))
		if err := lim.Block(t.Context(), "api.test", 4*time.Second); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { respondsWith(t, rt, get(t, api), 200) })
		}
		wg.Wait()
		s.wantSent(t, 50)
		first, last := s.sent()[0].Sub(start), s.sent()[49].Sub(start)
		between(t, "the first came after", first, 4*time.Second, 6*time.Second)
		between(t, "from the first to the last", last-first, time.Second, 2*time.Second)
	})
}

func TestThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := newLocal(t, limiter.TokenBucket(limiter.PerMinute(1), 1))
		s := scripted(status(200))
		rt := newTransport(t, s, httpclient.WithLimiter(lim))
		respondsWith(t, rt, get(t, api), 200)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		e := failsFor(t, rt, get(t, api).WithContext(ctx), retry.Throttled)
		if e.Wait != time.Minute || !errors.Is(e, context.DeadlineExceeded) || time.Since(start) != 0 {
			t.Errorf("%v after %v", e, time.Since(start))
		}
		s.wantSent(t, 1)
	})
}

// TestThrottledRetryReturnsTheResponse: when the second attempt is not admitted
// the first one's response is the caller's, whole.
func TestThrottledRetryReturnsTheResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := newLocal(t, limiter.TokenBucket(limiter.PerHour(1), 1))
		p := status(503)
		p.body = "busy"
		s := scripted(p, status(200))
		resp, err := newTransport(t, s, httpclient.WithLimiter(lim)).RoundTrip(get(t, api))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b := make([]byte, 10)
		if n, _ := resp.Body.Read(b); string(b[:n]) != "busy" {
			t.Errorf("body %q", b[:n])
		}
		if e := gaveUpFor(t, resp, retry.Throttled); e.Wait < 59*time.Minute {
			t.Errorf("%+v", e)
		}
		s.wantSent(t, 1)
	})
}

func TestCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := newLocal(t, limiter.TokenBucket(limiter.PerHour(10), 10))
		rt := newTransport(t, scripted(status(200)), httpclient.WithLimiter(lim))
		r := get(t, api)
		r = r.WithContext(httpclient.WithCall(r.Context(), httpclient.Call{Cost: 5}))
		respondsWith(t, rt, r, 200)
		respondsWith(t, rt, r, 200)
		failsFor(t, rt, get(t, api), retry.Throttled)
	})
}

func TestShapingDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(200))
		rt := newTransport(t, s, httpclient.WithLimiter(newLocal(t, limiter.LeakyBucketShaping(limiter.PerSecond(2), 10))))
		start := time.Now()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { respondsWith(t, rt, get(t, api), 200) })
		}
		wg.Wait()
		between(t, "5 at 2 per second took", time.Since(start), 2*time.Second, 2*time.Second)
	})
}

// odd is a limiter that returns what it holds.
type odd struct {
	res limiter.Result
	err error
}

func (o odd) AllowN(context.Context, string, int) (limiter.Result, error) { return o.res, o.err }

func TestLimiterThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(status(200))
		e := failsFor(t, newTransport(t, s, httpclient.WithLimiter(odd{err: limiter.ErrUnavailable})), get(t, api), retry.LimiterFailed)
		if !errors.Is(e, limiter.ErrUnavailable) {
			t.Error(e)
		}
		s.wantSent(t, 0)
		// One that denies for ever, and never says until when.
		start := time.Now()
		failsFor(t, newTransport(t, s, httpclient.WithLimiter(odd{}), httpclient.WithMaxTotalWait(time.Second)), get(t, api), retry.Throttled)
		between(t, "it took", time.Since(start), 900*time.Millisecond, time.Second)
	})
}

// cancels is a limiter during whose decision the caller leaves.
type cancels struct{ cancel func() }

func (c cancels) AllowN(ctx context.Context, _ string, _ int) (limiter.Result, error) {
	c.cancel()
	return limiter.Result{}, ctx.Err()
}

func TestCallerLeavesDuringTheDecision(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := newTransport(t, scripted(status(200)), httpclient.WithLimiter(cancels{cancel})).RoundTrip(get(t, api).WithContext(ctx))
	if err != context.Canceled {
		t.Errorf("error %v", err)
	}
}

// TestRetriesTakeFromTheLimit: every attempt is a request to the server.
func TestRetriesTakeFromTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := newLocal(t, limiter.TokenBucket(limiter.PerHour(3), 3))
		respondsWith(t, newTransport(t, scripted(status(503)), httpclient.WithLimiter(lim)), get(t, api), 503)
		if res, err := lim.AllowN(t.Context(), "api.test", 1); err != nil || res.Allowed {
			t.Errorf("%+v, %v after three attempts", res, err)
		}
	})
}

// TestAdaptiveIsOfRejectionsWithoutATime: also of those that say now, but of no failure, and of no
// rejection that waiting does not end.
func TestAdaptiveIsOfRejectionsWithoutATime(t *testing.T) {
	for name, c := range map[string]struct {
		p    reply
		want bool
	}{
		"429":                {status(429), true},
		"429 now":            {status(429, "Retry-After", "0"), true},
		"429 with a time":    {status(429, "Retry-After", "1"), false},
		"429 that is no use": {status(429, "X-Should-Retry", "false"), false},
		"503":                {status(503), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			paced := false
			rt := newTransport(t, scripted(c.p, status(200)), httpclient.WithAdaptive(), httpclient.WithAttempts(1),
				httpclient.WithHooks(httpclient.Hooks{Wait: func(_ context.Context, w httpclient.WaitInfo) {
					paced = paced || w.Why == retry.WaitAdaptive
				}}))
			respondsWith(t, rt, get(t, api), c.p.status)
			for range 3 {
				respondsWith(t, rt, get(t, api), 200)
			}
			if paced != c.want {
				t.Errorf("%s: paced %v", name, paced)
			}
		})
	}
}

func TestAdaptive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A server that admits 50 a second and says nothing else.
		var mu sync.Mutex
		var second int64
		var n, refused int
		start := time.Now()
		base := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			if now := int64(time.Since(start) / time.Second); now != second {
				second, n = now, 0
			}
			if n++; n > 50 {
				refused++
				return respond(r, status(429)), nil
			}
			return respond(r, status(200)), nil
		})
		run := func(rt http.RoundTripper) (sent, rejections int) {
			mu.Lock()
			refused = 0
			mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			for ctx.Err() == nil {
				resp, err := rt.RoundTrip(once(get(t, api)).WithContext(httpclient.WithCall(ctx, httpclient.Call{Attempts: 1})))
				if err == nil {
					resp.Body.Close()
					sent++
				}
				time.Sleep(5 * time.Millisecond) // 200 a second, if it may
			}
			return sent, refused
		}
		sent, rejections := run(newTransport(t, base))
		if share := float64(rejections) / float64(sent); share < 0.7 {
			t.Errorf("unpaced, %.2f of %d were refused: the server is too kind for this test", share, sent)
		}
		sent, rejections = run(newTransport(t, base, httpclient.WithAdaptive()))
		if share := float64(rejections) / float64(sent); share > 0.1 {
			t.Errorf("%.2f of %d requests were refused", share, sent)
		}
		if admitted := sent - rejections; admitted < 120*50*7/10 {
			t.Errorf("%d of %d possible requests were admitted", admitted, 120*50)
		}
	})
}
