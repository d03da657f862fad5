package holdfastgrpc

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/internal/caller"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

// Server limits the calls that a grpc.Server serves. Make one with [NewServer]; the zero
// value is not usable. It is safe for concurrent use, runs no goroutine, and needs no
// closing; the Allower stays the caller's.
type Server struct {
	*serverConfig
}

// Decision is what was decided on a call.
type Decision struct {
	// RPC is the call.
	RPC RPC
	// Key is whom it was decided for; long ones are hashed. It is empty for a call
	// that has none.
	Key string
	// Result is the decision; for a Multi, that of all parts.
	Result limiter.Result
	// Policy names the policy that denied; empty when none did.
	Policy string
	// Code is what the call was refused with; codes.OK when it was served.
	Code codes.Code
	// Shadow says that it was served because of WithShadow, and would have been
	// refused with Code otherwise.
	Shadow bool
	// Err is why there is no decision: ErrNoKey, or an error of the key function or the
	// Allower.
	Err error

	status *status.Status // that the key function wants to be returned
}

// NewServer returns a Server that asks allower for each call, by its key. A Delay of
// LeakyBucketShaping is not waited for. The error is a *limiter.ConfigError.
func NewServer(allower limiter.Allower, key Key, opts ...ServerOption) (*Server, error) {
	c, err := newServerConfig(allower, key, opts)
	if err != nil {
		return nil, err
	}
	return &Server{c}, nil
}

// Unary is the interceptor for unary calls: see grpc.UnaryInterceptor and
// grpc.ChainUnaryInterceptor. Put it after what authenticates.
func (s *Server) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		slot, refused := s.admit(ctx, RPC{Method: info.FullMethod, Request: req})
		if refused != nil {
			if refused.trailer != nil {
				// It fails only outside of a server.
				_ = grpc.SetTrailer(ctx, refused.trailer)
			}
			return nil, refused.err
		}
		if slot != nil {
			defer slot.Release() //nolint:errcheck // it ends with its time to live then
		}
		return handler(ctx, req)
	}
}

// Stream is the interceptor for streams: see grpc.StreamInterceptor and
// grpc.ChainStreamInterceptor. A stream is asked for once, when it is opened.
func (s *Server) Stream() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		slot, refused := s.admit(ss.Context(), RPC{Method: info.FullMethod, Stream: true})
		if refused != nil {
			if refused.trailer != nil {
				ss.SetTrailer(refused.trailer)
			}
			return refused.err
		}
		if slot != nil {
			defer slot.Release() //nolint:errcheck // it ends with its time to live then
		}
		return handler(srv, ss)
	}
}

// admit decides on a call. slot, if it is not nil, is to be released at its end.
func (s *Server) admit(ctx context.Context, rpc RPC) (slot *semaphore.Permit, refused *refusal) {
	if s.skip != nil && s.skip(ctx, rpc) {
		return nil, nil
	}
	d := s.decide(ctx, rpc)
	if d.Code == codes.OK && s.slots != nil {
		slot = s.acquire(ctx, &d)
	}
	d.Shadow = s.shadow && d.Code != codes.OK
	if s.hook != nil {
		s.hook(ctx, d)
	}
	if d.Code == codes.OK || d.Shadow {
		return slot, nil
	}
	return nil, newRefusal(&d)
}

// decide finds the key and asks.
func (s *Server) decide(ctx context.Context, rpc RPC) Decision {
	d := Decision{RPC: rpc}
	key, err := s.key.of(ctx, rpc)
	switch {
	case err != nil && !errors.Is(err, ErrNoKey):
		d.Err, d.Code = err, codes.Internal
		if st, ok := status.FromError(err); ok && st.Code() != codes.OK {
			d.Code, d.status = st.Code(), st
		}
		return d
	case err != nil && s.missing != MissingShared:
		d.Err, d.Code = err, s.missing.code()
		return d
	case err != nil:
		key = caller.Shared
	}
	d.Key = caller.Short(key)
	cost := 1
	if s.cost != nil {
		cost = s.cost(ctx, rpc)
	}
	if d.Result, d.Policy, err = s.ask(ctx, rpc, d.Key, cost); err != nil {
		d.Err, d.Code = err, codeOf(err)
	} else if cost == 0 {
		d.Policy = "" // a look is not denied, whatever it sees
	} else if !d.Result.Allowed {
		d.Code = codes.ResourceExhausted
	}
	return d
}

// ask returns the decision, and which policy denied.
func (s *Server) ask(ctx context.Context, rpc RPC, key string, cost int) (res limiter.Result, policy string, err error) {
	if s.multi != nil {
		all, err := s.multi.Decide(ctx, key, cost)
		return all.Result, all.Denied, err
	}
	var limit limiter.Limit
	if s.tier != nil {
		limit = s.tier(ctx, rpc)
	}
	if limit.IsZero() {
		res, err = s.allower.AllowN(ctx, key, cost)
	} else {
		res, err = s.tiered.Decide(ctx, key, cost, limiter.UseLimit(limit))
	}
	if err == nil && !res.Allowed {
		policy = s.name
	}
	return res, policy, err
}

// acquire takes a slot for as long as the call is served.
func (s *Server) acquire(ctx context.Context, d *Decision) *semaphore.Permit {
	slot, err := s.slots.TryAcquire(ctx, d.Key)
	switch {
	case err != nil:
		d.Err, d.Code = err, codeOf(err)
	case !slot.Allowed:
		d.Code, d.Policy = codes.ResourceExhausted, s.slotsName
		d.Result.Allowed, d.Result.RetryAfter = false, slot.RetryAfter
	default:
		return slot
	}
	return nil
}
