package fallback

import "github.com/holdfast-go/holdfast/internal/algo"

// Block denies id for d microseconds under the algorithm of p, unless it is blocked for
// longer already, and returns the time left. Redis counts as not told of it until Sent.
// While every remembered key is in use, a block of a key not among them is not
// remembered: 0.
func (s *Store) Block(id string, p algo.Params, d int64) int64 {
	now := s.now()
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.keys[p.Kind][id]
	if e == nil {
		if e = s.add(sh, p.Kind, id, now); e == nil {
			return 0
		}
	}
	longer := d > e.state.Blocked(now)
	left := algo.Block(&e.state, now, d)
	e.idleAt = max(e.idleAt, now+left)
	if longer {
		if e.unsent == nil {
			s.unsent.Add(1)
		}
		e.unsent = &p
	}
	return left
}

// Sent notes that Redis blocks id for another left µs. A block that is longer here is
// still to be sent.
func (s *Store) Sent(kind algo.Kind, id string, left int64) {
	now := s.now()
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if e := sh.keys[kind][id]; e != nil && left >= e.state.Blocked(now) {
		s.sent(e)
	}
}

func (s *Store) sent(e *entry) {
	if e.unsent != nil {
		e.unsent = nil
		s.unsent.Add(-1)
	}
}

// Unsent returns the time left of a block of id that Redis does not know of, 0
// without, at the cost of an atomic load when there are none.
func (s *Store) Unsent(kind algo.Kind, id string) int64 {
	if s.unsent.Load() == 0 {
		return 0
	}
	sh := s.shard(id)
	now := s.now()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.keys[kind][id]
	if e == nil || e.unsent == nil {
		return 0
	}
	left := e.state.Blocked(now)
	if left == 0 {
		s.sent(e) // it is over
	}
	return left
}

// Blocked is a block that Redis does not know of.
type Blocked struct {
	ID    string
	Limit algo.Params // in Redis
}

// UnsentAny reports whether there is one.
func (s *Store) UnsentAny() bool { return s.unsent.Load() > 0 }

// UnsentBlocks returns those there are.
func (s *Store) UnsentBlocks() (out []Blocked) {
	if !s.UnsentAny() {
		return nil
	}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for _, byID := range sh.keys {
			for id, e := range byID {
				if e.unsent != nil {
					out = append(out, Blocked{id, *e.unsent})
				}
			}
		}
		sh.mu.Unlock()
	}
	return out
}
