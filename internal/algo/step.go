package algo

import (
	"strconv"
	"time"
)

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
//	fixed window    A = start of the window, units counted in it
//	window log      Log = units admitted at a time, oldest first; A.V = their sum
//	window counter  A and B = start and count of windows with an even and an odd number
//	token bucket    A = last refill, tokens in 1/B.V
//	leaky buckets   A = last leak, level in 1/B.V
//	GCRA            A = theoretical arrival time, in µs and a fraction of A.V/B.V µs
type State struct {
	A, B Cell
	Log  []Cell
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
// cannot lock the key. It needs 0 ≤ n ≤ p.Cap, and does not heed p.Keep.
func Step(p Params, s *State, now, n int64) Decision {
	switch p.Kind {
	case FixedWindow:
		return stepFixedWindow(p, s, now, n)
	case SlidingWindowLog:
		return stepLog(p, s, now, n)
	case SlidingWindowCounter:
		return stepCounter(p, s, now, n)
	case TokenBucket:
		return stepTokenBucket(p, s, now, n)
	case LeakyBucket, LeakyBucketShaping:
		return stepLeakyBucket(p, s, now, n)
	default:
		return stepGCRA(p, s, now, n)
	}
}

// StepBlocked is Step for a key that is blocked until a time after now: it is
// denied, nothing changes, and RetryAfter is the later of the end of the block
// and of the wait that the limit itself asks for. That is exact, because a
// request that could be admitted at some time can also be admitted later if
// nobody else asks. It heeds p.Keep, and needs n + p.Keep ≤ p.Cap.
func StepBlocked(p Params, s *State, now, n, until int64) Decision {
	if until <= now {
		return stepKeeping(p, s, now, n)
	}
	dry := s.clone()
	retry := stepKeeping(p, &dry, now, n).RetryAfter
	d := Step(p, s, now, 0)
	d.Allowed, d.Delay = false, 0
	d.RetryAfter = max(retry, until-now)
	return d
}

func (s *State) clone() State {
	c := *s
	c.Log = append([]Cell(nil), s.Log...)
	return c
}
