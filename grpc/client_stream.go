package holdfastgrpc

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// Stream is the interceptor for streams: see grpc.WithStreamInterceptor and
// grpc.WithChainStreamInterceptor.
//
// A stream waits before it is opened, as a unary call does, and opening it is tried again
// where that fails before anything of it was sent. One that the server refuses later is
// not opened again, since its messages are gone; it is learnt from, so that whoever opens
// it again waits. The messages of a stream are not paced.
func (c *Client) Stream() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		x := c.begin(ctx, cc, method)
		var cs grpc.ClientStream
		var told attempt
		opts = told.options(opts)
		err := x.run(&told, func() (err error) {
			cs, err = open(ctx, desc, cc, method, opts...)
			return err
		})
		if err != nil {
			return nil, err
		}
		return &clientStream{ClientStream: cs, call: x, oneReply: !desc.ServerStreams}, nil
	}
}

// clientStream learns from how a stream ends.
type clientStream struct {
	grpc.ClientStream
	call     *call
	oneReply bool
	over     bool // used by RecvMsg only, which must not be called concurrently
}

func (s *clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if (err != nil || s.oneReply) && !s.over {
		s.over = true
		s.ended(err)
	}
	return err
}

func (s *clientStream) ended(err error) {
	if err == nil || errors.Is(err, io.EOF) {
		s.call.budget.Deposit()
		return
	}
	st := status.Convert(err)
	s.call.learn(st.Code(), hintOf(st, s.Trailer()))
}
