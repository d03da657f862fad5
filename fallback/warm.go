package fallback

import "github.com/holdfast-go/holdfast/internal/algo"

// Observe notes what Redis said of id under the limit p: should Redis be lost,
// this process starts from its part of what was left, and not from full.
func (s *Store) Observe(id string, p algo.Params, d algo.Decision) {
	now := s.now()
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.keys[p.Kind][id]
	if e == nil {
		if d.ResetAfter == 0 {
			return
		}
		if e = sh.add(p.Kind, id, now); e == nil {
			return
		}
	}
	e.seenCap, e.seenLeft, e.seenUntil = p.Cap, d.Remaining, max(1, now+d.ResetAfter)
	e.idleAt = max(e.idleAt, now+d.ResetAfter)
}

// revive starts the state anew from what Redis said last, if that is newer. The part
// of p in what was left is its part in the limit. A block goes on.
func (e *entry) revive(p algo.Params, now int64) {
	if e.seenUntil == 0 {
		return
	}
	left := p.Cap
	if now < e.seenUntil {
		left = int64(float64(e.seenLeft) * float64(p.Cap) / float64(e.seenCap))
	}
	e.seenUntil = 0
	e.age++
	until, length := e.state.Until, e.state.Length
	if p.Kind == algo.TokenBucket {
		e.state, e.bucket = algo.State{V: min(left, p.Cap), W: 1}, nil
	} else {
		e.state = algo.Warm(p, now, left)
	}
	e.state.Until, e.state.Length = until, length
}
