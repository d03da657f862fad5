package algo

// sweep is how many units that have left the window a step takes out of a log,
// besides as many as it adds: a log never grows for it, and no step is long.
const sweep = 100

// stepFixedWindow counts in windows aligned to the epoch.
func stepFixedWindow(p Params, s *State, now, n int64) Decision {
	w := p.Den
	start, count := now-now%w, s.V
	rebased := false
	switch begun := s.At - s.At%w; {
	case begun > now && begun-now <= w:
		// The clock stepped back a little: stay in the window already begun, or
		// it would be granted twice.
		start = begun
	case begun > now:
		rebased = true
	case begun < start:
		count = 0
	}
	unused := count == 0
	var d Decision
	if count+n <= p.Cap {
		count += n
		d.Allowed = true
	} else {
		d.RetryAfter = start + w - now
	}
	if n > 0 && (d.Allowed || rebased) {
		s.write(now, max(now, start), count, 0, unused)
	}
	d.Remaining = max(0, p.Cap-count)
	if count > 0 {
		d.ResetAfter = start + w - now
	}
	return d
}

// stepLog remembers the time of every admitted unit of the last window. What has left
// it counts no more, and is taken out bit by bit.
func stepLog(p Params, s *State, now, n int64) Decision {
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
	var d Decision
	added := int64(0)
	if count+n <= p.Cap {
		d.Allowed = true
		added = n
	} else {
		d.RetryAfter = nth(log, count+n-p.Cap) + w - now
	}
	if added > 0 {
		log = insert(log, Cell{now, n})
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
	return d
}

// withoutOldest returns a copy of the log without its n oldest units.
func withoutOldest(log []Cell, n int64) []Cell {
	for n >= log[0].V {
		n -= log[0].V
		log = log[1:]
	}
	log = append([]Cell(nil), log...)
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
	log = append(log, Cell{})
	copy(log[i+1:], log[i:])
	log[i] = c
	return log
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
func stepCounter(p Params, s *State, now, n int64) Decision {
	w := p.Den
	start, cur, prev := now-now%w, s.V, s.W
	rebased := false
	switch begun := s.At - s.At%w; {
	case begun > now && begun-now <= w:
		start = begun
	case begun > now:
		// Far ahead: the two windows become the next one and the current. At the
		// start of the next the previous weighs most, so that nothing is granted.
		rebased = true
		start += w
	case begun == start-w:
		cur, prev = 0, cur
	case begun < start:
		cur, prev = 0, 0
	}
	at := max(now, start)
	left := w - (at - start)
	ahead := at - now
	// What a larger limit left behind is cut so that products stay exact.
	prev = min(prev, MaxExact/w)
	room := p.Cap - n - cur
	unused := cur == 0 && prev == 0

	var d Decision
	switch {
	case room >= 0 && prev*left <= room*w:
		d.Allowed = true
		cur += n
	case room >= 0:
		d.RetryAfter = ahead + left - room*w/prev
	default:
		c := min(cur, MaxExact/w)
		d.RetryAfter = ahead + left + w - max(0, p.Cap-n)*w/c
	}
	if n > 0 && (d.Allowed || rebased) {
		s.write(now, at, cur, prev, unused)
	}
	d.Remaining = max(0, p.Cap-cur-ceilDiv(prev*left, w))
	switch {
	case cur > 0:
		d.ResetAfter = ahead + left + w
	case prev > 0:
		d.ResetAfter = ahead + left
	}
	return d
}
