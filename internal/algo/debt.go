package algo

import "slices"

// What a process admits on its own while Redis cannot decide is owed to Redis:
// these functions keep the account. A debt weighs as the algorithm itself would
// weigh it, so that what has drained, or whose window has passed, is not owed.
// State is used as for the sliding window counter, and for the log; of a bucket At is the time
// at which V is its level in 1/W units. A debt needs no birth: Forgive is called with the debt itself.

// Use is units that were used age µs ago.
type Use struct{ Units, Age int64 }

// Owe adds n units admitted age µs before now. p is the process's own part of the limit.
func Owe(p Params, s *State, now, n, age int64) {
	switch {
	case p.Kind == SlidingWindowLog:
		for len(s.Log) > 0 && s.Log[0].T <= now-p.Den {
			s.Log = s.Log[1:]
		}
		grid := max(1, p.Den/16) // times are rounded up, so that there are few
		s.Log = insert(s.Log, Cell{(now - age + grid - 1) / grid * grid, n})
	case p.Kind.Windowed():
		*s = p.owedWindows(s, now)
		if start, _ := p.Bounds(s.At - 1); now-age < start {
			s.W += n
		} else {
			s.V += n
		}
	default:
		OweLevel(p, s, now, min(owedLevel(p, s, now)+n*p.Den, p.Full()))
	}
}

// OweLevel makes the debt that of a key of which so much is used at now, in 1/p.Den units: of
// a bucket.
func OweLevel(p Params, s *State, now, level int64) { s.At, s.V, s.W = now, level, p.Den }

// Owed returns what still weighs at now, and when it was used: at most p.Cap of a window, and
// rounded up.
func Owed(p Params, s *State, now int64) []Use {
	var all [2]Use
	switch {
	case p.Kind == SlidingWindowLog:
		var log []Use
		left := p.Cap
		for i := len(s.Log) - 1; i >= 0 && left > 0 && s.Log[i].T > now-p.Den; i-- {
			n := min(left, s.Log[i].V)
			log, left = append(log, Use{n, max(0, now-s.Log[i].T)}), left-n
		}
		return log
	case p.Kind.Windowed():
		c := p.owedWindows(s, now)
		all[0].Units = min(c.V, p.Cap)
		if p.Kind == SlidingWindowCounter {
			// A window ago is in the window before, also by a clock that is a little off.
			all[1] = Use{min(c.W, p.Cap), p.Den}
		}
	default:
		all[0].Units = ceilDiv(owedLevel(p, s, now), p.Den)
	}
	return slices.DeleteFunc(all[:], func(u Use) bool { return u.Units == 0 })
}

// Forgive takes n of the units back that were admitted at a time: as GiveBack, it
// never forgives more than if they had not been admitted.
func Forgive(p Params, s *State, now, at, admitted, n int64) {
	switch {
	case p.Kind == SlidingWindowLog:
		for i := range s.Log {
			if c := &s.Log[i]; c.T >= at && at > now-p.Den {
				c.V -= min(n, c.V)
				return
			}
		}
		return
	case p.Kind.Windowed():
		giveBackWindow(p, s, now, at, n)
		return
	}
	level := owedLevel(p, s, now)
	level -= max(0, min(level, n*p.Den, p.undrained(now-at, admitted)))
	s.At, s.V, s.W = now, level, p.Den
}

// owedWindows is a debt counted in windows as it stands at now.
func (p *Params) owedWindows(s *State, now int64) State {
	start, end := p.Bounds(now)
	before, _ := p.Bounds(start - 1)
	switch {
	case s.At <= before:
		return State{At: end}
	case s.At <= start:
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
	elapsed := max(0, min(now-s.At, p.FillTime()))
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
		_, end := p.Bounds(now)
		s.write(now, end, used, 0)
	default:
		p.store(&s, now, used*p.Den, ceilDiv(used*p.Den, p.Num))
	}
	return s
}
