package holdfastgrpc

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-go/holdfast/internal/admission"
	"github.com/holdfast-go/holdfast/internal/inbound"
	"github.com/holdfast-go/holdfast/retry"
)

// pkg is how errors name this package.
const pkg = "holdfastgrpc"

// Error says why a call was not sent, or not sent again. A [Client] returns it only when
// nothing was sent; otherwise the error is that of the last attempt, and [Hooks.GiveUp]
// gets the reason. Its fields must not be changed.
type Error struct {
	// Reason is why.
	Reason retry.Reason
	// Target and Method are those of the call.
	Target, Method string
	// Key is what the call's limit and cooldown belong to; "" is none.
	Key string
	// Wait is how long to wait before another try makes sense; 0 when that is not
	// known.
	Wait time.Duration
	// Err is the cause, if there is one. It is context.DeadlineExceeded when the wait
	// did not fit before the deadline.
	Err error
}

// Error names the method, the key, the reason and the wait.
func (e *Error) Error() string {
	return "holdfastgrpc: " + e.Method + " for " + strconv.Quote(e.Key) + ": " + admission.Then(e.Reason, e.Wait, e.Err)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// GRPCStatus is codes.ResourceExhausted with the wait as RetryInfo, for HostFailing
// codes.Unavailable, and for LimiterFailed what the limiter's error means. It does not have the key, since servers pass such
// errors on to their own callers.
func (e *Error) GRPCStatus() *status.Status {
	code := codes.ResourceExhausted
	switch e.Reason {
	case retry.LimiterFailed:
		code = problems[inbound.ProblemOf(e.Err)]
	case retry.HostFailing:
		code = codes.Unavailable
	}
	st := status.New(code, "holdfastgrpc: "+admission.Then(e.Reason, e.Wait, nil))
	if e.Wait > 0 {
		if with, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(e.Wait)}); err == nil {
			return with
		}
	}
	return st
}

// gone returns the error of a caller who has given up, as grpc-go does; else nil.
func gone(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	return nil
}
