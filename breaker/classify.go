package breaker

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Classify says what err, the result of a Redis call, means. Wrapped and joined
// wrapped errors are unwrapped. It is safe for concurrent use.
//
// ctx is the context of the caller who waits for the decision, not one derived
// from it with the library's own deadline: the difference between the two is
// what distinguishes "the caller left" from "Redis is slow". In order:
//
//   - nil is [ClassOK];
//   - a context error while ctx is over is [ClassCaller], and so is a network
//     timeout after ctx's deadline, since go-redis can turn that deadline into
//     the socket's;
//   - an error reply is classed by its text, see the constants;
//   - context.Canceled that is not the caller's is [ClassAborted];
//   - context.DeadlineExceeded that is not the caller's is [ClassSlow], except
//     from the network (a dial timeout matches it), which is ClassUnavailable;
//   - anything else is [ClassUnavailable]: network errors, a closed client, an
//     exhausted pool, a ring or cluster without nodes, and whatever is unknown,
//     because an unknown error must not become the caller's.
//
// An unknown error reply is [ClassBug]: Redis is well enough to say no.
func Classify(ctx context.Context, err error) Class {
	if err == nil {
		return ClassOK
	}
	if callerLeft(ctx, err) {
		return ClassCaller
	}
	// The failures of every sentinel are joined in this one, among them replies
	// such as nil for a master they don't know. None of it is the script's.
	if strings.Contains(err.Error(), "all sentinels specified in configuration are unreachable") {
		return ClassUnavailable
	}
	var reply redis.Error
	if errors.As(err, &reply) {
		return classifyReply(reply.Error())
	}
	var op *net.OpError
	switch {
	case errors.Is(err, context.Canceled):
		return ClassAborted
	case errors.As(err, &op):
		return ClassUnavailable
	case errors.Is(err, context.DeadlineExceeded):
		return ClassSlow
	default:
		return ClassUnavailable
	}
}

// callerLeft reports whether err came about because the caller's context ended.
func callerLeft(ctx context.Context, err error) bool {
	// A socket can time out a moment before the context's own timer fires.
	deadline, ok := ctx.Deadline()
	expired := ok && !time.Now().Before(deadline)

	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return expired || ctx.Err() != nil
	}
	// Only a deadline explains a timeout: a cancelled caller does not make the
	// socket give up, so that such an error still means that Redis did not answer.
	var timeout interface{ Timeout() bool }
	return expired && errors.As(err, &timeout) && timeout.Timeout()
}
