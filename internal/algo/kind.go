package algo

import "github.com/holdfast-go/holdfast/internal/enum"

// Kind names an algorithm. The zero value is no algorithm.
type Kind uint8

// The algorithms.
const (
	FixedWindow Kind = iota + 1
	SlidingWindowLog
	SlidingWindowCounter
	TokenBucket
	LeakyBucket
	LeakyBucketShaping
	GCRA
)

// Kinds lists every algorithm.
var Kinds = [...]Kind{
	FixedWindow, SlidingWindowLog, SlidingWindowCounter,
	TokenBucket, LeakyBucket, LeakyBucketShaping, GCRA,
}

var (
	kindNames  = [...]string{"", "fixed window", "sliding window log", "sliding window counter", "token bucket", "leaky bucket", "leaky bucket shaping", "gcra"}
	shortNames = [...]string{"", "fw", "swl", "swc", "tb", "lb", "lbs", "gcra"}
)

// Valid reports whether k is one of the algorithms.
func (k Kind) Valid() bool { return k >= FixedWindow && k <= GCRA }

// String returns the algorithm's name in words.
func (k Kind) String() string { return enum.Name(kindNames[:], k, "algorithm") }

// Short returns the name used in Redis keys.
func (k Kind) Short() string {
	if !k.Valid() {
		return ""
	}
	return shortNames[k]
}

// Windowed reports whether the algorithm counts per window, so that it has no
// burst of its own.
func (k Kind) Windowed() bool { return k >= FixedWindow && k <= SlidingWindowCounter }

// Bucket reports whether the algorithm is a bucket that denies what does not fit,
// so that there is room for one more after each interval.
func (k Kind) Bucket() bool { return k == TokenBucket || k == LeakyBucket || k == GCRA }

const (
	// MaxExact is the largest integer up to which Lua's doubles are exact.
	MaxExact = 1<<53 - 1
	// MaxPeriod bounds windows and the time a bucket takes to refill: one year
	// of 366 days, in microseconds.
	MaxPeriod = 366 * 24 * 3600 * 1_000_000
	// MaxLog bounds what a sliding window log remembers, one unit each, and so what
	// one decision can add to it: a script that adds this many takes Redis about 10 ms,
	// in which it does nothing else.
	MaxLog = 10_000
)
