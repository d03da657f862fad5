package holdfastgrpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

// Server limits the calls that a grpc.Server serves. Make one with [NewServer]; the zero
// value is not usable. It is safe for concurrent use, runs no goroutine, and needs no
// closing; the Allower stays the caller's.
type Server struct {
	*serverConfig
}

// NewServer returns a Server that decides on each call by allower, under its key. A Delay of
// LeakyBucketShaping is not waited for. The error matches
// [limiter.ErrInvalidConfig].
func NewServer(allower limiter.Allower, key Key, opts ...ServerOption) (*Server, error) {
	c, err := newServerConfig(allower, key, opts)
	if err != nil {
		return nil, configerr.In(pkg, err)
	}
	return &Server{c}, nil
}

// Unary is the interceptor for unary calls: see grpc.UnaryInterceptor and
// grpc.ChainUnaryInterceptor. Put it after what authenticates.
func (s *Server) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		permit, rejected := s.admit(ctx, RPC{Method: info.FullMethod, Request: req})
		if rejected != nil {
			if rejected.trailer != nil {
				// It fails only outside of a server.
				_ = grpc.SetTrailer(ctx, rejected.trailer)
			}
			return nil, rejected.err
		}
		if permit != nil {
			defer permit.Release() //nolint:errcheck // it ends with its time to live then
		}
		return handler(ctx, req)
	}
}

// Stream is the interceptor for streams: see grpc.StreamInterceptor and
// grpc.ChainStreamInterceptor. A stream is decided on once, when it is opened.
func (s *Server) Stream() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		permit, rejected := s.admit(ss.Context(), RPC{Method: info.FullMethod, Stream: true})
		if rejected != nil {
			if rejected.trailer != nil {
				ss.SetTrailer(rejected.trailer)
			}
			return rejected.err
		}
		if permit != nil {
			defer permit.Release() //nolint:errcheck // it ends with its time to live then
		}
		return handler(srv, ss)
	}
}

// admit decides on a call. permit, if it is not nil, must be released at its end.
func (s *Server) admit(ctx context.Context, rpc RPC) (permit *semaphore.Permit, rejected *rejection) {
	if s.skip != nil && s.skip(ctx, rpc) {
		return nil, nil
	}
	in := s.rules.Decide(ctx, rpc)
	permit = s.rules.Acquire(ctx, &in)
	d := newDecision(rpc, in)
	d.Shadow = s.shadow && d.Code != codes.OK
	if s.hook != nil {
		s.hook(ctx, d)
	}
	if d.Code == codes.OK || d.Shadow {
		return permit, nil
	}
	return nil, newRejection(&d)
}
