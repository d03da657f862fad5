package fallback

import "github.com/holdfast-go/holdfast/internal/algo"

// Observe notes what Redis said of id under the limit p: should Redis be lost,
// this process starts from its part of what was left, and not from full.
//
// charged says that Redis has charged the key: only then does it know what it
// speaks of, and the local state begins anew. An answer that charged nothing, and
// any answer while Redis is yet to be charged with local use, may lower what is
// left here, and never raises it: Redis may be answering reads alone.
func (s *Store) Observe(id string, p algo.Params, d algo.Decision, charged bool) {
	now := s.now()
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.keys[p.Kind][id]
	if e == nil {
		if d.ResetAfter == 0 {
			return
		}
		if e = s.add(sh, p.Kind, id, now); e == nil {
			return
		}
		e.restart = true
	}
	if charged && (sh.debts == nil || sh.debts[debtKey{p.Kind, id}] == nil) {
		e.restart = true
	}
	left := d.Remaining
	if !charged && e.restart && e.seenUntil != 0 && e.seenCap == p.Cap {
		left = min(left, e.seenLeft) // a replica may be behind
	}
	e.seenCap, e.seenLeft, e.seenUntil = p.Cap, left, max(1, now+d.ResetAfter)
	e.idleAt = max(e.idleAt, now+d.ResetAfter)
}

// revive takes note of what Redis said last, if that is newer. The part of p in what was
// left is its part in the limit. A block goes on.
func (e *entry) revive(p algo.Params, now int64) {
	if e.seenUntil == 0 {
		return
	}
	left := p.Cap
	if now < e.seenUntil {
		left = min(p.Cap, int64(float64(e.seenLeft)*float64(p.Cap)/float64(e.seenCap)))
	}
	restart := e.restart
	e.seenUntil, e.restart = 0, false
	if !restart && e.remaining(p, now) <= left {
		return
	}
	e.age++
	until, length := e.state.Until, e.state.Length
	if p.Kind == algo.TokenBucket {
		e.state, e.bucket = algo.State{V: left, W: 1}, nil
	} else {
		e.state, e.bucket = algo.Warm(p, now, left), nil
	}
	e.state.Until, e.state.Length = until, length
}

// remaining is what is left of the state, whether or not the key is blocked.
func (e *entry) remaining(p algo.Params, now int64) int64 {
	if p.Kind == algo.TokenBucket {
		return e.tokenBucket(p, now, 0, 0).Remaining
	}
	return algo.Step(p, &e.state, now, 0).Remaining
}
