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
	}
	empty := ceilDiv(after, p.Num)
	if n > 0 && (allowed || rebased) {
		p.store(s, now, after, empty)
	}
	d.ofBucket(p, after, empty, n, allowed)
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
	if full := p.Full(); level > full && (rebased || p.Whole != nil) {
		return full, true
	}
	return level, rebased
}

// store is the other direction of level, which is 0 after empty.
func (p *Params) store(s *State, now, level, empty int64) {
	s.write(now, now+empty, empty*p.Num-level, p.Den)
	s.Num, s.Cap = p.Num, p.Cap
}
