package algo

// stepFixedWindow counts in windows aligned to the epoch.
func stepFixedWindow(p Params, s *State, now, n int64) Decision {
	w := p.Den
	start := now - now%w
	at, count := s.A.T, s.A.V
	rebased := false
	switch {
	case at > now && at-now <= w:
		// The clock stepped back a little: stay in the window already begun, or
		// it would be granted twice.
		start = at
	case at > now:
		rebased = true
	case at < start:
		count = 0
	}
	var d Decision
	if count+n <= p.Cap {
		count += n
		d.Allowed = true
	} else {
		d.RetryAfter = start + w - now
	}
	if n > 0 && (d.Allowed || rebased) {
		s.A = Cell{start, count}
	}
	d.Remaining = max(0, p.Cap-count)
	if count > 0 {
		d.ResetAfter = start + w - now
	}
	return d
}

// stepLog remembers the time of every admitted unit of the last window.
func stepLog(p Params, s *State, now, n int64) Decision {
	w := p.Den
	log, count := s.Log, s.A.V
	for len(log) > 0 && log[0].T <= now-w {
		count -= log[0].V
		log = log[1:]
	}
	rebased := false
	if len(log) > 0 && log[len(log)-1].T-now > w {
		rebased = true
		log = pullBack(log, now)
	}
	var d Decision
	if count+n <= p.Cap {
		d.Allowed = true
		if n > 0 {
			log = insert(log, Cell{now, n})
			count += n
		}
	} else {
		d.RetryAfter = nth(log, count+n-p.Cap) + w - now
	}
	if n > 0 && (d.Allowed || rebased) {
		s.Log, s.A.V = log, count
	}
	d.Remaining = max(0, p.Cap-count)
	if count > 0 {
		d.ResetAfter = log[len(log)-1].T + w - now
	}
	return d
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
	cells := [2]Cell{s.A, s.B}
	eff, rebased := now, false
	if newest := max(s.A.T, s.B.T); newest > now {
		if newest-now <= w {
			eff = newest
		} else {
			// Far ahead: the two windows become the next one and the current.
			// At the start of the next the previous weighs most, so that
			// nothing is granted.
			rebased = true
			i := now/w + 1
			eff = i * w
			var moved [2]Cell
			moved[i&1] = Cell{i * w, countAt(cells, newest)}
			moved[(i+1)&1] = Cell{(i - 1) * w, countAt(cells, newest-w)}
			cells = moved
		}
	}
	i := eff / w
	start := i * w
	left := w - (eff - start)
	ahead := eff - now
	cur := sameStart(cells[i&1], start)
	// What a larger limit left behind is cut so that products stay exact.
	prev := min(sameStart(cells[(i+1)&1], start-w), MaxExact/w)
	room := p.Cap - n - cur

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
		cells[i&1] = Cell{start, cur}
		s.A, s.B = cells[0], cells[1]
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

func sameStart(c Cell, start int64) int64 {
	if c.T == start {
		return c.V
	}
	return 0
}

func countAt(cells [2]Cell, start int64) int64 {
	return sameStart(cells[0], start) + sameStart(cells[1], start)
}
