package algo

// Step decides a request of cost n at time now and moves s forward. A denied
// request and a cost of 0 leave s as it is, with one exception: a stored time
// further ahead of now than the limit can explain (the clock stepped back) is
// brought back by any request with a cost, so that it cannot lock the key; and a bucket
// drains from a denial on at the rate of the limit that denies, if that is the higher one. It needs 0 ≤ n ≤ p.Cap, and ignores p.Keep and
// a block.
func Step(p Params, s *State, now, n int64) (d Decision) {
	d.step(&p, s, now, n)
	return d
}

// step is Step, and sets all of d.
func (d *Decision) step(p *Params, s *State, now, n int64) {
	switch p.Kind {
	case FixedWindow:
		d.stepFixedWindow(p, s, now, n)
	case SlidingWindowLog:
		d.stepLog(p, s, now, n, 0)
	case SlidingWindowCounter:
		d.stepCounter(p, s, now, n)
	default:
		d.stepBucket(p, s, now, n)
	}
}

// Decide is Step with p.Keep and a block: it needs n + p.Keep ≤ p.Cap. A
// blocked key is denied, nothing changes and nothing is left, and RetryAfter is the
// later of the end of the block and of the wait that the limit itself asks for.
// That is exact, because a request that could be admitted at some time can also be
// admitted later if there is no other request. A block further ahead of now than it was long
// is brought back, as Step does with its own times.
func Decide(p Params, s *State, now, n int64) (d Decision) {
	p.Decide(&d, s, now, n)
	return d
}

// Decide is Decide without copies, of which each takes about as long as a step: it sets all of d.
func (p *Params) Decide(d *Decision, s *State, now, n int64) {
	if s.Until == 0 && p.Keep == 0 { // as mostly
		d.step(p, s, now, n)
		return
	}
	left := s.Blocked(now)
	if left == 0 {
		d.stepKeeping(p, s, now, n)
		return
	}
	dry := s.clone()
	d.stepKeeping(p, &dry, now, n)
	retry := d.RetryAfter
	if d.Allowed {
		d.step(p, s, now, 0)
	}
	if n > 0 && s.Until-now > left {
		s.Until = now + left
	}
	*d = Decision{RetryAfter: max(retry, left), ResetAfter: max(d.ResetAfter, left)}
}

// Debit charges as many of n units as there is room for, whatever they are kept for
// and also while the key is blocked. Several debits at one time are the same as one. It
// is never denied, nor delayed: what it is for has happened, age µs ago. A log and a counter
// charge it to that time, others to now.
func Debit(p Params, s *State, now, n, age int64) Decision {
	p.MaxDelay = 0
	room := min(n, Step(p, s, now, 0).Remaining)
	var d Decision
	switch p.Kind {
	case SlidingWindowLog:
		if age >= p.Den {
			room = 0
		}
		d.stepLog(&p, s, now, room, age)
	case SlidingWindowCounter:
		d.debitCounter(&p, s, now, n, age)
	default:
		d = Step(p, s, now, room)
	}
	d.Allowed, d.RetryAfter, d.Delay = true, 0, 0
	return d
}

// stepKeeping is Step for what must leave p.Keep units. What is denied waits until
// there is room for both; only n is charged.
func (d *Decision) stepKeeping(p *Params, s *State, now, n int64) {
	if p.Keep > 0 && n > 0 {
		if d.step(p, s, now, 0); d.Remaining < n+p.Keep {
			n += p.Keep
		}
	}
	d.step(p, s, now, n)
}
