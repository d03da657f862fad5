package algo

// stepTokenBucket refills continuously at Num/Den tokens per microsecond.
func stepTokenBucket(p Params, s *State, now, n int64) Decision {
	full := p.Full()
	tokens, last, ahead, rebased := p.tokens(s, now)
	cost := n * p.Den
	var d Decision
	if cost <= tokens {
		tokens -= cost
		d.Allowed = true
	} else {
		d.RetryAfter = ahead + ceilDiv(cost-tokens, p.Num)
	}
	if n > 0 && (d.Allowed || rebased) {
		s.A, s.B = Cell{last, tokens}, Cell{V: p.Den}
	}
	d.Remaining = tokens / p.Den
	if tokens < full {
		d.ResetAfter = ahead + ceilDiv(full-tokens, p.Num)
	}
	return d
}

// tokens returns what a bucket holds at now, in units of 1/Den, when it was last
// refilled, and by how much that is ahead of now. Rebased says that it was too
// far ahead.
func (p Params) tokens(s *State, now int64) (tokens, last, ahead int64, rebased bool) {
	full := p.Full()
	tokens, last = full, now
	if s.B.V != 0 {
		tokens, last = s.A.V, s.A.T
		if s.B.V != p.Den {
			// The rate changed its scale: whole tokens carry over.
			tokens = min(tokens/s.B.V, p.Cap) * p.Den
		}
		tokens = min(tokens, full)
	}
	fill := p.fillTime()
	switch {
	case last <= now:
		return min(full, tokens+min(now-last, fill)*p.Num), now, 0, false
	case last-now > fill:
		return tokens, now, 0, true
	}
	return tokens, last, last - now, false
}

// stepLeakyBucket drains continuously at Num/Den units per microsecond. As a
// meter (policing) it admits while the level fits the capacity; as a queue
// (shaping) it also says how long what is ahead takes to drain.
func stepLeakyBucket(p Params, s *State, now, n int64) Decision {
	full := p.Full()
	level, last, ahead, rebased := p.level(s, now)
	var d Decision
	cost := n * p.Den
	if over := level + cost - full; over > 0 {
		d.RetryAfter = ahead + ceilDiv(over, p.Num)
	}
	if p.Kind == LeakyBucketShaping && level > 0 {
		d.Delay = ahead + ceilDiv(level, p.Num)
		if p.MaxDelay > 0 && d.Delay > p.MaxDelay {
			d.RetryAfter = max(d.RetryAfter, d.Delay-p.MaxDelay)
		}
	}
	if d.RetryAfter > 0 {
		d.Delay = 0
	} else {
		level += cost
		d.Allowed = true
	}
	if n > 0 && (d.Allowed || rebased) {
		s.A, s.B = Cell{last, level}, Cell{V: p.Den}
	}
	d.Remaining = (full - level) / p.Den
	if level > 0 {
		d.ResetAfter = ahead + ceilDiv(level, p.Num)
	}
	return d
}

// level is to a leaky bucket what tokens is to a token bucket.
func (p Params) level(s *State, now int64) (level, last, ahead int64, rebased bool) {
	last = now
	if s.B.V != 0 {
		level, last = s.A.V, s.A.T
		if s.B.V != p.Den {
			level = min(ceilDiv(level, s.B.V), p.Cap) * p.Den
		}
		level = min(level, p.Full())
	}
	fill := p.fillTime()
	switch {
	case last <= now:
		return max(0, level-min(now-last, fill)*p.Num), now, 0, false
	case last-now > fill:
		return level, now, 0, true
	}
	return level, last, last - now, false
}

// stepGCRA is the generic cell rate algorithm (ITU-T I.371, virtual
// scheduling): what it stores is the theoretical arrival time. The distance of
// that time from now, in units of 1/Den, is the level of a leaky bucket.
func stepGCRA(p Params, s *State, now, n int64) Decision {
	full := p.Full()
	level, rebased := p.ahead(s, now)
	var d Decision
	if cost := n * p.Den; level+cost <= full {
		level += cost
		d.Allowed = true
	} else {
		d.RetryAfter = ceilDiv(level+cost-full, p.Num)
	}
	if n > 0 && (d.Allowed || rebased) {
		s.A, s.B = Cell{now + level/p.Num, level % p.Num}, Cell{V: p.Num}
	}
	d.Remaining = (full - level) / p.Den
	d.ResetAfter = ceilDiv(level, p.Num)
	return d
}

// ahead is by how much the theoretical arrival time is ahead of now, in units of
// 1/Den: at most full. Rebased says that it was further ahead than that.
func (p Params) ahead(s *State, now int64) (level int64, rebased bool) {
	full := p.Full()
	if s.B.V != 0 {
		tat, frac := s.A.T, s.A.V
		if s.B.V != p.Num && frac > 0 {
			tat, frac = tat+1, 0
		}
		switch {
		case tat < now:
		case tat-now > p.fillTime():
			level, rebased = full, true
		default:
			level = (tat-now)*p.Num + frac
			if level > full {
				level, rebased = full, true
			}
		}
	}
	return level, rebased
}
