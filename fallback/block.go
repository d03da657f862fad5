package fallback

// Block denies id for d microseconds, under every algorithm, unless it is
// blocked for longer already, and returns the time left. Redis counts as not told
// of it until Sent. While every remembered key is in use, a block of a key not among
// them is not remembered: 0.
func (s *Store) Block(id string, d int64) int64 {
	now := s.now()
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.keys[blocked][id]
	if e == nil {
		if e = s.add(sh, blocked, id, now); e == nil {
			return 0
		}
	}
	if now+d > e.idleAt || e.idleAt <= now {
		e.idleAt = now + d
		if !e.unsent {
			e.unsent = true
			s.unsent.Add(1)
		}
	}
	return e.idleAt - now
}

// Sent notes that Redis knows of the block of id.
func (s *Store) Sent(id string) {
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if e := sh.keys[blocked][id]; e != nil {
		s.sent(e)
	}
}

func (s *Store) sent(e *entry) {
	if e.unsent {
		e.unsent = false
		s.unsent.Add(-1)
	}
}

// Unsent returns the time left of a block of id that Redis does not know of, 0
// without, at the cost of an atomic load when there are none.
func (s *Store) Unsent(id string) int64 {
	if s.unsent.Load() == 0 {
		return 0
	}
	sh := s.shard(id)
	now := s.now()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.keys[blocked][id]
	if e == nil || !e.unsent {
		return 0
	}
	if e.idleAt <= now {
		s.sent(e) // nobody needs to know any more
		return 0
	}
	return e.idleAt - now
}

// UnsentAny reports whether there is a block that Redis does not know of.
func (s *Store) UnsentAny() bool { return s.unsent.Load() > 0 }

// UnsentBlocks returns the ids whose block Redis does not know of.
func (s *Store) UnsentBlocks() (ids []string) {
	if s.unsent.Load() == 0 {
		return nil
	}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for id, e := range sh.keys[blocked] {
			if e.unsent {
				ids = append(ids, id)
			}
		}
		sh.mu.Unlock()
	}
	return ids
}
