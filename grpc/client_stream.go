package holdfastgrpc

import (
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/internal/admission"
)

// clientStream learns from how a stream ends.
type clientStream struct {
	grpc.ClientStream
	call     *call
	seen     *attempt
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
		s.call.adm.Host.Budget.Deposit()
		s.call.adm.Report(admission.Accepted)
		return
	}
	st := status.Convert(err)
	// The length of a stream says nothing about the target.
	s.call.adm.Report(evidenceOf(s.call.ctx, err, 0, s.seen.unsent()))
	s.call.learn(st.Code(), hintOf(st, s.Trailer()))
}
