// Package random is where the library takes its randomness from: crypto/rand, which a test
// can make deterministic (testing/cryptotest), and which needs no seed and no state here. It
// is for what happens rarely; a number takes about 100 ns.
package random

import (
	"crypto/rand"
	"encoding/binary"
	"time"
)

// Uint64 returns a random number.
func Uint64() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// Of returns a number that looks random of each n, at once: for streams that begin at a Uint64, one
// number after the other (splitmix64).
func Of(n uint64) uint64 {
	n = n*0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

// Float64 returns a random number in [0, 1).
func Float64() float64 { return float64(Uint64()>>11) / (1 << 53) }

// About returns d, up to a tenth shorter or longer, so that what a fleet began together does not
// stay together.
func About(d time.Duration) time.Duration { return d - d/10 + Below(d/5) }

// Below returns a random duration in [0, d), and 0 where d is not above 0.
func Below(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	// The remainder favours small numbers by less than one part in 2^63/d.
	return time.Duration(Uint64() % uint64(d))
}
