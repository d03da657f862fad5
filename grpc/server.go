package holdfastgrpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
		permit, taken, rejected := s.admit(ctx, RPC{Method: info.FullMethod, Request: req})
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
		reply, err := handler(ctx, req)
		s.settle(ctx, taken, err)
		return reply, err
	}
}

// Stream is the interceptor for streams: see grpc.StreamInterceptor and
// grpc.ChainStreamInterceptor. A stream is decided on once, when it is opened.
func (s *Server) Stream() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		permit, taken, rejected := s.admit(ss.Context(), RPC{Method: info.FullMethod, Stream: true})
		if rejected != nil {
			if rejected.trailer != nil {
				ss.SetTrailer(rejected.trailer)
			}
			return rejected.err
		}
		if permit != nil {
			defer permit.Release() //nolint:errcheck // it ends with its time to live then
		}
		err := handler(srv, ss)
		s.settle(ss.Context(), taken, err)
		return err
	}
}

// admit decides on a call. permit, if it is not nil, must be released at its end, and taken
// settled.
func (s *Server) admit(ctx context.Context, rpc RPC) (permit *semaphore.Permit, taken *limiter.Reservation, rejected *rejection) {
	if s.skip != nil && s.skip(ctx, rpc) {
		return nil, nil, nil
	}
	in := s.rules.Decide(ctx, rpc)
	permit = s.rules.Acquire(ctx, &in)
	d := newDecision(rpc, in)
	d.Shadow = s.shadow && d.Code != codes.OK
	if s.hook != nil {
		returned := false
		defer func() {
			if !returned && permit != nil { // it panics, and permit is not the caller's
				_ = permit.Release()
			}
		}()
		s.hook(ctx, d)
		returned = true
	}
	if d.Code == codes.OK || d.Shadow {
		return permit, in.Reservation, nil
	}
	rejected = newRejection(&d)
	s.settle(ctx, in.Reservation, rejected.err)
	return nil, nil, rejected
}

// settle gives back what a call has taken whose outcome does not count.
func (s *Server) settle(ctx context.Context, taken *limiter.Reservation, err error) {
	if taken != nil && taken.Allowed && !s.counted(codeOf(err)) {
		_ = taken.Cancel(ctx)
	}
}

// codeOf returns the code that a server of grpc-go sends for an error of a handler.
func codeOf(err error) codes.Code {
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	return st.Code()
}
