package algo

// GiveBack returns n of the units that were taken at a time until now, and not
// used, to the key, and reports how many of them could be returned. What the key
// then admits is never more than if they had not been taken.
//
// What was charged before the state was born was charged to one that is lost, and
// returns nothing, as what was charged at another rate. Windows count what returns no more, if the
// window in which it was taken still counts. From a bucket all that was taken has drained since, as far as
// its rate drains: it may have been full meanwhile, and what was not refilled then
// must not be refilled now. What was taken for shaping keeps its place, since the delays of
// those behind it are already known.
func GiveBack(p Params, s *State, now, at, taken, n int64) int64 {
	switch {
	case p.Kind == LeakyBucketShaping, at < min(s.Birth, now):
		return 0
	case p.Kind == SlidingWindowLog:
		return giveBackLog(p, s, now, at, n)
	case p.Kind.Windowed():
		return giveBackWindow(p, s, now, at, n)
	}
	return giveBackBucket(p, s, now, at, taken, n)
}

// giveBackBucket leaves the state its burst: p may be an earlier limit, whose burst is less than what is used by now.
func giveBackBucket(p Params, s *State, now, at, taken, n int64) int64 {
	level, _ := s.level(now)
	if level == 0 || s.Num != p.Num || s.W != p.Den {
		return 0
	}
	back := min(n*p.Den, level, p.undrained(now-at, taken))
	if back <= 0 {
		return 0
	}
	p.Cap = s.Cap
	p.store(s, now, level-back, ceilDiv(level-back, p.Num))
	return back / p.Den
}

// Refund returns n units of the key that were taken just now, by any caller:
// of the log the newest ones.
func Refund(p Params, s *State, now, n int64) int64 {
	if p.Kind != SlidingWindowLog {
		return GiveBack(p, s, now, now, n, n)
	}
	var back int64
	for i := len(s.Log) - 1; i >= 0 && back < n && s.Log[i].T > now-p.Den; i-- {
		out := min(n-back, s.Log[i].V)
		s.Log[i].V -= out
		s.V -= out
		back += out
		if s.Log[i].V == 0 {
			s.Log = s.Log[:i]
		}
	}
	return back
}

// giveBackWindow takes up to n units out of the window in which they were taken, while
// that counts.
func giveBackWindow(p Params, s *State, now, at, n int64) int64 {
	_, end := p.Bounds(at)
	count, over := &s.V, end
	if p.Kind == SlidingWindowCounter {
		_, over = p.Bounds(end)
	}
	switch {
	case now >= over:
		return 0
	case s.At == end:
	case p.Kind == SlidingWindowCounter && s.At == over:
		count = &s.W
	default:
		return 0
	}
	if n = min(n, *count); n > 0 {
		*count -= n
		s.touch(now)
	}
	return n
}

func giveBackLog(p Params, s *State, now, taken, n int64) int64 {
	if taken <= now-p.Den {
		return 0
	}
	for i := range s.Log {
		if c := &s.Log[i]; c.T == taken {
			n = min(n, c.V)
			c.V -= n
			s.V -= n
			if c.V == 0 {
				s.Log = append(s.Log[:i:i], s.Log[i+1:]...)
			}
			return n
		}
	}
	return 0
}
