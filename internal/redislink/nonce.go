package redislink

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/random"
)

// nonces makes strings that no other call of any process has: members of the sliding
// window log are named by them.
type nonces struct {
	process string
	count   atomic.Uint64
}

// randomName returns a name that nothing else has.
func randomName() string { return fmt.Sprintf("%016x", random.Uint64()) }

// next appends the next one to b.
func (n *nonces) next(b []byte) []byte {
	return strconv.AppendUint(append(b, n.process...), n.count.Add(1), 36)
}

// What stands in place of the time at which a call was written. The nonces of its commands are gates, and the client
// opens one when it writes the command. A call whose callers have left before that is
// not sent any more, so it is certain that Redis never charges it.
const (
	withdrawn = iota - 1
	unwritten
)

var errWithdrawn = errors.New("the callers have left")

// unwrittenError is errWithdrawn of a call of which nothing is written, not even into the client's buffer. The client
// ends a connection on which it began to write, but keeps it after an error of Redis: else those who ask first, while it takes
// longer to make one than they wait, would have it made for nothing, and so would those after them.
type unwrittenError struct{}

func (unwrittenError) Error() string        { return errWithdrawn.Error() }
func (unwrittenError) Is(target error) bool { return target == errWithdrawn }
func (unwrittenError) RedisError()          {}

// untilWritten is how long after a time the call was written: as long as it takes to make a connection, or to get one.
func (f *flight) untilWritten(since time.Time) time.Duration {
	at := f.written.Load()
	if at <= unwritten {
		return 0
	}
	return max(0, time.Duration(at)-since.Sub(f.sent))
}

// withdraw is true when nothing of the call was sent, and now never will be.
func (f *flight) withdraw() bool { return f.written.CompareAndSwap(unwritten, withdrawn) }

// nonce is that of one command of a call.
type nonce struct {
	text  []byte
	first bool // of its call
	of    *flight
}

// Open is called by the client when it writes the command.
func (n *nonce) Open() error {
	at := &n.of.written
	if at.Load() == unwritten {
		at.CompareAndSwap(unwritten, max(unwritten+1, int64(time.Since(n.of.sent))))
	}
	switch {
	case at.Load() != withdrawn:
		return nil
	case n.first:
		return unwrittenError{}
	default:
		return errWithdrawn
	}
}

// MarshalBinary is called by the client when it writes the nonce.
func (n *nonce) MarshalBinary() ([]byte, error) { return n.text, nil }
