package holdfastgrpc

import (
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
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
