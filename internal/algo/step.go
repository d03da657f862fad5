package algo

import (
	"strconv"
	"time"
)

// Duration converts microseconds, up to the 292 years that fit.
func Duration(us int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Microsecond)
	return time.Duration(min(us, most)) * time.Microsecond
}

// Micros converts to microseconds, rounded up.
func Micros(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

// micros prints microseconds as a duration in messages.
func micros(us int64) string {
	if us > 1<<62/1000 || us < -1<<62/1000 {
		return strconv.FormatInt(us, 10) + "µs"
	}
	return (time.Duration(us) * time.Microsecond).String()
}

// Cell is a time with a value: what it means depends on the algorithm.
type Cell struct{ T, V int64 }

// State is what is remembered of one key. The zero value is a key that was
// never used.
//
//	fixed window    At is in the window, V the units counted in it
//	window log      Log = units admitted at a time, oldest first; V = their sum
//	window counter  At is in the window, V the units counted in it, W those of the one before
//	token bucket    At = last refill, V = tokens in 1/W
//	leaky buckets   At = last leak, V = level in 1/W
//	GCRA            the same: the continuous-state form of the algorithm
type State struct {
	At, V, W int64
	Log      []Cell
	// Birth is when the state was as if never used for the last time: what was
	// charged before it was charged to another one. The log has none, because its
	// units have names.
	Birth int64
	// Until is when the block of the key ends, and Length how long it was.
	Until, Length int64
}

// write moves s forward to at, which is now unless the clock stepped back. A state
// that was as if never used is born.
func (s *State) write(now, at, v, w int64, unused bool) {
	if unused {
		s.Birth = now
	}
	s.At, s.V, s.W = at, v, w
	s.touch(now)
}

// touch does what every write does: a birth is not later than now, and a block that
// is over is forgotten.
func (s *State) touch(now int64) {
	s.Birth = min(s.Birth, now)
	if s.Until <= now {
		s.Until, s.Length = 0, 0
	}
}

// Decision is the outcome of one step. Durations are in microseconds.
type Decision struct {
	Allowed    bool
	Remaining  int64
	RetryAfter int64 // > 0 exactly when denied
	ResetAfter int64
	Delay      int64
}

// Step decides a request of cost n at time now and moves s forward. A denied
// request and a cost of 0 leave s as it is, with one exception: a stored time
// further ahead of now than the limit can explain (the clock stepped back, or
// the limit was cut) is brought back by any request with a cost, so that it
// cannot lock the key. It needs 0 ≤ n ≤ p.Cap, and heeds neither p.Keep nor a
// block.
func Step(p Params, s *State, now, n int64) Decision {
	switch p.Kind {
	case FixedWindow:
		return stepFixedWindow(p, s, now, n)
	case SlidingWindowLog:
		return stepLog(p, s, now, n)
	case SlidingWindowCounter:
		return stepCounter(p, s, now, n)
	default:
		return stepBucket(p, s, now, n)
	}
}

// Decide is Step for what heeds p.Keep and a block: it needs n + p.Keep ≤ p.Cap. A
// blocked key is denied, nothing changes and nothing is left, and RetryAfter is the
// later of the end of the block and of the wait that the limit itself asks for.
// That is exact, because a request that could be admitted at some time can also be
// admitted later if nobody else asks. A block further ahead of now than it was long
// is brought back, as Step does with its own times.
func Decide(p Params, s *State, now, n int64) Decision {
	left := s.Blocked(now)
	if left == 0 {
		return stepKeeping(p, s, now, n)
	}
	dry := s.clone()
	retry := stepKeeping(p, &dry, now, n).RetryAfter
	reset := Step(p, s, now, 0).ResetAfter
	if n > 0 && s.Until-now > left {
		s.Until = now + left
		s.touch(now)
	}
	return Decision{RetryAfter: max(retry, left), ResetAfter: max(reset, left)}
}

// Debit charges as many of n units as there is room for, whatever they are kept for
// and also while the key is blocked. Several debits at one time are the same as one.
func Debit(p Params, s *State, now, n int64) Decision {
	p.MaxDelay = 0
	return Step(p, s, now, min(n, Step(p, s, now, 0).Remaining))
}

// Block denies the key for d, unless it is blocked for longer already, and returns
// the time left.
func Block(s *State, now, d int64) int64 {
	left := s.Blocked(now)
	switch {
	case d > left:
		s.Until, s.Length, left = now+d, d, d
	case s.Until-now > left:
		s.Until = now + left
	default:
		return left
	}
	s.touch(now)
	return left
}

// Blocked is for how long the key is blocked at now: never for longer than the
// block was when it began, wherever the clock is.
func (s *State) Blocked(now int64) int64 {
	return max(0, min(s.Until-now, s.Length))
}

func (s *State) clone() State {
	c := *s
	c.Log = append([]Cell(nil), s.Log...)
	return c
}
