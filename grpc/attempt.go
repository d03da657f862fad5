package holdfastgrpc

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/holdfast-go/holdfast/internal/admission"
)

// attempt is what grpc-go reports of one attempt.
type attempt struct {
	trailer metadata.MD
	peer    peer.Peer
	over    bool
}

// options returns opts with those by which grpc-go fills in a. opts is not written to.
func (a *attempt) options(opts []grpc.CallOption) []grpc.CallOption {
	return append(slices.Clip(opts), grpc.Trailer(&a.trailer), grpc.Peer(&a.peer), grpc.OnFinish(func(error) { a.over = true }))
}

// unsent reports whether it is certain that nothing was sent: grpc-go has ended the call,
// and never had a stream to a server, also not in a retry of its own. Where an interceptor
// that is nearer to the connection keeps these options from grpc-go, nothing is certain.
func (a *attempt) unsent() bool {
	return a.over && a.peer.Addr == nil && a.peer.AuthInfo == nil
}

// fairTime is how long an attempt must have lasted for its deadline to be evidence against
// the target.
const fairTime = time.Second

// evidenceOf judges an attempt of a caller by its code. A rejection by quota says nothing
// about the target's health, and neither does what never left the client, except for the
// missing connection.
func evidenceOf(ctx context.Context, code codes.Code, took time.Duration, unsent bool) admission.Evidence {
	switch code {
	case codes.ResourceExhausted, codes.Canceled,
		codes.Unknown: // what a Go server makes of any error, such as that there is no such thing
		return 0
	case codes.DeadlineExceeded:
		if took < fairTime {
			return 0
		}
		return admission.Failed
	case codes.Unavailable, codes.Internal, codes.DataLoss:
		if ctx.Err() != nil || unsent && code != codes.Unavailable {
			return 0
		}
		return admission.Failed
	default:
		if unsent {
			return 0
		}
		return admission.Accepted
	}
}
