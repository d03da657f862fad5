package limiter

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strconv"
	"sync/atomic"
)

// nonces makes strings that no other call of any process has: members of the
// sliding window log are named by them.
type nonces struct {
	process string
	count   *atomic.Uint64
}

func newNonces() nonces {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return nonces{process: hex.EncodeToString(b[:]), count: new(atomic.Uint64)}
}

// next appends the next one to b.
func (n *nonces) next(b []byte) []byte {
	return strconv.AppendUint(append(b, n.process...), n.count.Add(1), 36)
}

// ticket is the nonce of one call, and knows whether it has been sent: the client
// asks for its bytes when it writes the command. A call whose caller has left
// before that is not sent any more, so it is certain that Redis never charges it.
type ticket struct {
	nonce []byte
	state atomic.Uint32
}

const (
	unsent uint32 = iota
	sent
	withdrawn
)

var errWithdrawn = errors.New("the caller has left")

// MarshalBinary is called by the client when it writes the command.
func (t *ticket) MarshalBinary() ([]byte, error) {
	if !t.state.CompareAndSwap(unsent, sent) && t.state.Load() == withdrawn {
		return nil, errWithdrawn
	}
	return t.nonce, nil
}

// withdraw is true when the call was not sent, and now never will be.
func (t *ticket) withdraw() bool { return t.state.CompareAndSwap(unsent, withdrawn) }
