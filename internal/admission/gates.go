package admission

import (
	"sync"
	"time"
)

// Max bounds how long one answer can close a gate. Hourly quotas are common; a
// longer wait is more likely a mistake, and one request an hour to find out does
// no harm. Callers get the wait that the server named.
const Max = time.Hour

// How many keys may cool down at once, at about 150 bytes each. Servers name the scopes
// within a key: who names many must not take the place of another's key.
const (
	maxGates  = 1 << 16
	maxScopes = 1 << 14
)

// Gates holds the cooldowns of this process: until when nothing may be sent to
// a key because its server asked for a pause. Keys that never had one take no
// space. It is safe for concurrent use. Make it with newGates.
type Gates struct {
	t *Table[gate]
}

// gate is the cooldown of one key. The zero value is open.
type gate struct {
	mu    sync.Mutex
	until time.Time
	// asked is until when the server asked to be left alone: not before until.
	asked time.Time
	// held is until, where that is only how long an answer is waited for.
	held time.Time
	// fleet is until when the fleet knows of it.
	fleet time.Time
	// spread is the time after until over which waiters come back.
	spread time.Duration
	// said is what the server answered.
	said any
}

// cooling is what is left of a cooldown.
type cooling struct {
	left   time.Duration // at most 0 is over
	spread time.Duration // after that, over which its waiters come back
	asked  time.Duration // left of what the server asked for, which may be longer than Max
	said   any           // what the server answered
}

// newGates returns gates for max keys, all open.
func newGates(max int) *Gates {
	return &Gates{NewTable(max, func(g *gate) bool {
		return g.cooling().left > 0
	})}
}

// Left returns what is left of the cooldown of a key.
func (gs *Gates) Left(key string) cooling {
	g := gs.t.Get(key)
	if g == nil {
		return cooling{}
	}
	return g.cooling()
}

// Close makes key cool down for the time that its server asked for, at most
// [Max], and never shortens a longer cooldown. said is what the server answered. It
// reports whether it was open, and by how much the cooldown now lasts longer.
// When every gate in the table is closed the new cooldown is lost: the request
// that met it waits, others find out for themselves.
func (gs *Gates) Close(key string, asked time.Duration, said any) (wasOpen bool, longer time.Duration) {
	for {
		g := gs.t.GetOrAdd(key, func() *gate { return new(gate) })
		if g == nil {
			return false, 0
		}
		wasOpen, longer = g.close(asked, said)
		if gs.t.Get(key) == g {
			return wasOpen, longer
		}
		// It made room for another key before it was in force.
	}
}

func (g *gate) close(asked time.Duration, said any) (wasOpen bool, longer time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	old := g.cools(now)
	if until := now.Add(asked); old == 0 || until.After(g.asked) {
		g.asked = until
	}
	d := min(asked, Max)
	if d <= old {
		return false, 0
	}
	g.until, g.said = now.Add(d), said
	// The spread belongs to the cooldown as a whole: were it a part of what is
	// left of it, those who come late would all leave right at its end.
	g.spread = max(g.spread, d/2)
	if old == 0 {
		g.spread = d / 2
	}
	return old == 0, d - old
}

// News reports whether the fleet is to know that key cools down for d: what it knows ends sooner, by more than a tenth
// of d. Many requests come back with one rejection, and each prolongs the cooldown by a moment.
func (gs *Gates) News(key string, d time.Duration) bool {
	g := gs.t.Get(key)
	if g == nil {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	until := time.Now().Add(d)
	if min(d, until.Sub(g.fleet)) <= d/10 {
		return false
	}
	g.fleet = until
	return true
}

// Hold closes the gate of key for d, and at most for the time that its server asked for, unless it cools
// down already. A Close counts it as open. release opens it again if nothing else has closed it.
func (gs *Gates) Hold(key string, asked, d time.Duration, said any) (release func()) {
	g := gs.t.GetOrAdd(key, func() *gate { return new(gate) })
	if g == nil {
		return func() {}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.cools(now) > 0 {
		return func() {}
	}
	d = min(asked, d)
	until := now.Add(d)
	g.until, g.held, g.asked, g.spread, g.said = until, until, now.Add(asked), d/2, said
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.until.Equal(until) {
			g.until, g.asked = time.Time{}, time.Time{}
		}
	}
}

// cools returns how long a cooldown lasts, which a Hold is not. mu is held.
func (g *gate) cools(now time.Time) time.Duration {
	if g.until.Equal(g.held) {
		return 0
	}
	return max(0, g.until.Sub(now))
}

func (g *gate) cooling() cooling {
	g.mu.Lock()
	defer g.mu.Unlock()
	return cooling{time.Until(g.until), g.spread, time.Until(g.asked), g.said}
}
