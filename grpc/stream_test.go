package holdfastgrpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	holdfastgrpc "github.com/holdfast-go/holdfast/grpc"
	"github.com/holdfast-go/holdfast/retry"
)

// upload makes a call with a stream of requests.
func upload(ctx context.Context, c testgrpc.TestServiceClient, _ ...string) error {
	s, err := c.StreamingInputCall(ctx)
	if err != nil {
		return err
	}
	_ = s.Send(&testgrpc.StreamingInputCallRequest{})
	_, err = s.CloseAndRecv()
	return err
}

// converse makes a call with streams in both directions.
func converse(ctx context.Context, c testgrpc.TestServiceClient, _ ...string) error {
	s, err := c.FullDuplexCall(ctx)
	if err != nil {
		return err
	}
	for range 3 {
		if err := s.Send(&testgrpc.StreamingOutputCallRequest{}); err != nil {
			break
		}
		if _, err := s.Recv(); err != nil {
			return err
		}
	}
	_ = s.CloseSend()
	if _, err = s.Recv(); errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

var kinds = map[string]func(context.Context, testgrpc.TestServiceClient, ...string) error{
	"unary": call, "server stream": drain, "client stream": upload, "both": converse,
}

// TestRejectedStreamsCoolTheirKeyDown: a rejection of one kind of call holds all kinds up, a stream that was
// refused is not opened again by itself, and one that ends well holds up nothing.
func TestRejectedStreamsCoolTheirKeyDown(t *testing.T) {
	for kind, send := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := scripted(answer{}, answer{code: codes.Unavailable, pushback: []string{"5000"}}, answer{})
				b.duplex = func(ss grpc.BidiStreamingServer[testgrpc.StreamingOutputCallRequest, testgrpc.StreamingOutputCallResponse]) error {
					n := b.came()
					for {
						if _, err := ss.Recv(); err != nil {
							return b.unary(ss.Context(), n)
						}
						if err := ss.Send(&testgrpc.StreamingOutputCallResponse{}); err != nil {
							return err
						}
					}
				}
				c := inMemory(t, b, paced(t, holdfastgrpc.WithAttempts(1)))
				start := time.Now()
				if err := send(t.Context(), c); err != nil || time.Since(start) != 0 {
					t.Errorf("the first: %v after %v", err, time.Since(start))
				}
				if err := send(t.Context(), c); status.Code(err) != codes.Unavailable || time.Since(start) != 0 {
					t.Errorf("the second: %v after %v", err, time.Since(start))
				}
				b.wantCalls(t, 2)
				for other, send := range kinds {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					if e, ok := errors.AsType[*holdfastgrpc.Error](send(ctx, c)); !ok || e.Reason != retry.CoolingDown {
						t.Errorf("%s did not wait: %v", other, e)
					}
					cancel()
				}
				b.wantCalls(t, 2)
				if err := send(t.Context(), c); err != nil {
					t.Error(err)
				}
				between(t, "the third came after", b.gap(2), 5*time.Second, 7500*time.Millisecond)
			})
		})
	}
}

// TestSuccessesPay: each kind of call that succeeds pays for retries, once, and none that
// fails does.
func TestSuccessesPay(t *testing.T) {
	for kind, send := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				budget, err := retry.NewBudget(retry.BudgetSettings{Ratio: 1, Floor: -1})
				if err != nil {
					t.Fatal(err)
				}
				b := &backend{}
				c := inMemory(t, b, paced(t, holdfastgrpc.WithBudget(budget)))
				if err := send(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				if !budget.Withdraw() || budget.Withdraw() {
					t.Error("one that succeeded did not pay for exactly one retry")
				}
				b.unary = func(context.Context, int) error { return status.Error(codes.Internal, "") }
				b.duplex = func(grpc.BidiStreamingServer[testgrpc.StreamingOutputCallRequest, testgrpc.StreamingOutputCallResponse]) error {
					return status.Error(codes.Internal, "")
				}
				if err := send(t.Context(), c); status.Code(err) != codes.Internal {
					t.Fatal(err)
				}
				if budget.Withdraw() {
					t.Error("one that failed paid for a retry")
				}
			})
		})
	}
}

// TestOpeningIsTriedAgain: a server that cannot be reached yet is waited for, by calls
// and by streams, as often as attempts allow.
func TestOpeningIsTriedAgain(t *testing.T) {
	for kind, send := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lis := bufconn.Listen(1 << 16)
				start(t, lis, &backend{})
				dials := 0
				var waits []holdfastgrpc.WaitInfo
				var why []*holdfastgrpc.Error
				hooks := holdfastgrpc.Hooks{
					Wait:   func(_ context.Context, w holdfastgrpc.WaitInfo) { waits = append(waits, w) },
					GiveUp: func(_ context.Context, e *holdfastgrpc.Error) { why = append(why, e) },
				}
				backoff := holdfastgrpc.WithBackoff(retry.Backoff{Initial: time.Second, Multiplier: 1, Jitter: retry.JitterNone})
				c := dial(t, "passthrough:///memory", append(paced(t, backoff, holdfastgrpc.WithHooks(hooks)), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
					if dials++; dials < 3 {
						return nil, errors.New("refused")
					}
					return lis.DialContext(ctx)
				}))...)
				// grpc-go itself dials at once, after 1 s and after another 1.6 s or so.
				if err := send(t.Context(), c); status.Code(err) != codes.Unavailable {
					t.Errorf("%v", err)
				}
				if len(waits) != 2 || waits[0].Why != retry.WaitBackoff || waits[0].For != time.Second || len(why) != 1 || why[0].Reason != retry.AttemptsSpent {
					t.Errorf("waits %+v, gave up because of %v", waits, why)
				}
				if err := send(t.Context(), c); err != nil {
					t.Errorf("with the server there: %v", err)
				}
			})
		})
	}
}
