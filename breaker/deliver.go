package breaker

// unlock releases mu and delivers the changes made under it. A goroutine that
// finds another one delivering, or is inside OnChange itself, leaves its change
// to that one: this keeps the order without a lock around the callback.
func (b *Breaker) unlock() {
	if b.delivering || len(b.pending) == 0 {
		b.mu.Unlock()
		return
	}
	b.delivering = true
	defer func() { // also when OnChange panics: what is left goes out with the next call
		b.delivering = false
		b.mu.Unlock()
	}()
	for len(b.pending) > 0 {
		ch := b.pending[0]
		b.pending = b.pending[1:]
		b.callback(ch)
	}
}

// callback runs OnChange with mu released.
func (b *Breaker) callback(ch Change) {
	b.mu.Unlock()
	defer b.mu.Lock()
	b.cfg.OnChange(ch)
}
