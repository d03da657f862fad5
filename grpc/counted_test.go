package holdfastgrpc_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	holdfastgrpc "github.com/holdfast-go/holdfast/grpc"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

// TestCounted: only calls and streams that end with a code that counts take a unit in the end,
// also when the handler panics, and of what was rejected nothing is given back.
func TestCounted(t *testing.T) {
	var ends error
	b := &backend{unary: func(context.Context, int) error {
		if ends == nil {
			panic("of a handler")
		}
		return ends
	}}
	var asked []codes.Code
	counted := func(c codes.Code) bool {
		asked = append(asked, c)
		return c == codes.Unauthenticated || c == codes.DeadlineExceeded
	}
	for _, stream := range []bool{false, true} {
		lim := local(t, limiter.FixedWindow(limiter.PerHour(3)))
		opts := append(recovering(), limited(t, lim, holdfastgrpc.Everyone(), holdfastgrpc.WithCounted(counted))...)
		c := dial(t, serve(t, b, opts...))
		asked = nil
		for i, step := range []struct {
			ends error // nil panics
			code codes.Code
			left int
		}{
			{status.Error(codes.NotFound, ""), codes.NotFound, 3},
			{status.Error(codes.Unauthenticated, ""), codes.Unauthenticated, 2},
			{errors.New("of no status"), codes.Unknown, 2},
			{context.DeadlineExceeded, codes.DeadlineExceeded, 1}, // as the server sends it
			{nil, codes.Internal, 0},
			{status.Error(codes.NotFound, ""), codes.ResourceExhausted, 0},
		} {
			ends = step.ends
			var err error
			if stream {
				var s grpc.ServerStreamingClient[testgrpc.StreamingOutputCallResponse]
				if s, err = c.StreamingOutputCall(t.Context(), &testgrpc.StreamingOutputCallRequest{}); err == nil {
					_, err = s.Recv()
				}
			} else {
				_, err = c.UnaryCall(t.Context(), &testgrpc.SimpleRequest{})
			}
			res, peeked := lim.Peek(t.Context(), "everyone")
			if status.Code(err) != step.code || res.Remaining != step.left || peeked != nil {
				t.Errorf("stream %v, %d: %v with %d left, %v, want %+v", stream, i, err, res.Remaining, peeked, step)
			}
		}
		if len(asked) != 4 { // neither of the panic nor of the rejection
			t.Errorf("stream %v: asked about %v", stream, asked)
		}
	}
}

// taken has no permit left.
type taken struct{}

func (taken) TryAcquire(context.Context, string) (*semaphore.Permit, error) {
	return &semaphore.Permit{}, nil
}

// TestNestedTakesBack: what an inner interceptor rejects, and a call that finds no permit, takes
// nothing from the outer limit.
func TestNestedTakesBack(t *testing.T) {
	outer, inner := local(t, limiter.FixedWindow(limiter.PerHour(9))), local(t, limiter.FixedWindow(limiter.PerHour(1)))
	served := func(c codes.Code) bool { return c != codes.ResourceExhausted }
	of := func(lim *limiter.Limiter, opts ...holdfastgrpc.ServerOption) grpc.UnaryServerInterceptor {
		t.Helper()
		s, err := holdfastgrpc.NewServer(lim, holdfastgrpc.Everyone(), opts...)
		if err != nil {
			t.Fatal(err)
		}
		return s.Unary()
	}
	left := func(want int) {
		t.Helper()
		if res, err := outer.Peek(t.Context(), "everyone"); res.Remaining != want || err != nil {
			t.Errorf("%d left of the outer limit, %v, want %d", res.Remaining, err, want)
		}
	}
	c := dial(t, serve(t, &backend{}, grpc.ChainUnaryInterceptor(of(outer, holdfastgrpc.WithCounted(served)), of(inner))))
	for i, want := range []codes.Code{codes.OK, codes.ResourceExhausted, codes.ResourceExhausted} {
		if _, err := c.UnaryCall(t.Context(), &testgrpc.SimpleRequest{}); status.Code(err) != want {
			t.Errorf("%d: %v, want %v", i, err, want)
		}
	}
	left(8)
	c = dial(t, serve(t, &backend{}, grpc.ChainUnaryInterceptor(of(outer, holdfastgrpc.WithCounted(served), holdfastgrpc.WithConcurrency(taken{}, "at a time")))))
	if _, err := c.UnaryCall(t.Context(), &testgrpc.SimpleRequest{}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("without a permit: %v", err)
	}
	left(8)
}

// TestCountedNeedsReservations: an Allower that takes nothing back cannot be used.
func TestCountedNeedsReservations(t *testing.T) {
	_, err := holdfastgrpc.NewServer(allower(func(string, int) (limiter.Result, error) { return limiter.Result{}, nil }), holdfastgrpc.Everyone(), holdfastgrpc.WithCounted(func(codes.Code) bool { return true }))
	if !errors.Is(err, limiter.ErrInvalidConfig) {
		t.Error(err)
	}
}
