// Package algo is the arithmetic of Holdfast: what a limit is, and one pure
// step function per algorithm. It has no I/O and no clock; times and durations
// are integer microseconds, costs are integer units. The Lua scripts transcribe
// these functions, so every intermediate value stays below 2^53, where Lua's
// doubles are exact.
package algo

import (
	"fmt"
	"math/bits"
)

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

var kindNames = [...]struct{ long, short string }{
	{"none", ""},
	{"fixed window", "fw"},
	{"sliding window log", "swl"},
	{"sliding window counter", "swc"},
	{"token bucket", "tb"},
	{"leaky bucket", "lb"},
	{"leaky bucket shaping", "lbs"},
	{"gcra", "gcra"},
}

// Valid reports whether k is one of the algorithms.
func (k Kind) Valid() bool { return k >= FixedWindow && k <= GCRA }

// String returns the algorithm's name in words.
func (k Kind) String() string {
	if !k.Valid() {
		return fmt.Sprintf("unknown algorithm %d", uint8(k))
	}
	return kindNames[k].long
}

// Short returns the name used in Redis keys.
func (k Kind) Short() string {
	if !k.Valid() {
		return ""
	}
	return kindNames[k].short
}

// Windowed reports whether the algorithm counts per window, so that it has no
// burst of its own.
func (k Kind) Windowed() bool { return k >= FixedWindow && k <= SlidingWindowCounter }

// Bucket reports whether the algorithm is a bucket that refuses what does not fit,
// so that there is room for one more after each interval.
func (k Kind) Bucket() bool { return k == TokenBucket || k == LeakyBucket || k == GCRA }

const (
	// MaxExact is the largest integer up to which Lua's doubles are exact.
	MaxExact = 1<<53 - 1
	// MaxPeriod bounds windows and the time a bucket takes to refill: one year
	// of 366 days, in microseconds.
	MaxPeriod = 366 * 24 * 3600 * 1_000_000
	// MaxLog bounds what a sliding window log remembers, one unit each, and so what
	// one decision can add to it: a script that adds so many takes Redis about 10 ms,
	// in which it does nothing else.
	MaxLog = 10_000
)

// Limit is N units per Per microseconds. Burst is the size of the bucket, or
// the capacity of the queue; window algorithms ignore it.
type Limit struct {
	Kind  Kind
	N     int64
	Per   int64
	Burst int64
}

// Params is a limit reduced to what a step needs.
//
// For window algorithms Cap is the limit and Den the window. For the others Cap
// is the burst, and the rate is Num/Den units per microsecond in lowest terms:
// state is held in units of 1/Den, so that refilling is exact.
type Params struct {
	Kind Kind
	Cap  int64
	Num  int64
	Den  int64
	// MaxDelay bounds the delay that shaping may hand out, in microseconds;
	// 0 is no bound.
	MaxDelay int64
	// Keep is how many units must remain after a request was admitted: a reserve
	// for others. It is below Cap.
	Keep int64
}

// FieldError says which field of a configuration breaks which rule.
type FieldError struct {
	Field string
	Value any
	Rule  string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s is %v: %s", e.Field, e.Value, e.Rule)
}

// Params validates l and reduces it. The proof that nothing leaves 2^53: with
// full = Cap·Den, a bucket's level is at most full, a cost adds at most full,
// and a refill is cut off at the time the bucket is full, so adds at most
// full+Num; 2·full+Num bounds every sum. The counter's products are at most
// Cap·Den, the log and the fixed window only add costs and times.
func (l Limit) Params() (Params, error) {
	switch {
	case !l.Kind.Valid():
		return Params{}, &FieldError{"algorithm", uint8(l.Kind), "must be one of the seven; make limits with the constructors"}
	case l.N < 1:
		return Params{}, &FieldError{"rate", l.N, "must be at least 1 per period"}
	case l.Per < 1:
		return Params{}, &FieldError{"period", micros(l.Per), "must be at least 1µs"}
	case l.Per > MaxPeriod:
		return Params{}, &FieldError{"period", micros(l.Per), "must be at most 366 days"}
	case l.N > MaxExact:
		return Params{}, &FieldError{"rate", l.N, "must be below 2^53"}
	}
	if l.Kind == SlidingWindowLog && l.N > MaxLog {
		return Params{}, &FieldError{"rate", l.N, fmt.Sprintf(
			"must be at most %d for a sliding window log, which remembers every unit; use a sliding window counter, GCRA or a token bucket", MaxLog)}
	}
	if l.Kind.Windowed() {
		if hi, lo := bits.Mul64(uint64(l.N), uint64(l.Per)); l.Kind == SlidingWindowCounter && (hi != 0 || lo > MaxExact) {
			return Params{}, &FieldError{"rate", fmt.Sprintf("%d per %v", l.N, micros(l.Per)),
				"limit × window in microseconds must be below 2^53 for exact arithmetic; use a shorter window, GCRA or a token bucket"}
		}
		return Params{Kind: l.Kind, Cap: l.N, Num: 1, Den: l.Per}, nil
	}
	if l.Burst < 1 {
		return Params{}, &FieldError{"burst", l.Burst, "must be at least 1"}
	}
	g := gcd(l.N, l.Per)
	p := Params{Kind: l.Kind, Cap: l.Burst, Num: l.N / g, Den: l.Per / g}
	if !p.exact() {
		return Params{}, &FieldError{"burst", l.Burst, fmt.Sprintf(
			"at %d per %v, 2 × burst × %d (the reduced period) must stay below 2^53 for exact arithmetic; use a smaller burst or a rate with a shorter period", l.N, micros(l.Per), p.Den)}
	}
	if p.fillTime() > MaxPeriod {
		return Params{}, &FieldError{"burst", l.Burst, fmt.Sprintf(
			"at %d per %v it takes %v to refill; that must be at most 366 days", l.N, micros(l.Per), micros(p.fillTime()))}
	}
	return p, nil
}

// exact reports whether 2·Cap·Den + Num stays below 2^53.
func (p Params) exact() bool {
	hi, full := bits.Mul64(uint64(p.Cap), uint64(p.Den))
	return hi == 0 && full <= MaxExact/2 && 2*full+uint64(p.Num) <= MaxExact
}

// Full is the size of a bucket in units of 1/Den.
func (p Params) Full() int64 { return p.Cap * p.Den }

// fillTime is the time in which an empty bucket fills.
func (p Params) fillTime() int64 { return ceilDiv(p.Full(), p.Num) }

// Scale returns the part of the limit that share of it allows, rounded down
// but never below one unit: the local limit of one process among several.
// Share is in (0, 1].
func (p Params) Scale(share float64) Params {
	if share >= 1 || !(share > 0) {
		return p
	}
	// A hair more than the product, so that a share of 1/k gives exact parts.
	q := p
	q.Cap = max(1, int64(float64(p.Cap)*share+1e-9))
	q.Keep = p.keepOf(q.Cap)
	if p.Kind.Windowed() {
		return q
	}
	// The rate shrinks by a longer Den; a common factor keeps the rounding of
	// Den small where there is room for it below 2^53.
	for _, f := range [...]int64{1_000_000, 1_000, 1} {
		if p.Num > MaxExact/f {
			continue
		}
		den := float64(p.Den) * float64(f) / share
		if den >= MaxExact {
			continue
		}
		q.Num, q.Den = p.Num*f, ceilShare(den)
		if g := gcd(q.Num, q.Den); g > 1 {
			q.Num, q.Den = q.Num/g, q.Den/g
		}
		if q.exact() && q.fillTime() <= MaxPeriod {
			return q
		}
	}
	// Too slow a rate for exact arithmetic at this share: one unit at a time.
	q.Keep = 0
	q.Cap, q.Num, q.Den = 1, 1, min(MaxPeriod, ceilDiv(p.Den, p.Num)*ceilShare(1/share))
	return q
}

// Part returns the i-th of n parts of the limit, which together are exactly the
// limit: the first ones have the units that cannot be divided evenly. n must be at
// most p.Cap.
func (p Params) Part(i, n int64) (Params, error) {
	q := p
	q.Cap = p.Cap / n
	if i < p.Cap%n {
		q.Cap++
	}
	q.Keep = p.keepOf(q.Cap)
	if p.Kind.Windowed() {
		return q, nil
	}
	g := gcd(p.Num, n)
	q.Num = p.Num / g
	if p.Den > MaxExact/(n/g) {
		return p, &FieldError{"burst", p.Cap, fmt.Sprintf("at %d parts the period leaves 2^53", n)}
	}
	q.Den = p.Den * (n / g)
	switch {
	case !q.exact():
		return p, &FieldError{"burst", p.Cap, fmt.Sprintf("%d parts of it leave 2^53; use fewer parts, or a rate with a shorter period", n)}
	case q.fillTime() > MaxPeriod:
		return p, &FieldError{"burst", p.Cap, "a part of it takes more than 366 days to refill"}
	}
	return q, nil
}

// ceilShare rounds up, but takes a value within a billionth of an integer for
// that integer: 1/k is not exact in binary, k is meant.
func ceilShare(x float64) int64 {
	n := int64(x)
	if x-float64(n) > x*1e-12+1e-9 {
		n++
	}
	return n
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// ceilDiv is ⌈a/b⌉ for a ≥ 0, b > 0.
func ceilDiv(a, b int64) int64 {
	return (a + b - 1) / b
}
