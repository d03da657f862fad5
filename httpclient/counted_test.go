package httpclient_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestQuotaThatTheFleetUsedUpClosesNoGate: a process hears that nothing is left, and others of its fleet have used the
// rest. The limiter denies requests until there is more, and the key need not cool down for the reset, which servers say
// in whole seconds, and spread what comes after it. Where strangers have used some, or Redis does not say, it does.
func TestQuotaThatTheFleetUsedUpClosesNoGate(t *testing.T) {
	const limit, window = 100, 10 * time.Second
	for name, c := range map[string]struct {
		strangers    int
		lost, leaves bool
		cooldowns    int64
	}{
		"by the fleet":          {},
		"by strangers, too":     {strangers: 5, cooldowns: 1},
		"Redis is away":         {lost: true, cooldowns: 1},
		"its caller has left":   {leaves: true, cooldowns: 1},
		"away, by strangers":    {strangers: 5, lost: true, cooldowns: 1},
		"by strangers, it left": {strangers: 5, leaves: true, cooldowns: 1},
	} {
		t.Run(name, func(t *testing.T) {
			sim.Test(t, func(t *testing.T, r *sim.Redis) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				start := time.Now()
				var sent, cooldowns atomic.Int64
				base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
					last := req.URL.Path == "/last"
					if last {
						time.Sleep(time.Second)
						if c.lost {
							r.SetPath("a", func(p *sim.Path) { p.Lost = true })
						}
						if c.leaves {
							cancel()
						}
					}
					left := limit - int(sent.Add(1))
					if last {
						left -= c.strangers
					}
					reset := window - time.Since(start).Truncate(time.Second)
					return respond(req, status(200, "RateLimit-Policy", fmt.Sprintf(`"q";q=%d;w=10`, limit),
						"RateLimit", fmt.Sprintf(`"q";r=%d;t=%d`, max(0, left), max(1, int(reset.Seconds()))))), nil
				})
				process := func(name string) http.RoundTripper {
					rdb := r.Client(name, redis.Options{MaxRetries: -1, DialerRetries: 1})
					rt := newTransport(t, base, httpclient.WithDiscovery(rdb, limiter.WithLogger(discard)), httpclient.WithAttempts(1), httpclient.WithLogger(discard),
						httpclient.WithHooks(httpclient.Hooks{Cooldown: func(context.Context, httpclient.CooldownInfo) { cooldowns.Add(1) }}))
					t.Cleanup(func() { rt.Close(); rdb.Close() })
					return rt
				}
				a, b := process("a"), process("b")
				n := limit - c.strangers
				for range n - 4 {
					respondsWith(t, a, get(t, "http://api.test/"), 200).Body.Close()
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					respondsWith(t, a, get(t, "http://api.test/last").WithContext(ctx), 200).Body.Close()
				}()
				time.Sleep(100 * time.Millisecond)
				for range 3 {
					respondsWith(t, b, get(t, "http://api.test/"), 200).Body.Close()
				}
				if <-done; sent.Load() != int64(n) || cooldowns.Load() != c.cooldowns {
					t.Errorf("%d were sent, then %d cooldowns", sent.Load(), cooldowns.Load())
				}
				time.Sleep(100 * time.Millisecond) // the fleet knows it, also where its caller did not wait for that
				for _, rt := range []http.RoundTripper{a, b} {
					short, end := context.WithDeadline(t.Context(), start.Add(window))
					if resp, err := rt.RoundTrip(get(t, "http://api.test/").WithContext(short)); err == nil {
						resp.Body.Close()
					}
					end()
				}
				if more := sent.Load() - int64(n); more != 0 && !c.lost { // then b does not hear it
					t.Errorf("%d more were sent in the same window", more)
				}
			})
		})
	}
}

// TestNothingIsSentWhileRedisIsAsked whether the fleet has used up what a server says is used up: requests that were
// decided before wait for the answer.
func TestNothingIsSentWhileRedisIsAsked(t *testing.T) {
	const limit, before = 20, 17
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := r.Client("a", redis.Options{MaxRetries: -1, DialerRetries: 1})
		defer rdb.Close()
		var sent atomic.Int64
		base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			n := int(sent.Add(1))
			left := limit - n
			if n > before {
				r.SetPath("a", func(p *sim.Path) { p.Lost = true })
				time.Sleep(20 * time.Millisecond)
				left = 0
			}
			return respond(req, status(200, "RateLimit-Policy", `"q";q=20;w=10`, "RateLimit", fmt.Sprintf(`"q";r=%d;t=10`, left))), nil
		})
		rt := newTransport(t, base, httpclient.WithDiscovery(rdb, limiter.WithLogger(discard)), httpclient.WithAttempts(1), httpclient.WithMaxWait(time.Second))
		defer rt.Close()
		for range before {
			respondsWith(t, rt, get(t, "http://api.test/"), 200).Body.Close()
		}
		var wg sync.WaitGroup
		wg.Go(func() { respondsWith(t, rt, get(t, "http://api.test/"), 200).Body.Close() })
		for range 3 { // it is sent, and the next ones decided before there is an answer
			time.Sleep(10 * time.Millisecond)
			wg.Go(func() {
				if resp, err := rt.RoundTrip(get(t, "http://api.test/")); err == nil {
					resp.Body.Close()
				}
			})
		}
		if wg.Wait(); sent.Load() != before+1 {
			t.Errorf("%d requests were sent", sent.Load())
		}
	})
}
