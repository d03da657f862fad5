package algo

// Reading is what a script replies of the state that a decision has left behind, and from
// which the client computes the rest. What does not concern the algorithm is 0.
type Reading struct {
	Level    int64 // of a bucket, in 1/Den units; of a window or log the units in it
	Previous int64 // of a counter: the units in the window before
	Ahead    int64 // of windows: the time until this one ends
	// Of a log: the time until it is empty, and until there is room for who was denied.
	Reset, Retry int64
	Blocked      int64 // the time left of a block
}

// Charge is what a request of n units charges, and the most that a state may hold for it
// to be admitted, as in Reading.Level. A cost below 0 is a debt of so many units.
func (p Params) Charge(n int64) (cost, most int64) {
	most = p.Most()
	if n < 0 {
		return n, most
	}
	scale := int64(1)
	if !p.Kind.Windowed() {
		scale = p.Den
	}
	if n > 0 {
		most -= (n + p.Keep) * scale
	}
	if p.Kind == LeakyBucketShaping && p.MaxDelay > 0 {
		most = min(most, p.maxQueue())
	}
	return n * scale, most
}

// Most is the level of a state that is full.
func (p Params) Most() int64 {
	if p.Kind.Windowed() {
		return p.Cap
	}
	return p.Full()
}

// Decision is what Decide returns for a request of n units that has left r behind: it was
// admitted and charged, or denied. For n below 0 it is what Debit returns.
func (p Params) Decision(r Reading, n int64, allowed bool) Decision {
	if !allowed && n > 0 {
		n += p.Keep
	}
	units := max(0, n)
	var d Decision
	switch p.Kind {
	case FixedWindow:
		d.ofWindow(&p, r.Ahead, r.Level, units, allowed)
	case SlidingWindowCounter:
		d.ofWindows(&p, r.Ahead, r.Level, r.Previous, units, allowed)
	case SlidingWindowLog:
		d = Decision{Allowed: allowed, Remaining: max(0, p.Cap-r.Level), ResetAfter: r.Reset}
		if !allowed {
			d.RetryAfter = r.Retry
		}
	default:
		d.ofBucket(&p, r.Level, ceilDiv(r.Level, p.Num), units, allowed)
	}
	if n < 0 {
		d.Delay = 0
	}
	if r.Blocked > 0 && !allowed {
		return Decision{RetryAfter: max(d.RetryAfter, r.Blocked), ResetAfter: max(d.ResetAfter, r.Blocked)}
	}
	return d
}

// Read is what a script replies of a state at now, if n units are asked for.
func (p Params) Read(s *State, now, n int64) Reading {
	r := Reading{Blocked: s.Blocked(now)}
	switch p.Kind {
	case FixedWindow:
		end, count, _ := p.window(s, now)
		r.Level, r.Ahead = count, end-now
	case SlidingWindowCounter:
		end, cur, prev, _ := p.windows(s, now)
		r.Level, r.Previous, r.Ahead = cur, prev, end-now
	case SlidingWindowLog:
		dry := s.clone()
		var d Decision
		d.stepLog(&p, &dry, now, 0, 0)
		r.Level, r.Reset = p.units(s, now), d.ResetAfter
		if n == 0 {
			r.Retry = d.RetryAfter // of a limit that is lower than it was
		} else if n > 0 {
			d.stepLog(&p, &dry, now, n+p.Keep, 0)
			r.Retry = d.RetryAfter
		}
	default:
		r.Level, _ = p.level(s, now)
		if _, most := p.Charge(n); n >= 0 && r.Level > most {
			r.Level = p.seen(s, now, r.Level, most)
		}
	}
	return r
}

// units are those of a log that are in the window.
func (p Params) units(s *State, now int64) (n int64) {
	for _, c := range s.Log {
		if c.T > now-p.Den {
			n += c.V
		}
	}
	return n
}
