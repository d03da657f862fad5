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
	g := gs.t.GetOrAdd(key, func() *gate { return new(gate) })
	if g == nil {
		return false, 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	old := max(0, g.until.Sub(now))
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

func (g *gate) cooling() cooling {
	g.mu.Lock()
	defer g.mu.Unlock()
	return cooling{time.Until(g.until), g.spread, time.Until(g.asked), g.said}
}
