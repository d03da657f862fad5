package sim

import (
	"math"
	"math/rand/v2"
	"time"
)

// Traffic is how the calls of a fleet are spread over keys, processes and time. The zero value is that of
// most fleets: low keys are asked for more often, processes ask alike, and callers at times of their own.
type Traffic struct {
	// Skew is to which power a number from 0 to 1 is raised that draws a key: 1 for even; 0 for a product of two such numbers.
	Skew float64
	// Moves is after which time other keys are those that are asked for most; 0 for never.
	Moves time.Duration
	// Ranks is the exponent of Zipf's law: the n-th process pauses n^Ranks times as long as the first.
	Ranks float64
	// Burst is how many calls a caller makes without a pause, after one that is as much longer.
	Burst int
	// Beat is at whose multiples all callers of all processes go on; 0 for at any time.
	Beat time.Duration
}

// drawTraffic draws that of half of the fleets.
func (p *Plan) drawTraffic(rng *rand.Rand) {
	if rng.IntN(2) == 0 {
		return
	}
	t := &p.Traffic
	if rng.IntN(2) == 0 {
		t.Skew = 1 + float64(rng.IntN(2))*7*rng.Float64()
	}
	if rng.IntN(3) == 0 {
		t.Moves = between(rng, time.Second, 5*time.Minute)
	}
	if rng.IntN(3) == 0 {
		t.Ranks = 2 * rng.Float64()
	}
	if rng.IntN(3) == 0 {
		t.Burst = 2 + rng.IntN(12)
	}
	if rng.IntN(3) == 0 {
		t.Beat = time.Duration(float64(p.Think) * (1 + 7*rng.Float64()))
	}
}

// even reports that each process asks for each key as often, at any time.
func (t Traffic) even() bool {
	return t.Moves == 0 && t.Ranks == 0 && t.Burst == 0 && t.Beat == 0
}

// times is how many times as long as Think a process pauses.
func (t Traffic) times(process int) float64 {
	return math.Pow(float64(process+1), t.Ranks) * float64(max(1, t.Burst))
}

// slowest is how long a caller of the process that asks least pauses on average.
func (p *Plan) slowest() time.Duration {
	return time.Duration(float64(p.Think)*p.Traffic.times(p.Processes+len(p.Joins)-1)) + p.Traffic.Beat
}

// rare reports that some processes may ask so rarely that the others do not count them all the time, beyond
// what Think and Idle do. Then claims add up to more, as docs/guarantees.md says of idle processes.
func (p *Plan) rare() bool {
	t := p.Traffic
	return (t.Ranks > 0 || t.Burst > 1 || t.Beat > 0) && p.slowest() > 2*time.Second
}

// key draws one of n at a time.
func (t Traffic) key(rng *rand.Rand, n int, now time.Duration) int {
	i := int(float64(n) * rng.Float64() * rng.Float64())
	if t.Skew > 0 {
		i = int(float64(n) * math.Pow(rng.Float64(), t.Skew))
	}
	if t.Moves > 0 {
		i += int(now / t.Moves)
	}
	return i % n
}

// pause draws how long a caller of a process pauses now.
func (w *World) pause(rng *rand.Rand, process int) time.Duration {
	tiny, times := time.Duration(rng.Int64N(1000)), w.Traffic.times(process)
	now := w.now()
	wait := time.Duration(rng.ExpFloat64() * times * float64(w.Think))
	if next := w.rushAt(now); next > now {
		wait = min(time.Duration(rng.ExpFloat64()*times*float64(w.Idle)), next-now+wait)
	}
	if beat := w.Traffic.Beat; beat > 0 {
		wait = (now + wait).Truncate(beat) + beat - now
	}
	return tiny + wait
}

// rushAt is when the next rush begins, or now in one, and where callers are always busy.
func (w *World) rushAt(now time.Duration) time.Duration {
	if w.Idle <= w.Think {
		return now
	}
	for _, r := range w.rushing {
		if r.to >= now {
			return max(r.from, now)
		}
	}
	return now
}
