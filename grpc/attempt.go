package holdfastgrpc

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

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

// unencodable reports whether err is that of grpc-go for a message that cannot be encoded, here or by the server: it says
// nothing about the target, though there was a stream to it.
func unencodable(err error) bool {
	said := status.Convert(err).Message()
	return strings.HasPrefix(said, "grpc: error while marshaling: ") || strings.HasPrefix(said, "grpc: error while compressing: ")
}

// fairTime is how long an attempt must have lasted for its deadline to be evidence against
// the target.
const fairTime = time.Second

// evidenceOf judges an attempt of a caller by its error. A rejection by quota says nothing
// about the target's health, and neither does what never left the client, except for the
// missing connection.
func evidenceOf(ctx context.Context, err error, took time.Duration, unsent bool) admission.Evidence {
	code := status.Code(err)
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
		if ctx.Err() != nil || unencodable(err) || unsent && code != codes.Unavailable {
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
