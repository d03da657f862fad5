package holdfastgrpc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	holdfastgrpc "github.com/holdfast-go/holdfast/grpc"
	"github.com/holdfast-go/holdfast/retry"
)

// TestAttemptsAreSeparate: that an attempt had a stream says nothing of the next one, which finds no server, and which is repeated.
func TestAttemptsAreSeparate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := holdfastgrpc.NewClient(holdfastgrpc.WithLogger(discard))
		if err != nil {
			t.Fatal(err)
		}
		busy, err := status.New(codes.ResourceExhausted, "").WithDetails(&errdetails.RetryInfo{RetryDelay: retryIn(time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		answers := []error{busy.Err(), status.Error(codes.Unavailable, ""), nil}
		calls := 0
		err = c.Unary()(t.Context(), unaryCall, nil, nil, nil, func(_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
			err := answers[calls]
			calls++
			for _, opt := range opts {
				switch opt := opt.(type) {
				case grpc.PeerCallOption:
					if calls == 1 {
						*opt.PeerAddr = peer.Peer{Addr: tcp("127.0.0.1:1")}
					}
				case grpc.OnFinishCallOption:
					opt.OnFinish(err)
				}
			}
			return err
		})
		if err != nil || calls != 3 {
			t.Errorf("%v after %d attempts", err, calls)
		}
	})
}

// TestLastErrorIsTheServers: also where its key begins to cool down while a call waits for another attempt.
func TestLastErrorIsTheServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := scripted(answer{code: codes.Unavailable}, answer{code: codes.ResourceExhausted, info: retryIn(48 * time.Hour)})
		var why []retry.Reason
		hooks := holdfastgrpc.Hooks{GiveUp: func(_ context.Context, e *holdfastgrpc.Error) { why = append(why, e.Reason) }}
		client := inMemory(t, b, paced(t, holdfastgrpc.WithIdempotent(unaryCall), holdfastgrpc.WithHooks(hooks)))
		done := make(chan error)
		go func() { done <- call(t.Context(), client) }()
		synctest.Wait()
		if err := drain(t.Context(), client); status.Code(err) != codes.ResourceExhausted {
			t.Error(err)
		}
		if err := <-done; status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "scripted" {
			t.Errorf("%v is not the server's error", err)
		}
		if !slices.Equal(why, []retry.Reason{retry.CoolingDown}) {
			t.Errorf("gave up because of %v", why)
		}
		b.wantCalls(t, 2)
	})
}

// TestBackoffBeginsAgainAfterAWait that the server has named, as gRFC A6 says.
func TestBackoffBeginsAgainAfterAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := answer{code: codes.Unavailable}
		var waits []time.Duration
		hooks := holdfastgrpc.Hooks{Wait: func(_ context.Context, w holdfastgrpc.WaitInfo) {
			if w.Why == retry.WaitBackoff {
				waits = append(waits, w.For)
			}
		}}
		b := scripted(down, down, answer{code: codes.Unavailable, pushback: []string{"1000"}}, down, answer{})
		client := inMemory(t, b, paced(t, holdfastgrpc.WithIdempotent(unaryCall), holdfastgrpc.WithAttempts(5), holdfastgrpc.WithHooks(hooks),
			holdfastgrpc.WithBackoff(retry.Backoff{Initial: time.Second, Max: time.Minute, Multiplier: 10, Jitter: retry.JitterNone})))
		if err := call(t.Context(), client); err != nil {
			t.Error(err)
		}
		if want := []time.Duration{time.Second, 10 * time.Second, time.Second}; !slices.Equal(waits, want) {
			t.Errorf("backoff of %v, want %v", waits, want)
		}
	})
}

// TestNoCooldownWithoutAWait: the hook is called, and something is logged, where a key begins to cool down.
func TestNoCooldownWithoutAWait(t *testing.T) {
	for info, want := range map[time.Duration]int{-1: 0, 0: 0, time.Second: 1} {
		synctest.Test(t, func(t *testing.T) {
			a := answer{code: codes.Unavailable}
			if info >= 0 {
				a.info = retryIn(info)
			}
			cooldowns, log := 0, new(bytes.Buffer)
			hooks := holdfastgrpc.Hooks{Cooldown: func(context.Context, holdfastgrpc.CooldownInfo) { cooldowns++ }}
			client := inMemory(t, scripted(a), paced(t, holdfastgrpc.WithAttempts(1), holdfastgrpc.WithHooks(hooks), holdfastgrpc.WithLogger(slog.New(slog.NewTextHandler(log, nil)))))
			if err := call(t.Context(), client); status.Code(err) != codes.Unavailable {
				t.Error(err)
			}
			if cooldowns != want || (log.Len() > 0) != (want > 0) {
				t.Errorf("a wait of %v: %d cooldowns; logged %q", info, cooldowns, log)
			}
		})
	}
}

// TestStreamEndsOnce: who goes on to receive after the end of a stream pays for one retry.
func TestStreamEndsOnce(t *testing.T) {
	budget, err := retry.NewBudget(retry.BudgetSettings{Ratio: 1, Floor: -1})
	if err != nil {
		t.Fatal(err)
	}
	client := inMemory(t, scripted(answer{}), paced(t, holdfastgrpc.WithBudget(budget)))
	s, err := client.StreamingOutputCall(t.Context(), &testgrpc.StreamingOutputCallRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = s.Recv()
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := s.Recv(); err == nil {
			t.Error("a message after the end")
		}
	}
	if !budget.Withdraw() || budget.Withdraw() {
		t.Error("it did not pay for exactly one retry")
	}
}
