package algo

import "math"

// Reserve returns p with the part f of its units kept for others, rounded up: f is
// above 0 and below 1. It is false when that leaves nothing.
func (p Params) Reserve(f float64) (Params, bool) {
	// A hair less than the product, so that a fifth of 10 is 2.
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

// stepKeeping is Step for what must leave p.Keep units. What is denied waits until
// there is room for both; only n is charged.
func stepKeeping(p Params, s *State, now, n int64) Decision {
	if p.Keep > 0 && n > 0 && Step(p, s, now, 0).Remaining < n+p.Keep {
		n += p.Keep
	}
	return Step(p, s, now, n)
}
