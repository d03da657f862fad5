package semaphore

// Kept is how many keys and permits this process knows of.
func (s *Semaphore) Kept() (keys, permits int) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return len(s.ledger.keys), s.ledger.held
}
