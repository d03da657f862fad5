// Package algo is the arithmetic of Holdfast: what a limit is, and one pure
// step function per algorithm. It has no I/O and no clock; times and durations
// are integer microseconds, costs are integer units. The Lua scripts transcribe
// these functions, so every intermediate value stays below 2^53, where Lua's
// doubles are exact.
package algo

import (
	"fmt"
	"math/bits"

	"github.com/holdfast-go/holdfast/internal/configerr"
)

// Limit is N units per Per microseconds. Burst is the size of the bucket, or
// the capacity of the queue; window algorithms ignore it.
type Limit struct {
	Kind  Kind
	N     int64
	Per   int64
	Burst int64
	// Calendar has the windows of a fixed window, in place of Per.
	Calendar *Calendar
}

// Params validates l and reduces it. The proof that nothing leaves 2^53: with
// full = Cap·Den, a bucket's level is at most full, a cost adds at most full,
// and a refill is cut off at the time the bucket is full, so adds at most
// full+Num; 2·full+Num bounds every sum. The counter's products are at most
// Cap·Den, the log and the fixed window only add costs and times.
func (l Limit) Params() (Params, error) {
	if l.Calendar != nil {
		l.Per = l.Calendar.Least
	}
	switch {
	case !l.Kind.Valid():
		return Params{}, configerr.New("algorithm", uint8(l.Kind), "must be one of the seven; make limits with the constructors")
	case l.Calendar != nil && l.Kind != FixedWindow:
		return Params{}, configerr.New("algorithm", l.Kind, "must be a fixed window, to follow a calendar")
	case l.N < 1:
		return Params{}, configerr.New("rate", l.N, "must be at least 1 per period")
	case l.Per < 1:
		return Params{}, configerr.New("period", micros(l.Per), "must be at least 1µs")
	case l.Per > MaxPeriod:
		return Params{}, configerr.New("period", micros(l.Per), "must be at most 366 days")
	case l.N > MaxExact:
		return Params{}, configerr.New("rate", l.N, "must be below 2^53")
	}
	if l.Kind == SlidingWindowLog && l.N > MaxLog {
		return Params{}, configerr.New("rate", l.N, "must be at most %d for a sliding window log, which remembers every unit; use a sliding window counter, GCRA or a token bucket", MaxLog)
	}
	if l.Kind.Windowed() {
		if hi, lo := bits.Mul64(uint64(l.N), uint64(l.Per)); l.Kind == SlidingWindowCounter && (hi != 0 || lo > MaxExact) {
			return Params{}, configerr.New("rate", fmt.Sprintf("%d per %v", l.N, micros(l.Per)),
				"limit × window in microseconds must be below 2^53 for exact arithmetic; use a shorter window, GCRA or a token bucket")
		}
		return Params{Kind: l.Kind, Cap: l.N, Num: 1, Den: l.Per, Calendar: l.Calendar}, nil
	}
	if l.Burst < 1 {
		return Params{}, configerr.New("burst", l.Burst, "must be at least 1")
	}
	g := gcd(l.N, l.Per)
	p := Params{Kind: l.Kind, Cap: l.Burst, Num: l.N / g, Den: l.Per / g}
	if !p.exact() {
		return Params{}, configerr.New("burst", l.Burst, "at %d per %v, 2 × burst × %d (the reduced period) must stay below 2^53 for exact arithmetic; use a smaller burst or a rate with a shorter period", l.N, micros(l.Per), p.Den)
	}
	if p.FillTime() > MaxPeriod {
		return Params{}, configerr.New("burst", l.Burst, "at %d per %v it takes %v to refill; that must be at most 366 days", l.N, micros(l.Per), micros(p.FillTime()))
	}
	return p, nil
}
