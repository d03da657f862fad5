package limiter

import (
	"crypto/rand"
	"encoding/hex"
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

func (n *nonces) next() string {
	return n.process + strconv.FormatUint(n.count.Add(1), 36)
}
