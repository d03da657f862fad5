package algo

import "slices"

// Cell is a time with a value: what it means depends on the algorithm.
type Cell struct{ T, V int64 }

// State is what is remembered of one key. The zero value is a key that was
// never used.
//
//	fixed window    At = when the window ends, V = the units counted in it
//	window log      Log = units admitted at a time, oldest first; V = their sum
//	window counter  At = when the window ends, V = the units counted in it, W = those of the one before
//	buckets, GCRA   At = when the bucket is empty, rounded up: the theoretical arrival time.
//	                V = what it lacks then, in 1/W units; it drains Num of these per microsecond.
//	                Cap = the burst
type State struct {
	At, V, W, Num, Cap int64
	Log                []Cell
	// Birth is when the state was first charged: what was charged before was charged to
	// another one. The log has none, because its units have names.
	Birth int64
	// Until is when the block of the key ends, and Length how long it was.
	Until, Length int64
}

// write sets the numbers of s.
func (s *State) write(now, at, v, w int64) {
	if s.Birth == 0 {
		s.Birth = now
	}
	s.At, s.V, s.W = at, v, w
	s.touch(now)
}

// touch does what every write does: a block that is over is forgotten.
func (s *State) touch(now int64) {
	if s.Until <= now {
		s.Until, s.Length = 0, 0
	}
}

// Blocked is for how long the key is blocked at now: never for longer than the
// block was when it began, wherever the clock is.
func (s *State) Blocked(now int64) int64 {
	return max(0, min(s.Until-now, s.Length))
}

func (s *State) clone() State {
	c := *s
	c.Log = slices.Clone(s.Log)
	return c
}

// Decision is the outcome of one step. Durations are in microseconds.
type Decision struct {
	Allowed    bool
	Remaining  int64
	RetryAfter int64 // > 0 exactly when denied
	ResetAfter int64
	Delay      int64
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
	}
	return left
}
