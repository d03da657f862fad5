package holdfastgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	holdfastgrpc "github.com/holdfast-go/holdfast/grpc"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// TestThousandGoroutines: on one connection, at once: exactly the limit is served, and
// all others are told when to come back.
func TestThousandGoroutines(t *testing.T) {
	const quota = 500
	b := &backend{}
	lim := local(t, limiter.FixedWindow(limiter.Per(quota, 300*time.Hour)))
	c := dial(t, serve(t, b, limited(t, lim, holdfastgrpc.Everyone())...), paced(t)...)
	results := make([]error, 1000)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() { results[i] = call(t.Context(), c) })
	}
	wg.Wait()
	b.wantCalls(t, quota)
	failed := 0
	for _, err := range results {
		if err == nil {
			continue
		}
		failed++
		if d, ok := holdfastgrpc.Wait(err); status.Code(err) != busy || !ok || d <= 0 {
			t.Errorf("%v", err)
		}
	}
	if failed != len(results)-quota {
		t.Errorf("%d failed", failed)
	}
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

// TestTheFleetIsBlockedOnce: of many rejections that come back together the fleet hears
// once, from calls as from streams; and of a longer one again.
func TestTheFleetIsBlockedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for kind, send := range map[string]func(context.Context, testgrpc.TestServiceClient, ...string) error{"calls": call, "streams": drain} {
			lim := new(blocking)
			var told []holdfastgrpc.CooldownInfo
			b := &backend{unary: func(ctx context.Context, n int) error {
				wait := 10 * time.Second
				if n == 50 {
					wait = 2 * time.Hour
				}
				time.Sleep(time.Second) // all are on their way when the rejections come
				st, _ := status.New(codes.Unavailable, "").WithDetails(&errdetails.RetryInfo{RetryDelay: retryIn(wait)})
				return st.Err()
			}}
			c := inMemory(t, b, paced(t, apiKey, holdfastgrpc.WithAttempts(1), holdfastgrpc.WithLimiter(lim), holdfastgrpc.WithHooks(holdfastgrpc.Hooks{
				Cooldown: func(_ context.Context, info holdfastgrpc.CooldownInfo) {
					lim.mu.Lock()
					defer lim.mu.Unlock()
					told = append(told, info)
				},
			})))
			var wg sync.WaitGroup
			for i := range 50 {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 10 * time.Millisecond)
					if err := send(t.Context(), c); status.Code(err) != codes.Unavailable {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if !slices.Equal(lim.blocks, []string{"the api 10s", "the api 1h0m0s"}) {
				t.Errorf("%s: blocks %q", kind, lim.blocks)
			}
			if len(told) == 0 {
				t.Fatalf("%s: no cooldown", kind)
			}
			if first := told[0]; first.Key != "the api" || first.For != 10*time.Second || first.Source != "RetryInfo" || first.Target != "passthrough:///memory" {
				t.Errorf("%s: %+v", kind, first)
			}
		}
	})
}

// TestLimiterThatFails: its error is the call's, by its meaning, and nothing is sent.
func TestLimiterThatFails(t *testing.T) {
	for _, err := range []error{limiter.ErrUnavailable, errors.New("broken")} {
		b := &backend{}
		failing := allower(func(string, int) (limiter.Result, error) { return limiter.Result{}, err })
		c := dial(t, serve(t, b), paced(t, holdfastgrpc.WithLimiter(failing))...)
		for _, got := range []error{call(t.Context(), c), drain(t.Context(), c)} {
			e, ok := errors.AsType[*holdfastgrpc.Error](got)
			want := codes.Internal
			if errors.Is(err, limiter.ErrUnavailable) {
				want = codes.Unavailable
			}
			if !ok || e.Reason != retry.LimiterFailed || !errors.Is(got, err) || status.Code(got) != want {
				t.Errorf("%v, want %v", got, want)
			}
		}
		b.wantCalls(t, 0)
	}
}

// TestCallsThatCannotBeSentTakeNoPlace: of a shaping limit, whose queue is longer than the
// calls can wait: those that fit are sent at the rate.
func TestCallsThatCannotBeSentTakeNoPlace(t *testing.T) {
	const rate, life = 5, 20 * time.Second
	synctest.Test(t, func(t *testing.T) {
		b := &backend{}
		c := inMemory(t, b, paced(t, holdfastgrpc.WithLimiter(local(t, limiter.LeakyBucketShaping(limiter.PerSecond(rate), 20)))))
		start := time.Now()
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() {
				for time.Since(start) < life {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					asked := time.Now()
					if err := call(ctx, c); err != nil {
						if e, ok := errors.AsType[*holdfastgrpc.Error](err); !ok || e.Reason != retry.Throttled || time.Since(asked) > 0 {
							t.Errorf("after %v: %v", time.Since(asked), err)
						}
					}
					cancel()
					time.Sleep(300 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		if n := len(b.times()); n < rate*20 || n > rate*21+1 {
			t.Errorf("%d were sent", n)
		}
	})
}

// TestCooldownWhileWaiting: a call that waits for its turn heeds a rejection that comes
// meanwhile. A turn that falls into the cooldown is void: it asks for another one.
func TestCooldownWhileWaiting(t *testing.T) {
	for limit, asks := range map[limiter.Limit]int{
		limiter.GCRA(limiter.Per(1, 2*time.Second), 1):               3, // it is denied first
		limiter.LeakyBucketShaping(limiter.Per(1, 2*time.Second), 2): 3, // it is admitted, but later
	} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lim, asked := local(t, limit), 0
				// Without Block, which would hold the call up as well.
				counted := allower(func(key string, n int) (limiter.Result, error) {
					asked++
					return lim.AllowN(t.Context(), key, n)
				})
				b := &backend{unary: func(_ context.Context, n int) error {
					if n > 1 {
						return nil
					}
					time.Sleep(time.Second)
					st, _ := status.New(codes.Unavailable, "").WithDetails(&errdetails.RetryInfo{RetryDelay: retryIn(10 * time.Second)})
					return st.Err()
				}}
				c := inMemory(t, b, paced(t, holdfastgrpc.WithLimiter(counted), holdfastgrpc.WithAttempts(1)))
				var wg sync.WaitGroup
				wg.Go(func() {
					if err := call(t.Context(), c); status.Code(err) != codes.Unavailable {
						t.Error(err)
					}
				})
				synctest.Wait()
				if err := call(t.Context(), c); err != nil {
					t.Error(err)
				}
				wg.Wait()
				between(t, "the second came after", b.gap(1), 11*time.Second, 16*time.Second)
				if asked != asks {
					t.Errorf("the limiter was asked %d times, want %d", asked, asks)
				}
			})
		})
	}
}
