package semaphore

// Kept is how many keys, permits and first calls this process knows of.
func (s *Semaphore) Kept() (keys, permits, calls int) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return len(s.ledger.keys), s.ledger.held, len(s.ledger.asking)
}
