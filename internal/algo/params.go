package algo

import (
	"math"
	"math/bits"

	"github.com/holdfast-go/holdfast/internal/configerr"
)

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
	// Frac is what a process's part of a window has beyond Cap, in 1/wholes of a unit. Phase says
	// in which windows it has a whole unit more: below wholes, and another one in each process.
	Frac, Phase int64
	// Calendar has the windows of a fixed window that follows one. Den is then its Least.
	Calendar *Calendar
	// Whole is the limit that this is a process's part of, nil where it is that limit.
	Whole *Params
}

// wholes is how exact a part of a window is.
const wholes = 1 << 20

// In returns the part of the window that counts at now, in whole units: of the window in which
// the part was used first, at since, rounded down, so that the parts of all processes are not
// more than the limit there, but one unit at least. In any number of windows, one after the
// other, the parts add up to at most one unit more than they are. more is the time until
// a window that has another whole unit, 0 where none has.
func (p Params) In(now, since int64) (q Params, more int64) {
	q = p
	q.Frac, q.Phase = 0, 0
	if p.Frac == 0 {
		return q, 0
	}
	window, first, none := p.number(now), p.number(since), int64(0)
	if p.Cap == 0 {
		none = first + ceilDiv(wholes, p.Frac) // the unit of the first window is used until then
	}
	switch {
	case window == first:
		q.Cap = max(1, p.Cap)
	case window >= none && p.at(window) >= wholes-p.Frac:
		q.Cap++
	}
	next := max(window+1, none)
	next += ceilDiv(max(0, wholes-p.Frac-p.at(next)), p.Frac)
	return q, p.until(next, now, window)
}

// Unit is the time from now until p has produced a unit since, where it is a part of less than one
// in each window, else 0. A key that was forgotten before would have the unit of a first window again.
func (p *Params) Unit(now int64) int64 {
	if p.Frac == 0 || p.Cap > 0 {
		return 0
	}
	window := p.number(now)
	return p.until(window+ceilDiv(wholes, p.Frac), now, window)
}

// at is what the fractions of the windows before one add up to, without whole units.
func (p *Params) at(window int64) int64 { return (window%wholes*p.Frac + p.Phase) % wholes }

// exact reports whether 2·Cap·Den + Num stays below 2^53.
func (p Params) exact() bool {
	hi, full := bits.Mul64(uint64(p.Cap), uint64(p.Den))
	return hi == 0 && full <= MaxExact/2 && 2*full+uint64(p.Num) <= MaxExact
}

// Full is the size of a bucket in units of 1/Den.
func (p Params) Full() int64 { return p.Cap * p.Den }

// FillTime is the time in which an empty bucket fills.
func (p Params) FillTime() int64 { return ceilDiv(p.Full(), p.Num) }

// Grants returns the mean time in µs for which a grant is remembered, and the most units
// that grants in Redis can add up to when each weighs exp(-age/length): rate·length + burst,
// because a limit grants at most rate·t + burst in any time t, with two bursts for aligned
// windows. The time is that of 30 bursts, so that a burst is 3 % of the most; but at least
// 10 s, and at most 10 min or one burst.
func (p Params) Grants() (length, most float64) {
	rate, burst := float64(p.Num)/float64(p.Den), float64(p.Cap)
	if p.Kind.Windowed() {
		rate = burst / float64(p.Den)
	}
	if p.Kind == FixedWindow || p.Kind == SlidingWindowCounter {
		burst *= 2
	}
	length = max(10e6, min(30*burst/rate, max(600e6, burst/rate)))
	return length, rate*length + burst
}

// Scale returns the part of the limit that share of it allows: the local limit of one process
// among several. A burst is rounded down, never below one unit; what a window has beyond
// whole units, of which it may have none, is its Frac. Share is in (0, 1]. The part keeps p.
func (p *Params) Scale(share float64) Params {
	if share >= 1 || !(share > 0) {
		return *p
	}
	// Slightly more than the product, so that a share of 1/k gives exact parts.
	q, size := *p, float64(p.Cap)*share+1e-9
	if q.Whole == nil {
		q.Whole = p
	}
	q.Cap = max(1, int64(size))
	q.Keep = p.keepOf(q.Cap)
	if p.Kind.Windowed() {
		q.Cap = int64(size)
		q.Frac = int64((size - float64(q.Cap)) * wholes)
		if q.Cap == 0 {
			q.Frac = max(1, q.Frac)
		}
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
		if q.exact() && q.FillTime() <= MaxPeriod {
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
	q.Den = p.Den * (n / g)
	switch {
	case !q.exact():
		return p, configerr.New("burst", p.Cap, "%d parts of it leave 2^53; use fewer parts, or a rate with a shorter period", n)
	case q.FillTime() > MaxPeriod:
		return p, configerr.New("burst", p.Cap, "a part of it takes more than 366 days to refill")
	}
	return q, nil
}

// Reserve returns p with the part f of its units kept for others, rounded up: f is
// above 0 and below 1. It is false when that leaves nothing.
func (p Params) Reserve(f float64) (Params, bool) {
	// Slightly less than the product, so that a fifth of 10 is 2.
	p.Keep = int64(math.Ceil(float64(p.Cap)*f*(1-1e-12) - 1e-9))
	return p, p.Keep >= 1 && p.Keep < p.Cap
}

// keepOf is the part of what p keeps that falls to size of its units. One unit at
// least is left to use.
func (p Params) keepOf(size int64) int64 {
	if p.Keep == 0 {
		return 0
	}
	keep := math.Ceil(float64(p.Keep)/float64(p.Cap)*float64(size)*(1-1e-12) - 1e-9)
	return max(0, min(int64(keep), size-1))
}

// Late is the limit under which units that are charged at one time may be used
// up to d µs later, so that what is used stays within p. Buckets hold back what
// the rate lets through meanwhile, the log counts a longer time. Fixed and counted
// windows are p itself: their units must be used within the aligned window in
// which they were charged.
func (p Params) Late(d int64) (Params, bool) {
	q := p
	switch p.Kind {
	case FixedWindow, SlidingWindowCounter:
	case SlidingWindowLog:
		q.Den += d
		return q, q.Den <= MaxPeriod
	case LeakyBucketShaping:
		return q, false
	default:
		if d >= p.FillTime() {
			return q, false
		}
		q.Cap -= ceilDiv(d*p.Num, p.Den)
	}
	return q, q.Cap > q.Keep
}

// UntilBorder is the time for which units charged at a time with that outcome may
// be used: as long as the caller likes, except in aligned windows, which end.
func (p Params) UntilBorder(d Decision) int64 {
	switch p.Kind {
	case FixedWindow:
		return d.ResetAfter
	case SlidingWindowCounter:
		return d.ResetAfter - p.Den
	}
	return MaxPeriod
}

// RetryAfterReset is the time in which a bucket that is fully reset after reset has room for n
// units and for what must remain, or up to a microsecond more. It is 0 for what is no bucket.
func (p Params) RetryAfterReset(reset, n int64) int64 {
	if !p.Kind.Bucket() {
		return 0
	}
	return reset - (p.Full()-(n+p.Keep)*p.Den)/p.Num
}

// Least is the shortest time in which n units can be admitted, whatever is left now.
func (p Params) Least(n int64) int64 {
	most := p.Cap - p.Keep
	switch {
	case n <= most:
		return 0
	case !p.Kind.Windowed():
		return int64(float64(n-most) * float64(p.Den) / float64(p.Num))
	}
	windows := (n - 1) / most
	if p.Kind != SlidingWindowLog {
		windows-- // an aligned one may end at once
	}
	if windows > MaxPeriod/p.Den {
		return MaxPeriod
	}
	return windows * p.Den
}

// undrained is what is left, in units of 1/Den, of taken units after a time in
// which a bucket drained; not above 0 when that is nothing.
func (p Params) undrained(elapsed, taken int64) int64 {
	return taken*p.Den - min(max(0, elapsed), p.FillTime())*p.Num
}
