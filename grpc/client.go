package holdfastgrpc

import (
	"context"

	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/internal/admission"
	"github.com/holdfast-go/holdfast/internal/configerr"
)

// Client keeps limits and cooldowns for the calls of gRPC connections, sends to a failing
// target only what that target can serve, and retries. Make one with [NewClient]; the zero value is not usable. It is safe for concurrent use, runs
// no goroutine between calls, and needs no closing. What it learns is its own: use one
// for all connections of a process.
type Client struct {
	cfg       *clientConfig
	admission *admission.Client
}

// NewClient returns a Client. The error matches limiter.ErrInvalidConfig.
func NewClient(opts ...ClientOption) (*Client, error) {
	cfg, err := newClientConfig(opts)
	if err != nil {
		return nil, configerr.In(pkg, err)
	}
	cfg.admission.OnThrottle = cfg.hooks.ThrottleChange
	adm, err := admission.New(cfg.admission)
	if err != nil {
		return nil, configerr.In(pkg, err)
	}
	return &Client{cfg, adm}, nil
}

// Unary is the interceptor for unary calls: see grpc.WithUnaryInterceptor and
// grpc.WithChainUnaryInterceptor.
//
// Its error is the one of the last attempt, with its status, or an [*Error] when nothing
// could be sent. When the call's context ends a wait it is codes.Canceled or
// codes.DeadlineExceeded. A wait that the deadline does not allow is not begun.
func (c *Client) Unary() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		x := c.begin(ctx, cc, method)
		var seen attempt
		opts = seen.options(opts)
		err := x.run(&seen, func() error { return invoke(ctx, method, req, reply, cc, opts...) })
		if err == nil {
			x.adm.Host.Budget.Deposit()
			x.adm.Report(admission.Accepted)
		}
		return err
	}
}

// Stream is the interceptor for streams: see grpc.WithStreamInterceptor and
// grpc.WithChainStreamInterceptor.
//
// A stream waits before it is opened, as a unary call does, and opening it is tried again
// where that fails before anything of it was sent. One that the server rejects later is
// not opened again, since its messages are gone; what it learns is kept, so that a caller that opens
// it again waits. The messages of a stream are not paced.
func (c *Client) Stream() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		x := c.begin(ctx, cc, method)
		var cs grpc.ClientStream
		var seen attempt
		opts = seen.options(opts)
		err := x.run(&seen, func() (err error) {
			cs, err = open(ctx, desc, cc, method, opts...)
			return err
		})
		if err != nil {
			return nil, err
		}
		return &clientStream{ClientStream: cs, call: x, seen: &seen, oneReply: !desc.ServerStreams}, nil
	}
}

// begin makes the call of a connection.
func (c *Client) begin(ctx context.Context, cc *grpc.ClientConn, method string) *call {
	target := ""
	if cc != nil {
		target = cc.Target()
	}
	key := target
	if c.cfg.key != nil {
		key = c.cfg.key(ctx, target, method)
	}
	x := &call{adm: admission.Begin(ctx, c.admission, target, key), cfg: c.cfg, ctx: ctx, target: target, method: method}
	if f := c.cfg.hooks.Wait; f != nil {
		x.adm.OnWait = func(w admission.Wait) { f(ctx, WaitInfo{target, method, key, w.For, w.Why, w.Source}) }
	}
	return x
}
