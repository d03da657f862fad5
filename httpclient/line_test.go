package httpclient_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// TestTurnsInACooldownAreVoid: a server that enforces what the limiter allows rejects one
// request. Those that hold a turn in the cooldown do not come back together at its end,
// which would be the next rejection, and so on.
func TestTurnsInACooldownAreVoid(t *testing.T) {
	const life = 20 * time.Second
	for _, limit := range []limiter.Limit{
		limiter.LeakyBucketShaping(limiter.PerSecond(100), 100), limiter.GCRA(limiter.PerSecond(100), 5),
	} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				quota := rate.NewLimiter(100, 10)
				start, injected := time.Now(), false
				var rejected, served []time.Duration
				var closed, passed time.Duration // since when, and the last that was sent then
				base := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
					mu.Lock()
					if at := time.Since(start); closed > 0 && at > closed && at < closed+time.Second {
						passed = at
					}
					mu.Unlock()
					time.Sleep(10 * time.Millisecond)
					mu.Lock()
					at := time.Since(start)
					ok := quota.Allow()
					if !injected && at > 2*time.Second {
						injected, ok = true, false
					}
					if ok {
						served = append(served, at)
					} else {
						rejected = append(rejected, at)
						closed = at + 10*time.Millisecond
					}
					mu.Unlock()
					time.Sleep(10 * time.Millisecond)
					if ok {
						return respond(r, status(200)), nil
					}
					return respond(r, status(429, "Retry-After", "1")), nil
				})
				rt := newTransport(t, base, httpclient.WithLimiter(newLocal(t, limit)))
				var wg sync.WaitGroup
				for range 50 {
					wg.Go(func() {
						for time.Since(start) < life {
							if resp, err := rt.RoundTrip(get(t, api)); err == nil {
								resp.Body.Close()
							}
						}
					})
				}
				wg.Wait()
				late := 0
				for _, at := range served {
					if at > 6*time.Second && at <= life {
						late++
					}
				}
				t.Logf("rejected at %v; %d of 1400 served from the fourth second on", rejected, late)
				if len(rejected) > 3 || slices.Max(rejected) > 4*time.Second {
					t.Errorf("%d were rejected: %v", len(rejected), rejected)
				}
				if passed > 0 {
					t.Errorf("at %v one was sent, although the server has rejected until %v", passed, closed+time.Second)
				}
				if late < 1400*85/100 {
					t.Errorf("from the fourth second on %d of 1400 were served", late)
				}
			})
		})
	}
}

// TestRequestsPassInTurn: those that wait for a cooldown, and then for the limiter, come
// back in the order in which they came, at the limiter's pace, and it is asked about
// twice for each.
func TestRequestsPassInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, asked := newLocal(t, limiter.GCRA(limiter.PerSecond(10), 1)), 0
		var mu sync.Mutex
		counted := allowing(func(n int) limiter.Result {
			mu.Lock()
			defer mu.Unlock()
			asked++
			res, err := lim.AllowN(t.Context(), "k", n)
			if err != nil {
				t.Error(err)
			}
			return res
		})
		var order []string
		var at []time.Duration
		start := time.Now()
		base := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			if order = append(order, r.URL.Path); len(order) == 1 {
				return respond(r, status(429, "Retry-After", "4")), nil
			}
			at = append(at, time.Since(start))
			return respond(r, status(200)), nil
		})
		rt := newTransport(t, base, httpclient.WithLimiter(counted))
		respondsWith(t, rt, once(get(t, "http://api.test/first")), 429)
		want := []string{"/first"}
		var wg sync.WaitGroup
		for i := range 50 {
			path := "/" + string(rune('A'+i))
			want = append(want, path)
			wg.Go(func() { respondsWith(t, rt, get(t, "http://api.test"+path), 200) })
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		if !slices.Equal(order, want) {
			t.Errorf("sent in the order %v", order)
		}
		between(t, "the first came back after", at[0], 4*time.Second, 4050*time.Millisecond)
		for i := range at[1:] {
			between(t, "after the one before", at[i+1]-at[i], 99*time.Millisecond, 150*time.Millisecond)
		}
		if asked > 51*5/2 {
			t.Errorf("the limiter was asked %d times", asked)
		}
	})
}

// TestNothingIsTakenInACooldownOfAScope: a request that waits in the line of its key while a
// quota within it is used up takes from the limiter when it is sent, and not before.
func TestNothingIsTakenInACooldownOfAScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, taken := newLocal(t, limiter.GCRA(limiter.PerSecond(1), 1)), 0
		counted := allowing(func(n int) limiter.Result {
			res, err := lim.AllowN(t.Context(), "k", n)
			if err != nil {
				t.Error(err)
			} else if res.Allowed && n > 0 {
				taken++
			}
			return res
		})
		var sent []time.Duration
		start := time.Now()
		base := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			sent = append(sent, time.Since(start))
			time.Sleep(100 * time.Millisecond)
			if len(sent) == 2 {
				return respond(r, status(429, "X-RateLimit-Bucket", "abc", "X-RateLimit-Scope", "user", "Retry-After", "1.5")), nil
			}
			return respond(r, status(200, "X-RateLimit-Bucket", "abc")), nil
		})
		const url = "http://api.test/api/v10/channels/1/messages"
		rt := newTransport(t, base, httpclient.WithLimiter(counted))
		respondsWith(t, rt, get(t, url), 200)
		var wg sync.WaitGroup
		wg.Go(func() { respondsWith(t, rt, once(get(t, url)), 429) })
		synctest.Wait()
		wg.Go(func() { respondsWith(t, rt, get(t, url), 200) })
		wg.Wait()
		if len(sent) != 3 || taken != 3 || sent[2] < 2600*time.Millisecond {
			t.Errorf("sent at %v, %d units taken", sent, taken)
		}
	})
}

// TestRequestsThatLeaveTheLine: one whose wait does not fit leaves, and the others go on.
func TestRequestsThatLeaveTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := newLocal(t, limiter.GCRA(limiter.PerSecond(1), 1))
		rt := newTransport(t, scripted(status(200)), httpclient.WithLimiter(lim), httpclient.WithMaxWait(5*time.Second))
		var wg sync.WaitGroup
		var mu sync.Mutex
		sent, gaveUp := 0, 0
		start := time.Now()
		for range 20 {
			wg.Go(func() {
				resp, err := rt.RoundTrip(get(t, api))
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					gaveUp++
					return
				}
				resp.Body.Close()
				sent++
			})
		}
		wg.Wait()
		if sent < 5 || sent > 7 || sent+gaveUp != 20 || time.Since(start) > 7*time.Second {
			t.Errorf("%d sent and %d gave up, in %v", sent, gaveUp, time.Since(start))
		}
	})
}

// TestRequestsThatCannotBeSentTakeNoPlace: of a shaping limit, whose queue is longer than the
// requests can wait. Those that fit are sent at the rate, whoever stands between the transport
// and the limiter, and those that do not fit are rejected at once.
func TestRequestsThatCannotBeSentTakeNoPlace(t *testing.T) {
	const rate, life = 5, 20 * time.Second
	shaping := limiter.LeakyBucketShaping(limiter.PerSecond(rate), 20)
	for name, c := range map[string]struct {
		lim     func(t *testing.T) limiter.Allower
		timeout time.Duration
		opts    []httpclient.Option
		least   int
	}{
		"deadline":        {func(t *testing.T) limiter.Allower { return newLocal(t, shaping) }, time.Second, nil, rate * 20},
		"longest wait":    {func(t *testing.T) limiter.Allower { return newLocal(t, shaping) }, time.Hour, []httpclient.Option{httpclient.WithMaxWait(time.Second)}, rate * 20},
		"no wait":         {func(t *testing.T) limiter.Allower { return newLocal(t, shaping) }, time.Hour, []httpclient.Option{httpclient.WithMaxWait(0)}, 65},
		"limiter of ours": {func(t *testing.T) limiter.Allower { return passing{newLocal(t, shaping)} }, time.Second, nil, rate * 20},
		"limit of the key": {func(t *testing.T) limiter.Allower {
			lim, err := limiter.NewLocal(limiter.GCRA(limiter.PerSecond(1), 1), limiter.WithLimitFor(func(context.Context, string) limiter.Limit { return shaping }))
			if err != nil {
				t.Fatal(err)
			}
			return lim
		}, time.Second, nil, rate * 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := scripted(status(200))
				client := &http.Client{Transport: newTransport(t, s, append(c.opts, httpclient.WithLimiter(c.lim(t)))...), Timeout: c.timeout}
				if name == "limit of the key" { // which only an answer shows
					if resp, err := client.Get(api); err != nil {
						t.Fatal(err)
					} else {
						resp.Body.Close()
					}
				}
				start := time.Now()
				var wg sync.WaitGroup
				for range 30 {
					wg.Go(func() {
						for time.Since(start) < life {
							asked := time.Now()
							resp, err := client.Get(api)
							if err == nil {
								resp.Body.Close()
							} else if e, ok := errors.AsType[*httpclient.Error](err); !ok || e.Reason != retry.Throttled || time.Since(asked) > 0 {
								t.Errorf("after %v: %v", time.Since(asked), err)
							}
							time.Sleep(300 * time.Millisecond)
						}
					})
				}
				wg.Wait()
				if n := len(s.sent()); n < c.least || n > rate*21+1 {
					t.Errorf("%d were sent, want at least %d", n, c.least)
				}
			})
		})
	}
}

// passing is a limiter of a user, that asks another one.
type passing struct{ to limiter.Allower }

func (p passing) AllowN(ctx context.Context, key string, n int) (limiter.Result, error) {
	return p.to.AllowN(ctx, key, n)
}

// allowing is a limiter that is a function of the cost.
type allowing func(n int) limiter.Result

func (a allowing) AllowN(_ context.Context, _ string, n int) (limiter.Result, error) {
	return a(n), nil
}
