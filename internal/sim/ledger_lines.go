package sim

import (
	"context"
	"time"
)

// line is where callers of a process wait for a key.
type line struct {
	process int
	account string
}

// waiter is one of them.
type waiter struct {
	came, leaves time.Duration // leaves is its deadline
	cost         int
	passed       time.Duration // when one that came later was admitted before it, or 0
}

// stands notes a caller that waits for a key of which it needs so much, and returns what to call when it does not any more.
func (l *ledger) stands(ctx context.Context, of line, cost int) func(admitted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.rules[of.account]; r.parts > 1 || r.places {
		return func(bool) {} // each part has a line; places are earlier for those who come after a reset
	}
	end, _ := ctx.Deadline()
	w := &waiter{came: l.now(), leaves: l.now() + time.Until(end), cost: cost}
	if l.lines[of] == nil {
		l.lines[of] = map[*waiter]struct{}{}
	}
	l.lines[of][w] = struct{}{}
	l.note("process %d: waits for %d of %s for %v", of.process, cost, of.account, w.leaves-w.came)
	return func(admitted bool) { l.served(of, w, admitted) }
}

// served checks that a caller which leaves a line was not passed by one that came later and was not content with less. That
// one may ask for itself for as long as the first answer of the other one is on its way. A cost that a process cannot
// admit by itself stands in no line while Redis may be away.
func (l *ledger) served(of line, w *waiter, admitted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	delete(l.lines[of], w)
	l.note("process %d: waits no more for %d of %s since %v: %v", of.process, w.cost, of.account, w.came, admitted)
	l.check(w.passed == 0 || now <= w.passed+budget, "P9", "process %d, %s: a caller that came at %v for %d units was passed at %v", of.process, of.account, w.came, w.cost, w.passed)
	if !admitted {
		return
	}
	inLine := now > l.plan.calmSince(now, -1)+returnsWithin
	for other := range l.lines[of] {
		if (inLine || other.cost == 1) && other.came+budget < w.came && other.cost <= w.cost && other.leaves > now+budget && other.passed == 0 {
			other.passed = now
		}
	}
}
