package breaker

import (
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/holdfast-go/holdfast/internal/random"
)

// readyToTrip is asked after each failure while closed. It does not read
// gobreaker's consecutive failures: it forgets those together with old buckets.
func (b *Breaker) readyToTrip(c gobreaker.Counts) bool {
	if b.consecutive >= b.cfg.ConsecutiveFailures {
		return true
	}
	n := uint64(c.TotalSuccesses) + uint64(c.TotalFailures)
	// A quotient, not a product: 7 of 100 is 0.07, but 0.07*100 is above 7.
	return n >= uint64(b.cfg.MinRequests) && float64(c.TotalFailures)/float64(n) >= b.cfg.FailureRatio
}

// onStateChange follows a transition of gobreaker, which calls it from within
// Allow and done, so mu is held and cb must not be called.
func (b *Breaker) onStateChange(_ string, from, to gobreaker.State) {
	now := time.Now()
	ch := Change{Name: b.cfg.Name, From: fromGobreaker[from], To: fromGobreaker[to], At: now, Since: b.phase}
	if ch.From == Closed || ch.To == Closed {
		b.phase = now
	}
	if ch.To == Open {
		if ch.From == Closed && (b.opens == 0 || now.Sub(b.since) >= b.cfg.Window) {
			b.streak = 0
		} else {
			b.streak++
		}
		b.opens++
		b.openFor = openTime(b.cfg.OpenMin, b.cfg.OpenMax, b.streak)
		b.gate.Store(b.now() + int64(b.openFor))
		ch.Cause, ch.OpenFor = b.last, b.openFor
	}
	b.generation++
	b.state = ch.To
	b.since = now
	if b.cfg.OnChange != nil {
		b.changes.Add(ch)
	}
}

// openTime draws from the upper half of shortest·2^n, which is at most longest.
func openTime(shortest, longest time.Duration, n uint) time.Duration {
	d := longest
	// Compared by shifting down, since shifting up may overflow. A shift by
	// more than the width gives 0.
	if shortest <= longest>>n {
		d = shortest << n
	}
	half := d / 2
	return half + random.Below(d-half+1)
}
