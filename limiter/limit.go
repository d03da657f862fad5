package limiter

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/configerr"
)

// Rate is N units in each period Per. The zero value is not a valid rate: N
// must be at least 1, and Per a whole number of microseconds, at least 1 µs and
// at most 366 days.
type Rate struct {
	N   int
	Per time.Duration
}

// Per is n units per d.
func Per(n int, d time.Duration) Rate { return Rate{n, d} }

// PerSecond is n units per second.
func PerSecond(n int) Rate { return Rate{n, time.Second} }

// PerMinute is n units per minute.
func PerMinute(n int) Rate { return Rate{n, time.Minute} }

// PerHour is n units per hour.
func PerHour(n int) Rate { return Rate{n, time.Hour} }

// String returns the rate as in "100/1s".
func (r Rate) String() string { return fmt.Sprintf("%d/%s", r.N, shortDuration(r.Per)) }

func shortDuration(d time.Duration) string {
	switch {
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}

// Limit is an algorithm with its parameters: an immutable value that can be
// compared and used as a map key. Make one with the functions below; mistakes
// in its numbers are reported by the constructor, or the call, that takes it.
// The zero value is not a valid limit.
//
// All arithmetic is exact in integers below 2^53. A limit too large for that is
// rejected with a message that says which number to change: for the sliding
// window counter, limit × window in microseconds; for buckets and GCRA,
// 2 × burst × the period of one unit in lowest terms.
type Limit struct {
	kind  algo.Kind
	rate  Rate
	burst int
	cal   *cal // nil is none
}

// FixedWindow admits rate.N units in each window of rate.Per, aligned to the
// epoch. Cheapest, but around the border of two windows up to 2·N units can
// pass within one window's length.
func FixedWindow(rate Rate) Limit { return Limit{kind: algo.FixedWindow, rate: rate} }

// SlidingWindowLog admits rate.N units in every interval of length rate.Per,
// exactly. It remembers each admitted unit, so its memory grows with N, and so does
// what a large cost takes: N is at most 10,000.
func SlidingWindowLog(rate Rate) Limit { return Limit{kind: algo.SlidingWindowLog, rate: rate} }

// SlidingWindowCounter approximates the log with two counters: the previous
// window counts by the part of it that the sliding window still covers.
func SlidingWindowCounter(rate Rate) Limit {
	return Limit{kind: algo.SlidingWindowCounter, rate: rate}
}

// TokenBucket holds up to burst tokens and refills continuously at rate; a
// request takes its cost in tokens.
func TokenBucket(rate Rate, burst int) Limit {
	return Limit{kind: algo.TokenBucket, rate: rate, burst: burst}
}

// LeakyBucket drains continuously at rate and admits what fits its capacity:
// the leaky bucket as a meter (policing).
func LeakyBucket(rate Rate, capacity int) Limit {
	return Limit{kind: algo.LeakyBucket, rate: rate, burst: capacity}
}

// LeakyBucketShaping is the leaky bucket as a queue: what fits the capacity is
// admitted with the Delay after which it may start, so that starts are evenly
// spaced at rate. Wait sleeps for the delay.
func LeakyBucketShaping(rate Rate, capacity int) Limit {
	return Limit{kind: algo.LeakyBucketShaping, rate: rate, burst: capacity}
}

// GCRA is the generic cell rate algorithm (ITU-T I.371): the rate with a
// tolerance of burst, held in a single time per key.
func GCRA(rate Rate, burst int) Limit { return Limit{kind: algo.GCRA, rate: rate, burst: burst} }

// Algorithm returns the name of the algorithm in words, as in "token bucket": that of its
// constructor.
func (l Limit) Algorithm() string { return l.kind.String() }

// Rate returns the limit's rate. Of a calendar limit it is the mean: a month has 730h29m6s.
func (l Limit) Rate() Rate { return l.rate }

// Burst returns the largest cost that can ever be admitted at once: the burst
// or capacity, or for window algorithms the window's limit.
func (l Limit) Burst() int {
	if l.kind.Windowed() {
		return l.rate.N
	}
	return l.burst
}

// String returns the limit as in "token bucket 100/1s burst 200", and "no limit" for the zero
// value.
func (l Limit) String() string {
	switch {
	case l == Limit{}:
		return "no limit"
	case l.cal != nil:
		return fmt.Sprintf("%v %d/%v %v", l.kind, l.rate.N, l.cal.unit, l.cal.zone)
	case l.kind.Windowed():
		return fmt.Sprintf("%v %v", l.kind, l.rate)
	}
	return fmt.Sprintf("%v %v burst %d", l.kind, l.rate, l.burst)
}

// params validates l.
func (l Limit) params() (algo.Params, error) {
	var windows *algo.Calendar
	if l.cal != nil {
		if windows = l.cal.windows; l.cal.err != nil {
			return algo.Params{}, l.cal.err
		}
	}
	if l.rate.Per%time.Microsecond != 0 {
		return algo.Params{}, invalid("period", l.rate.Per, "must be a whole number of microseconds")
	}
	p, err := algo.Limit{Kind: l.kind, N: int64(l.rate.N), Per: int64(l.rate.Per / time.Microsecond), Burst: int64(l.burst), Calendar: windows}.Params()
	return p, configerr.In(pkg, err)
}

// blockTime returns the time of a block in microseconds.
func blockTime(d time.Duration) (int64, error) {
	us := algo.Micros(d)
	if d <= 0 || us > algo.MaxPeriod {
		return 0, invalid("block", d, "must be above 0 and at most 366 days")
	}
	return us, nil
}
