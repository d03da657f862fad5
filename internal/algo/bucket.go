package algo

// stepBucket is one algorithm with four names: a level that drains continuously at
// Num/Den units per microsecond, and admits what fits below full. It is what a leaky
// bucket as a meter (policing) says itself. A token bucket has what the level leaves
// free. GCRA is the same by ITU-T I.371, whose two forms, virtual scheduling and the
// continuous-state leaky bucket, are equivalent. As a queue (shaping) it also says
// how long what is ahead takes to drain.
func stepBucket(p Params, s *State, now, n int64) Decision {
	full, cost := p.Full(), n*p.Den
	level, rebased := p.level(s, now)
	unused := level == 0
	var d Decision
	if over := level + cost - full; over > 0 {
		d.RetryAfter = ceilDiv(over, p.Num)
	}
	if p.Kind == LeakyBucketShaping {
		d.Delay = ceilDiv(level, p.Num)
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
		p.store(s, now, level, unused)
	}
	d.Remaining = (full - level) / p.Den
	d.ResetAfter = ceilDiv(level, p.Num)
	return d
}

// level is what has not drained at now, in units of 1/Den: at most full. Rebased says
// that it was further ahead than that. When the clock stepped back, what has drained
// since is there again.
func (p Params) level(s *State, now int64) (level int64, rebased bool) {
	if s.At == 0 {
		return 0, false
	}
	full, fill := p.Full(), p.fillTime()
	level = s.V
	if s.W != p.Den {
		// The rate changed its scale: whole units carry over.
		if p.Kind == TokenBucket {
			level = min(level/s.W, p.Cap) * p.Den
		} else {
			level = min(ceilDiv(level, s.W), p.Cap) * p.Den
		}
	}
	level = min(level, full)
	if p.Kind == TokenBucket {
		level = full - level
	}
	level = max(0, level-max(-fill, min(now-s.At, fill))*p.Num)
	if s.At-now > fill || level > full {
		return full, true
	}
	return level, false
}

// store is the other direction of level.
func (p Params) store(s *State, now, level int64, unused bool) {
	if p.Kind == TokenBucket {
		level = p.Full() - level
	}
	s.write(now, now, level, p.Den, unused)
}
