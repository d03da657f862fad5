package holdfastgrpc_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	holdfastgrpc "github.com/holdfast-go/holdfast/grpc"
	"github.com/holdfast-go/holdfast/retry"
)

// answer is what a scripted server says to a call.
type answer struct {
	code     codes.Code
	info     *durationpb.Duration // of RetryInfo; nil is none
	pushback []string
}

func retryIn(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

// scripted gives its answers in turn, the last one for ever.
func scripted(answers ...answer) *backend {
	return &backend{unary: func(ctx context.Context, n int) error {
		a := answers[min(n, len(answers))-1]
		if a.pushback != nil {
			if err := grpc.SetTrailer(ctx, metadata.MD{pushbackKey: a.pushback}); err != nil {
				return err
			}
		}
		st := status.New(a.code, "scripted")
		if a.info != nil {
			st, _ = st.WithDetails(&errdetails.RetryInfo{RetryDelay: a.info})
		}
		return st.Err()
	}}
}

// TestRetries: what is tried again, and after which time.
func TestRetries(t *testing.T) {
	const busy, down = codes.ResourceExhausted, codes.Unavailable
	for name, c := range map[string]struct {
		first       answer
		again       bool
		least, most time.Duration // until the second call
	}{
		"RetryInfo":                     {answer{busy, retryIn(3 * time.Second), nil}, true, 3 * time.Second, 4500 * time.Millisecond},
		"pushback":                      {answer{busy, nil, []string{"3000"}}, true, 3 * time.Second, 4500 * time.Millisecond},
		"of both the longer, pushback":  {answer{busy, retryIn(time.Second), []string{"3000"}}, true, 3 * time.Second, 4500 * time.Millisecond},
		"of both the longer, RetryInfo": {answer{busy, retryIn(3 * time.Second), []string{"1000"}}, true, 3 * time.Second, 4500 * time.Millisecond},
		"unavailable with a wait":       {answer{down, retryIn(3 * time.Second), nil}, true, 3 * time.Second, 4500 * time.Millisecond},
		"unavailable with pushback":     {answer{down, nil, []string{"3000"}}, true, 3 * time.Second, 4500 * time.Millisecond},
		"unavailable, pushback of 0":    {answer{down, nil, []string{"0"}}, true, 0, 500 * time.Millisecond},
		"unavailable":                   {answer{down, nil, nil}, false, 0, 0},
		"a wait of 0":                   {answer{busy, retryIn(0), nil}, true, time.Second, 1500 * time.Millisecond},
		"pushback of 0":                 {answer{busy, nil, []string{"0"}}, true, time.Second, 1500 * time.Millisecond},
		"too large, or no hint":         {answer{busy, nil, nil}, false, 0, 0},
		"pushback below 0":              {answer{down, nil, []string{"-1"}}, false, 0, 0},
		"pushback that is no number":    {answer{down, nil, []string{"soon"}}, false, 0, 0},
		"pushback beyond 32 bits":       {answer{down, nil, []string{"2147483648"}}, false, 0, 0},
		"pushback beyond 64 bits":       {answer{down, nil, []string{"99999999999999999999"}}, false, 0, 0},
		"empty pushback":                {answer{down, nil, []string{""}}, false, 0, 0},
		"two pushbacks":                 {answer{down, nil, []string{"1", "1"}}, false, 0, 0},
		"no pushback overrules":         {answer{busy, retryIn(time.Second), []string{"-1"}}, false, 0, 0},
		"negative RetryInfo":            {answer{busy, retryIn(-time.Second), nil}, false, 0, 0},
		"RetryInfo out of range":        {answer{busy, &durationpb.Duration{Seconds: math.MaxInt64}, nil}, false, 0, 0},
		"RetryInfo of mixed signs":      {answer{busy, &durationpb.Duration{Seconds: 1, Nanos: -1}, nil}, false, 0, 0},
		"longer than the cap":           {answer{busy, retryIn(121 * time.Second), nil}, false, 0, 0},
		"centuries":                     {answer{busy, &durationpb.Duration{Seconds: 3e11}, nil}, false, 0, 0},
		"unavailable and malformed":     {answer{down, retryIn(-1), nil}, false, 0, 0},
		"another code":                  {answer{codes.Internal, nil, nil}, false, 0, 0},
		"another code with a wait":      {answer{codes.Aborted, retryIn(time.Second), nil}, false, 0, 0},
		"deadline exceeded":             {answer{codes.DeadlineExceeded, nil, nil}, false, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := scripted(c.first, answer{})
				client := inMemory(t, b, paced(t))
				start := time.Now()
				err := call(t.Context(), client)
				if !c.again {
					b.wantCalls(t, 1)
					if status.Code(err) != c.first.code || status.Convert(err).Message() != "scripted" || time.Since(start) != 0 {
						t.Errorf("%v after %v, want the server's own error at once", err, time.Since(start))
					}
					return
				}
				if err != nil {
					t.Error(err)
				}
				b.wantCalls(t, 2)
				between(t, "the second came after", b.gap(1), c.least, c.most)
			})
		})
	}
}

// TestGivesUp: the reason, and that the last error is the caller's.
func TestGivesUp(t *testing.T) {
	down, busy := answer{code: codes.Unavailable}, answer{code: codes.ResourceExhausted, info: retryIn(30 * time.Second)}
	idempotent := holdfastgrpc.WithIdempotent(unaryCall)
	spent, err := retry.NewBudget(retry.BudgetSettings{Ratio: -1, Floor: -1})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		answer   answer
		opts     []holdfastgrpc.ClientOption
		deadline time.Duration
		want     retry.Reason
		calls    int
	}{
		"repeated":  {down, nil, 0, retry.NotIdempotent, 1},
		"attempts":  {down, []holdfastgrpc.ClientOption{idempotent}, 0, retry.AttemptsSpent, 3},
		"one":       {down, []holdfastgrpc.ClientOption{idempotent, holdfastgrpc.WithAttempts(1)}, 0, retry.AttemptsSpent, 1},
		"budget":    {down, []holdfastgrpc.ClientOption{idempotent, holdfastgrpc.WithBudget(spent)}, 0, retry.BudgetSpent, 1},
		"wait":      {busy, []holdfastgrpc.ClientOption{holdfastgrpc.WithMaxWait(29 * time.Second)}, 0, retry.WaitTooLong, 1},
		"all waits": {busy, []holdfastgrpc.ClientOption{holdfastgrpc.WithMaxTotalWait(31 * time.Second)}, 0, retry.WaitTooLong, 2},
		"deadline":  {busy, nil, 29 * time.Second, retry.WaitTooLong, 1},
		"too large": {answer{busy.code, &durationpb.Duration{Seconds: math.MaxInt64}, nil}, nil, 0, retry.WaitTooLong, 1},
		"pushback":  {answer{codes.Unavailable, nil, []string{"-1"}}, nil, 0, retry.PushedBack, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var why []*holdfastgrpc.Error
				hooks := holdfastgrpc.Hooks{GiveUp: func(_ context.Context, e *holdfastgrpc.Error) { why = append(why, e) }}
				b := scripted(c.answer)
				client := inMemory(t, b, paced(t, append(c.opts, holdfastgrpc.WithHooks(hooks))...))
				ctx := t.Context()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				err := call(ctx, client)
				if status.Code(err) != c.answer.code || status.Convert(err).Message() != "scripted" {
					t.Errorf("%v is not the server's error", err)
				}
				if len(why) != 1 || why[0].Reason != c.want || errors.Is(why[0], context.DeadlineExceeded) != (name == "deadline") {
					t.Errorf("gave up because of %v, want %v", why, c.want)
				}
				b.wantCalls(t, c.calls)
			})
		})
	}
}

// TestRetryIf: it widens and narrows, but not beyond what the server said.
func TestRetryIf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		aborted := holdfastgrpc.WithRetryIf(func(method string, st *status.Status) bool {
			return method == "/grpc.testing.TestService/UnaryCall" && st.Code() == codes.Aborted
		})
		for _, c := range []struct {
			answer answer
			calls  int
		}{
			{answer{code: codes.Aborted}, 2},
			{answer{code: codes.Aborted, info: retryIn(9 * time.Second)}, 2},
			{answer{code: codes.Aborted, pushback: []string{"-1"}}, 1},
			{answer{code: codes.Unavailable}, 1},
		} {
			b := scripted(c.answer, answer{})
			_ = call(t.Context(), inMemory(t, b, paced(t, aborted)))
			b.wantCalls(t, c.calls)
			if c.answer.info != nil {
				between(t, "the second came after", b.gap(1), 9*time.Second, 13500*time.Millisecond)
			}
		}
	})
}
