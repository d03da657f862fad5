package algo

// What a process admits on its own while Redis cannot decide is owed to Redis:
// these functions keep the account. A debt weighs as the algorithm itself would
// weigh it, so that what has drained, or whose window has passed, is not owed.
// State is used as for the sliding window counter, or for the leaky bucket.

// Owe adds n units admitted at now. p is the process's own part of the limit.
func Owe(p Params, s *State, now, n int64) {
	if p.Kind.Windowed() {
		w := p.Den
		i := now / w
		cell := &s.A
		if i&1 == 1 {
			cell = &s.B
		}
		*cell = Cell{i * w, sameStart(*cell, i*w) + n}
		return
	}
	level := min(owedLevel(p, s, now)+n*p.Den, p.Full())
	s.A, s.B = Cell{now, level}, Cell{V: p.Den}
}

// Forgive takes n of the units back that were admitted at a time: as GiveBack, it
// never forgives more than if they had not been admitted.
func Forgive(p Params, s *State, now, at, admitted, n int64) {
	if p.Kind.Windowed() {
		w := p.Den
		start := at - at%w
		cell := &s.A
		if at/w&1 == 1 {
			cell = &s.B
		}
		if cell.T == start {
			cell.V -= min(n, cell.V)
		}
		return
	}
	level := owedLevel(p, s, now)
	level -= max(0, min(level, n*p.Den, p.undrained(now-at, admitted)))
	s.A, s.B = Cell{now, level}, Cell{V: p.Den}
}

// Owed returns how many units still weigh at now: at most p.Cap, rounded up.
func Owed(p Params, s *State, now int64) int64 {
	if !p.Kind.Windowed() {
		return ceilDiv(owedLevel(p, s, now), p.Den)
	}
	w := p.Den
	i := now / w
	cells := [2]Cell{s.A, s.B}
	owed := sameStart(cells[i&1], i*w)
	if p.Kind != FixedWindow {
		prev := min(sameStart(cells[(i+1)&1], (i-1)*w), p.Cap)
		owed += int64((float64(prev)*float64(w-now%w) + float64(w) - 1) / float64(w))
	}
	return min(owed, p.Cap)
}

// owedLevel is what is left at now of a level that drains at p's rate.
func owedLevel(p Params, s *State, now int64) int64 {
	if s.B.V == 0 {
		return 0
	}
	level := s.A.V
	if s.B.V != p.Den {
		level = min(ceilDiv(level, s.B.V), p.Cap) * p.Den
	}
	elapsed := max(0, min(now-s.A.T, p.fillTime()))
	return max(0, min(level, p.Full())-elapsed*p.Num)
}

// Warm returns a state in which remaining units are left at now: where a process
// starts that knows only what Redis last said. It never leaves more than that at
// any later time than the algorithm would.
func Warm(p Params, now, remaining int64) State {
	var s State
	used := p.Cap - max(0, min(remaining, p.Cap))
	if used == 0 {
		return s
	}
	switch p.Kind {
	case FixedWindow:
		s.A = Cell{now - now%p.Den, used}
	case SlidingWindowLog:
		s.Log, s.A.V = []Cell{{now, used}}, used
	case SlidingWindowCounter:
		if i := now / p.Den; i&1 == 0 {
			s.A = Cell{i * p.Den, used}
		} else {
			s.B = Cell{i * p.Den, used}
		}
	case TokenBucket:
		s.A, s.B = Cell{now, (p.Cap - used) * p.Den}, Cell{V: p.Den}
	case LeakyBucket, LeakyBucketShaping:
		s.A, s.B = Cell{now, used * p.Den}, Cell{V: p.Den}
	case GCRA:
		level := used * p.Den
		s.A, s.B = Cell{now + level/p.Num, level % p.Num}, Cell{V: p.Num}
	}
	return s
}
