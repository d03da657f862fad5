package algo

// What a process admits on its own while Redis cannot decide is owed to Redis:
// these functions keep the account. A debt weighs as the algorithm itself would
// weigh it, so that what has drained, or whose window has passed, is not owed.
// State is used as for the sliding window counter; of a bucket At is the time at which V is
// its level in 1/W units. A debt needs no birth: Forgive is called with the debt itself.

// Owe adds n units admitted at now. p is the process's own part of the limit.
func Owe(p Params, s *State, now, n int64) {
	if p.Kind.Windowed() {
		*s = p.owedWindows(s, now)
		s.V += n
		return
	}
	level := min(owedLevel(p, s, now)+n*p.Den, p.Full())
	s.At, s.V, s.W = now, level, p.Den
}

// Forgive takes n of the units back that were admitted at a time: as GiveBack, it
// never forgives more than if they had not been admitted.
func Forgive(p Params, s *State, now, at, admitted, n int64) {
	if p.Kind.Windowed() {
		p.Kind = SlidingWindowCounter
		giveBackWindow(p, s, now, at, n)
		return
	}
	level := owedLevel(p, s, now)
	level -= max(0, min(level, n*p.Den, p.undrained(now-at, admitted)))
	s.At, s.V, s.W = now, level, p.Den
}

// Owed returns how many units still weigh at now: at most p.Cap, rounded up.
func Owed(p Params, s *State, now int64) int64 {
	if !p.Kind.Windowed() {
		return ceilDiv(owedLevel(p, s, now), p.Den)
	}
	w := p.Den
	c := p.owedWindows(s, now)
	owed := c.V
	if p.Kind != FixedWindow {
		owed += int64((float64(min(c.W, p.Cap))*float64(w-now%w) + float64(w) - 1) / float64(w))
	}
	return min(owed, p.Cap)
}

// owedWindows is a debt counted in windows as it stands at now.
func (p Params) owedWindows(s *State, now int64) State {
	end := now - now%p.Den + p.Den
	switch over := now/p.Den - (s.At-1)/p.Den; {
	case s.At == 0 || over > 1:
		return State{At: end}
	case over == 1:
		return State{At: end, W: s.V}
	}
	return State{At: end, V: s.V, W: s.W}
}

// owedLevel is what is left at now of a level that drains at p's rate.
func owedLevel(p Params, s *State, now int64) int64 {
	if s.At == 0 {
		return 0
	}
	level := s.V
	if s.W != p.Den {
		level = min(ceilDiv(level, s.W), p.Cap) * p.Den
	}
	elapsed := max(0, min(now-s.At, p.fillTime()))
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
	switch {
	case p.Kind == SlidingWindowLog:
		s.Log, s.V = []Cell{{now, used}}, used
	case p.Kind.Windowed():
		s.write(now, now-now%p.Den+p.Den, used, 0)
	default:
		p.store(&s, now, used*p.Den)
	}
	return s
}
