package holdfastgrpc

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/internal/inbound"
	"github.com/holdfast-go/holdfast/limiter"
)

// Decision is what was decided on a call.
type Decision struct {
	// RPC is the call.
	RPC RPC
	// Key is its rate-limit key; long ones are hashed. It is empty for a call that has
	// none.
	Key string
	// Result is the decision; for a Multi, that of all parts.
	Result limiter.Result
	// Policy names the policy that denied; empty when none did.
	Policy string
	// Code is what the call was rejected with; codes.OK when it was served.
	Code codes.Code
	// Shadow says that it was served because of WithShadow, and would have been
	// rejected with Code otherwise.
	Shadow bool
	// Err is why there is no decision: ErrNoKey, or an error of the key function or the
	// Allower.
	Err error

	status  *status.Status // that the key function wants to be returned
	problem inbound.Problem
}

func newDecision(rpc RPC, in inbound.Decision) Decision {
	d := Decision{RPC: rpc, Key: in.Key, Result: in.Result, Policy: in.Policy, Code: problems[in.Problem], Err: in.Err, problem: in.Problem}
	if in.Problem == inbound.KeyFailed {
		if st, ok := status.FromError(in.Err); ok && st.Code() != codes.OK {
			d.Code, d.status = st.Code(), st
		}
	}
	return d
}

// problems are the codes of calls that are not served.
var problems = [inbound.Problems]codes.Code{
	inbound.Denied:          codes.ResourceExhausted,
	inbound.NoKey:           codes.InvalidArgument,
	inbound.Unauthenticated: codes.Unauthenticated,
	inbound.Invalid:         codes.InvalidArgument,
	inbound.Unavailable:     codes.Unavailable,
	inbound.Canceled:        codes.Canceled,
	inbound.Expired:         codes.DeadlineExceeded,
	inbound.KeyFailed:       codes.Internal,
	inbound.Failed:          codes.Internal,
}
