package topk

import (
	"crypto/sha256"
	"encoding/hex"
)

const digestPrefix = "sha256:"

// digest stands for a key that is too long to be kept.
func digest(key string) (d [len(digestPrefix) + 2*sha256.Size]byte) {
	// In pieces, because the conversion of a whole key to bytes would be a copy of it.
	var piece [256]byte
	h := sha256.New()
	for len(key) > 0 {
		n := copy(piece[:], key)
		h.Write(piece[:n])
		key = key[n:]
	}
	var sum [sha256.Size]byte
	copy(d[:], digestPrefix)
	hex.Encode(d[len(digestPrefix):], h.Sum(sum[:0]))
	return d
}
