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

// warm starts the state anew from what Redis said last. The part of p in what
// was left is its part in the limit.
func (e *entry) warm(p algo.Params, now int64) {
	left := p.Cap
	if now < e.seenUntil {
		left = int64(float64(e.seenLeft) * float64(p.Cap) / float64(e.seenCap))
	}
	e.seenUntil = 0
	e.age++
	e.state, e.bucket = algo.State{}, nil
	if p.Kind == algo.TokenBucket {
		e.state.A.V, e.state.B.V = min(left, p.Cap), 1
		return
	}
	e.state = algo.Warm(p, now, left)
}
