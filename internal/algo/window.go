package algo

import "slices"

// sweep is how many units that have left the window a step takes out of a log,
// besides as many as it adds: a log never grows for it, and no step is long.
const sweep = 100

// stepFixedWindow counts in windows aligned to the epoch, or to a calendar.
func (d *Decision) stepFixedWindow(p *Params, s *State, now, n int64) {
	end, count, rebased := p.window(s, now)
	allowed := count+n <= p.Cap
	if allowed {
		count += n
	}
	if n > 0 && (allowed || rebased) {
		s.write(now, end, count, 0)
	}
	d.ofWindow(p, end-now, count, n, allowed)
}

// window is the window that counts at now, by its end, and the units counted in it. A
// window of another length goes on in the one in which it ends.
func (p *Params) window(s *State, now int64) (end, count int64, rebased bool) {
	start, end := p.Bounds(now)
	switch {
	case s.At <= start:
		return end, 0, false
	case s.At <= end:
		return end, s.V, false
	case s.At-now <= 2*p.Den:
		// The clock stepped back a little: stay in the window already begun, or it
		// would be granted twice.
		return s.At, s.V, false
	}
	return end, s.V, true
}

// ofWindow is the decision on n units that has left a count behind in a window of
// which so much time is left.
func (d *Decision) ofWindow(p *Params, left, count, n int64, allowed bool) {
	d.Allowed, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay = allowed, max(0, p.Cap-count), 0, 0, 0
	if count > 0 {
		d.ResetAfter = left
	}
	if !allowed && count+n > p.Cap {
		d.RetryAfter = left
	}
}

// stepLog remembers the time of every admitted unit of the last window. What has left
// it counts no more, and is taken out bit by bit. What is charged is age µs old.
func (d *Decision) stepLog(p *Params, s *State, now, n, age int64) {
	w := p.Den
	log, count := s.Log, s.V
	for len(log) > 0 && log[0].T <= now-w {
		count -= log[0].V
		log = log[1:]
	}
	old, gone := s.V-count, len(s.Log)-len(log)
	rebased := false
	if len(log) > 0 && log[len(log)-1].T-now > w {
		rebased = true
		log = pullBack(log, now)
	}
	*d = Decision{}
	added := int64(0)
	if count+n <= p.Cap {
		d.Allowed = true
		added = n
	} else {
		d.RetryAfter = nth(log, count+n-p.Cap) + w - now
	}
	if added > 0 {
		log = insert(log, Cell{now - age, n})
		count += n
	}
	if n > 0 && (d.Allowed || rebased) {
		if out := min(old, added+sweep); out < old {
			log = append(withoutOldest(s.Log[:gone], out), log...)
			old -= out
		} else {
			old = 0
		}
		s.Log, s.V = log, count+old
		s.touch(now)
	}
	d.Remaining = max(0, p.Cap-count)
	if count > 0 {
		d.ResetAfter = log[len(log)-1].T + w - now
	}
}

// withoutOldest returns the log without its n oldest units.
func withoutOldest(log []Cell, n int64) []Cell {
	for n >= log[0].V {
		n -= log[0].V
		log = log[1:]
	}
	log[0].V -= n
	return log
}

// insert keeps the log sorted: a clock that stepped back adds in the middle.
func insert(log []Cell, c Cell) []Cell {
	i := len(log)
	for i > 0 && log[i-1].T > c.T {
		i--
	}
	if i > 0 && log[i-1].T == c.T {
		log[i-1].V += c.V
		return log
	}
	return slices.Insert(log, i, c)
}

// pullBack returns the log with no entry later than now.
func pullBack(log []Cell, now int64) []Cell {
	var out []Cell
	for _, c := range log {
		out = insert(out, Cell{min(c.T, now), c.V})
	}
	return out
}

// nth is the time of the k-th oldest unit.
func nth(log []Cell, k int64) int64 {
	for _, c := range log {
		if k -= c.V; k <= 0 {
			return c.T
		}
	}
	return 0
}

// stepCounter weighs the previous window by how much of it the sliding window
// still covers.
func (d *Decision) stepCounter(p *Params, s *State, now, n int64) {
	end, cur, prev, rebased := p.windows(s, now)
	room := p.Cap - n - cur
	allowed := room >= 0 && prev*min(p.Den, end-now) <= room*p.Den
	if allowed {
		cur += n
	}
	if n > 0 && (allowed || rebased) {
		s.write(now, end, cur, prev)
	}
	d.ofWindows(p, end-now, cur, prev, n, allowed)
}

// debitCounter charges as many of n units as there is room for to the window that counted
// age µs ago.
func (d *Decision) debitCounter(p *Params, s *State, now, n, age int64) {
	end, cur, prev, _ := p.windows(s, now)
	left, begin := min(p.Den, end-now), end-p.Den
	before := int64(0)
	switch {
	case now-age >= begin:
		n = max(0, min(n, p.Cap-cur-ceilDiv(prev*left, p.Den)))
	case now-age >= begin-p.Den:
		n, before = 0, max(0, min(n, p.Cap-prev, (p.Cap-cur)*p.Den/left-prev))
	default:
		n = 0
	}
	if n+before > 0 {
		cur, prev = cur+n, prev+before
		s.write(now, end, cur, prev)
	}
	d.ofWindows(p, end-now, cur, prev, 0, true)
}

// windows is the window that counts at now, by its end, and the units counted in it and
// in the one before. Which windows count is as in window.
func (p *Params) windows(s *State, now int64) (end, cur, prev int64, rebased bool) {
	w := p.Den
	start := now - now%w
	end, cur, prev = start+w, s.V, s.W
	switch {
	case s.At <= start-w:
		cur, prev = 0, 0
	case s.At <= start:
		cur, prev = 0, cur
	case s.At <= end:
	case s.At-now <= 2*w:
		end = s.At
	default:
		// Far ahead: the two windows become the next one and the current. At the
		// start of the next the previous weighs most, so that nothing is granted.
		rebased = true
		end += w
	}
	// What a larger limit left behind is cut so that products stay exact.
	return end, cur, min(prev, MaxExact/w), rebased
}

// ofWindows is the decision on n units that has left these counts behind, in a
// window that ends after ahead.
func (d *Decision) ofWindows(p *Params, ahead, cur, prev, n int64, allowed bool) {
	w := p.Den
	left := min(w, ahead) // of the window, which may not have begun
	d.Allowed, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay = allowed, max(0, p.Cap-cur-ceilDiv(prev*left, w)), 0, 0, 0
	switch {
	case cur > 0:
		d.ResetAfter = ahead + w
	case prev > 0:
		d.ResetAfter = ahead
	}
	switch room := p.Cap - n - cur; {
	case allowed, room >= 0 && prev*left <= room*w:
	case room >= 0:
		d.RetryAfter = ahead - room*w/prev
	default:
		d.RetryAfter = ahead + w - max(0, p.Cap-n)*w/min(cur, MaxExact/w)
	}
}
