package algo

import "math/bits"

// stepBucket is one algorithm with four names: a level that drains continuously at
// Num/Den units per microsecond, and admits what fits below full. It is what a leaky
// bucket as a meter (policing) says itself. A token bucket has what the level leaves
// free. GCRA is the same by ITU-T I.371, whose two forms, virtual scheduling and the
// continuous-state leaky bucket, are equivalent: the state holds the theoretical arrival
// time of the first, which is when the bucket of the second is empty. As a queue
// (shaping) it also says how long what is ahead takes to drain.
func (d *Decision) stepBucket(p *Params, s *State, now, n int64) {
	level, rebased := p.level(s, now)
	most := p.Full() - n*p.Den
	if p.Kind == LeakyBucketShaping && p.MaxDelay > 0 {
		most = min(most, p.maxQueue())
	}
	allowed, after := level <= most, level
	if allowed {
		after += n * p.Den
	} else {
		after = p.seen(s, now, level, most)
	}
	empty := ceilDiv(after, p.Num)
	switch {
	case n == 0:
	case allowed:
		p.store(s, now, after, empty)
	case p.faster(s):
		// Its rate counts from now on. What is used may be more than its burst.
		q := *p
		q.Cap = max(p.Cap, ceilDiv(level, p.Den))
		q.store(s, now, level, ceilDiv(level, p.Num))
	case rebased && p.Whole != nil:
		p.store(s, now, level, ceilDiv(level, p.Num))
	case rebased: // as full as the limit that charged it last lets it be
		own := Params{Cap: s.Cap, Num: s.Num, Den: s.W}
		own.store(s, now, own.Full(), own.FillTime())
	}
	d.ofBucket(p, after, empty, n, allowed)
}

// faster reports that p drains faster than the limit of s, of which something is left: by floating-point numbers, as the
// script compares them.
func (p *Params) faster(s *State) bool {
	return float64(p.Num)*float64(s.W) > float64(s.Num)*float64(p.Den)
}

// seen is the level of s for one who is denied above most. It drains at the rate of s until p charges it, so for a slower
// p it is what drains at that one's in the time in which s comes down to most.
func (p *Params) seen(s *State, now, level, most int64) int64 {
	if s.Num == p.Num && s.W == p.Den || p.faster(s) {
		return level
	}
	own, _ := s.level(now)
	wait := ceilDiv(own-floorDiv(most, p.Den)*s.W, s.Num)
	if hi, lo := bits.Mul64(uint64(wait), uint64(p.Num)); hi == 0 && lo <= MaxExact {
		level = min(level, most+int64(lo))
	}
	return level
}

// maxQueue is the highest level at which what is ahead drains within MaxDelay.
func (p *Params) maxQueue() int64 {
	if hi, lo := bits.Mul64(uint64(p.MaxDelay), uint64(p.Num)); hi == 0 && lo <= MaxExact {
		return int64(lo)
	}
	return MaxExact
}

// ofBucket is the decision on n units that has left a level behind, which is 0 after empty.
func (d *Decision) ofBucket(p *Params, level, empty, n int64, allowed bool) {
	full := p.Full()
	d.Allowed, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay = allowed, max(0, full-level), 0, empty, 0
	if p.Den > 1 {
		d.Remaining /= p.Den
	}
	if !allowed {
		d.RetryAfter = ceilDiv(max(0, level+n*p.Den-full), p.Num)
		if p.MaxDelay > 0 && p.Kind == LeakyBucketShaping {
			d.RetryAfter = max(d.RetryAfter, d.ResetAfter-p.MaxDelay)
		}
	} else if p.Kind == LeakyBucketShaping {
		d.Delay = ceilDiv(level-n*p.Den, p.Num)
	}
}

// level is what has not drained at now under the limit of the state, in units of 1/W. Rebased says that it
// was more than the limit lets in: the clock stepped back, and what has drained since is there again.
func (s *State) level(now int64) (level int64, rebased bool) {
	ahead := s.At - now
	if ahead <= 0 {
		return 0, false
	}
	full := s.Cap * s.W
	hi, drains := bits.Mul64(uint64(ahead), uint64(s.Num))
	if level = int64(drains) - s.V; hi != 0 || drains > MaxExact || level > full {
		return full, true
	}
	return level, false
}

// level is that of s in units of 1/Den. Of a lower limit it may be more than full: it is not cut, or processes
// of which not all know the limit would admit by one what another has cut. A process's part of a limit is, because what
// it has less of, others have more of.
func (p *Params) level(s *State, now int64) (level int64, rebased bool) {
	level, rebased = s.level(now)
	if level > 0 && (s.Num != p.Num || s.W != p.Den) { // whole units carry over
		level = min(ceilDiv(level, s.W), MaxExact/p.Den) * p.Den
	}
	if full := p.Full(); level > full && p.Whole != nil {
		return full, true
	}
	return level, rebased
}

// store is the other direction of level, which is 0 after empty. What was charged at another rate has drained at that one,
// no process knows how much: it is not given back.
func (p *Params) store(s *State, now, level, empty int64) {
	if s.Num != p.Num || s.W != p.Den {
		s.Birth = now
	}
	s.write(now, now+empty, empty*p.Num-level, p.Den)
	s.Num, s.Cap = p.Num, p.Cap
}
