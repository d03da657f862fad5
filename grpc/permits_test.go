package holdfastgrpc_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	holdfastgrpc "github.com/holdfast-go/holdfast/grpc"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

// recovering are interceptors that turn a panic into an error, as many servers have.
func recovering() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (_ any, err error) {
			defer func() {
				if recover() != nil {
					err = status.Error(codes.Internal, "panic")
				}
			}()
			return h(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) (err error) {
			defer func() {
				if recover() != nil {
					err = status.Error(codes.Internal, "panic")
				}
			}()
			return h(srv, ss)
		}),
	}
}

// TestPermits: so many at a time, streams for as long as they last, and the permit is released
// when the handler has returned: by itself, because its client is gone, or by a panic.
func TestPermits(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	sem, err := semaphore.New(rdb, 2, limiter.WithBudget(5*time.Second), limiter.WithShare(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sem.Close() })

	left := make(chan bool, 10)
	b := &backend{
		unary: func(context.Context, int) error { panic("of a handler") },
		duplex: func(ss grpc.BidiStreamingServer[testgrpc.StreamingOutputCallRequest, testgrpc.StreamingOutputCallResponse]) error {
			defer func() { left <- true }()
			if err := ss.Send(&testgrpc.StreamingOutputCallResponse{}); err != nil {
				return err
			}
			if _, err := ss.Recv(); err != nil {
				return err // its client is gone
			}
			panic("of a stream")
		},
	}
	lim := local(t, limiter.GCRA(limiter.PerHour(1000), 1000))
	hook := func(context.Context, holdfastgrpc.Decision) {} // after it, the permit is still held
	opts := append(recovering(), limited(t, lim, holdfastgrpc.Everyone(), holdfastgrpc.WithConcurrency(sem, "at a time"), holdfastgrpc.WithHook(hook))...)
	c := dial(t, serve(t, b, opts...))

	inFlight := func(want int) {
		t.Helper()
		if n, err := sem.InFlight(t.Context(), "everyone"); n != want || err != nil {
			t.Errorf("%d in flight, %v, want %d", n, err, want)
		}
	}
	// open returns a stream whose handler has begun.
	open := func() (testgrpc.TestService_FullDuplexCallClient, context.CancelFunc) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		s, err := c.FullDuplexCall(ctx)
		if err == nil {
			_, err = s.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		return s, cancel
	}
	// free waits until the sem are those of want streams: the handler's end is on its
	// way to Redis when the client learns of it.
	free := func(want int) {
		t.Helper()
		<-left
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
			if n, _ := sem.InFlight(t.Context(), "everyone"); n <= want {
				break
			}
		}
		inFlight(want)
	}

	first, _ := open()
	_, leave := open()
	inFlight(2)
	for kind, refuse := range denied(t, c) {
		_, trailer, err := refuse()
		if d, _ := holdfastgrpc.Wait(err); status.Code(err) != busy || subject(err) != "at a time" || d <= 0 || len(trailer[pushbackKey]) != 1 {
			t.Errorf("a third, %s: %v, %v", kind, err, trailer)
		}
	}
	b.wantCalls(t, 0)

	leave()
	free(1)
	if err := first.Send(&testgrpc.StreamingOutputCallRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Recv(); status.Code(err) != codes.Internal {
		t.Errorf("a stream that panics: %v", err)
	}
	free(0)
	for range 5 {
		if err := call(t.Context(), c); status.Code(err) != codes.Internal {
			t.Errorf("a call that panics: %v", err)
		}
	}
	inFlight(0)
}

// TestPermitsOfHooksThatPanic are released: a server that recovers serves the next call.
func TestPermitsOfHooksThatPanic(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	sem, err := semaphore.New(rdb, 1, limiter.WithBudget(5*time.Second), limiter.WithShare(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sem.Close() })
	hook := func(context.Context, holdfastgrpc.Decision) { panic("of a hook") }
	lim := local(t, limiter.GCRA(limiter.PerHour(1000), 1000))
	opts := append(recovering(), limited(t, lim, holdfastgrpc.Everyone(), holdfastgrpc.WithConcurrency(sem, "at a time"), holdfastgrpc.WithHook(hook))...)
	c := dial(t, serve(t, scripted(answer{}), opts...))
	for range 3 {
		if err := call(t.Context(), c); status.Code(err) != codes.Internal {
			t.Error(err)
		}
		if err := drain(t.Context(), c); status.Code(err) != codes.Internal {
			t.Error(err)
		}
	}
	if n, err := sem.InFlight(t.Context(), "everyone"); n != 0 || err != nil {
		t.Errorf("%d in flight, %v", n, err)
	}
}
