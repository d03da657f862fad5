package holdfastgrpc_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	holdfastgrpc "github.com/holdfast-go/holdfast/grpc"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// TestCooldown: one rejection stops all goroutines until the time is up, over unary calls
// and streams, and then they come back spread.
func TestCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := scripted(answer{code: codes.ResourceExhausted, info: retryIn(4 * time.Second)}, answer{})
		client := inMemory(t, b, paced(t))
		start := time.Now()
		done := make(chan error)
		for i := range 100 {
			go func() {
				time.Sleep(time.Duration(i) * 30 * time.Millisecond)
				if i%2 == 0 {
					done <- call(t.Context(), client)
					return
				}
				done <- drain(t.Context(), client)
			}()
		}
		for range 100 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		b.wantCalls(t, 101)
		after := b.times()[1:]
		between(t, "the first came back after", after[0].Sub(start), 4*time.Second, 6*time.Second)
		between(t, "the last came back after", after[99].Sub(start), 4*time.Second, 6*time.Second)
		for i := range after {
			j := i
			for j < len(after) && after[j].Sub(after[i]) < 200*time.Millisecond {
				j++
			}
			if j-i > 33 {
				t.Fatalf("%d of 100 came back within 200ms", j-i)
			}
		}
	})
}

// TestCooldownThatDoesNotFit: nothing is sent, and the error says when: as the server
// did, although the cooldown is over after an hour.
func TestCooldownThatDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := scripted(answer{code: codes.ResourceExhausted, info: retryIn(48 * time.Hour)}, answer{})
		client := inMemory(t, b, paced(t))
		_ = call(t.Context(), client)
		time.Sleep(35 * time.Minute)
		err := call(t.Context(), client)
		e, ok := errors.AsType[*holdfastgrpc.Error](err)
		if !ok || e.Reason != retry.CoolingDown || e.Wait != 47*time.Hour+25*time.Minute || e.Key != "passthrough:///memory" {
			t.Fatalf("%v", err)
		}
		if d, ok := holdfastgrpc.Wait(err); d != 47*time.Hour+25*time.Minute || !ok || status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%v, %v for who knows only statuses", status.Code(err), d)
		}
		time.Sleep(24 * time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		if err := call(ctx, client); !errors.Is(err, context.DeadlineExceeded) || status.Code(err) != codes.ResourceExhausted || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if err := drain(ctx, client); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 0 {
			t.Errorf("a stream: %v after %v", err, time.Since(start))
		}
		b.wantCalls(t, 1)
		if err := call(t.Context(), client); err != nil {
			t.Error(err)
		}
		b.wantCalls(t, 2)
	})
}

// TestPacing: a limiter paces calls and the opening of streams, and a wait that does not
// fit is not begun.
func TestPacing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := local(t, limiter.GCRA(limiter.PerSecond(2), 1))
		b := scripted(answer{})
		client := inMemory(t, b, paced(t, holdfastgrpc.WithLimiter(lim)))
		for range 3 {
			if err := call(t.Context(), client); err != nil {
				t.Error(err)
			}
			if err := drain(t.Context(), client); err != nil {
				t.Error(err)
			}
		}
		for i := range 5 {
			if d := b.gap(i + 1); d != 500*time.Millisecond {
				t.Errorf("calls %d and %d are %v apart", i, i+1, d)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := call(ctx, client)
		e, ok := errors.AsType[*holdfastgrpc.Error](err)
		if !ok || e.Reason != retry.Throttled || e.Wait != 500*time.Millisecond || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		b.wantCalls(t, 6)
	})
}

// TestKey: what shares a cooldown, and that "" does not.
func TestKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type tenant struct{}
		b := scripted(answer{code: codes.ResourceExhausted, info: retryIn(time.Minute)}, answer{})
		client := inMemory(t, b, paced(t, holdfastgrpc.WithAttempts(1), holdfastgrpc.WithKey(func(ctx context.Context, target, method string) string {
			if target != "passthrough:///memory" || method != "/grpc.testing.TestService/UnaryCall" {
				t.Errorf("asked for the key of %q, %q", target, method)
			}
			name, _ := ctx.Value(tenant{}).(string)
			return name
		})))
		as := func(name string) error { return call(context.WithValue(t.Context(), tenant{}, name), client) }
		if err := as("a"); status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
		start := time.Now()
		if err := errors.Join(as("b"), as("")); err != nil || time.Since(start) != 0 {
			t.Errorf("others: %v after %v", err, time.Since(start))
		}
		if err := as("a"); err != nil {
			t.Error(err)
		}
		between(t, "the key waited", time.Since(start), time.Minute, 90*time.Second)
	})
}

// TestCancelled: who leaves, leaves at once, whatever it waits for, and sends nothing.
func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := scripted(answer{code: codes.ResourceExhausted, info: retryIn(time.Minute)})
		client := inMemory(t, b, paced(t))
		for range 2 { // before a retry, and in the cooldown
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Second, cancel)
			start := time.Now()
			if err := call(ctx, client); status.Code(err) != codes.Canceled || time.Since(start) != 10*time.Second {
				t.Errorf("%v after %v", err, time.Since(start))
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := call(ctx, client); status.Code(err) != codes.Canceled {
			t.Error(err)
		}
		b.wantCalls(t, 1)
	})
}

// TestOptionsOfTheCall: what the caller wants to know of a call it still learns, and its
// options are not written to: callers share them.
func TestOptionsOfTheCall(t *testing.T) {
	conn := dial(t, serve(t, scripted(answer{code: codes.Internal, pushback: []string{"-7"}})), paced(t)...)
	var trailer metadata.MD
	_, err := conn.UnaryCall(t.Context(), &testgrpc.SimpleRequest{}, grpc.Trailer(&trailer))
	if status.Code(err) != codes.Internal || len(trailer[pushbackKey]) != 1 {
		t.Errorf("%v, %v", err, trailer)
	}
	c, err := holdfastgrpc.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	opts := append(make([]grpc.CallOption, 0, 10), grpc.WaitForReady(true))
	err = c.Unary()(t.Context(), "/a.B/C", nil, nil, nil, func(_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, got ...grpc.CallOption) error {
		if len(got) != 4 || got[0] != opts[0] {
			t.Errorf("%d options", len(got))
		}
		return nil
	}, opts...)
	if err != nil || opts[:2][1] != nil {
		t.Errorf("%v, %v", err, opts[:2])
	}
}

// TestBadClientConfiguration: what is refused, by name.
func TestBadClientConfiguration(t *testing.T) {
	for want, opt := range map[string]holdfastgrpc.ClientOption{
		"holdfastgrpc: option is nil: must not be nil":                                                    nil,
		"holdfastgrpc: limiter is nil: must not be a nil pointer":                                         holdfastgrpc.WithLimiter((*limiter.Limiter)(nil)),
		"holdfastgrpc: attempts is 0: must be from 1 to 100":                                              holdfastgrpc.WithAttempts(0),
		"holdfastgrpc: idempotent method is a.B/C: must be /package.Service/Method":                       holdfastgrpc.WithIdempotent("/a.B/C", "a.B/C"),
		"holdfastgrpc: idempotent method is /a.B/: must be /package.Service/Method":                       holdfastgrpc.WithIdempotent("/a.B/"),
		"holdfastgrpc: max wait is -1ns: must be from 0 to 1h":                                            holdfastgrpc.WithMaxWait(-1),
		"holdfastgrpc: max total wait is 25h0m0s: must be from 0 to 24h":                                  holdfastgrpc.WithMaxTotalWait(25 * time.Hour),
		"holdfastgrpc: Backoff.Initial is -1ns: must not be negative":                                     holdfastgrpc.WithBackoff(retry.Backoff{Initial: -1}),
		"holdfastgrpc: Backoff.Multiplier is 0.5: must be from 1 to 100":                                  holdfastgrpc.WithBackoff(retry.Backoff{Multiplier: 0.5}),
		"holdfastgrpc: Backoff.Jitter is unknown jitter 9: must be JitterFull, JitterEqual or JitterNone": holdfastgrpc.WithBackoff(retry.Backoff{Jitter: 9}),
	} {
		if _, err := holdfastgrpc.NewClient(opt); !errors.Is(err, limiter.ErrInvalidConfig) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
