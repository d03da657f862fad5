package admission

import (
	"sync"
	"time"
)

// Max bounds how long one answer can close a gate. Hourly quotas are common; a
// longer wait is more likely a mistake, and one request an hour to find out does
// no harm. Callers get the wait that the server named.
const Max = time.Hour

// maxGates is how many keys may cool down at once, at about 150 bytes each.
const maxGates = 1 << 16

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
}

// newGates returns gates for max keys, all open.
func newGates(max int) *Gates {
	return &Gates{NewTable(max, func(g *gate) bool {
		left, _, _ := g.left()
		return left > 0
	})}
}

// Left returns how long key still cools down, over which time after that its
// waiters spread, and what is left of the wait that the server asked for, which
// may be longer than [Max].
func (gs *Gates) Left(key string) (left, spread, asked time.Duration) {
	g := gs.t.Get(key)
	if g == nil {
		return 0, 0, 0
	}
	return g.left()
}

// Close makes key cool down for the time that its server asked for, at most
// [Max], and never shortens a longer cooldown. It reports whether it was open,
// and by how much the cooldown now lasts longer.
// When every gate in the table is closed the new cooldown is lost: the request
// that met it waits, others find out for themselves.
func (gs *Gates) Close(key string, asked time.Duration) (wasOpen bool, longer time.Duration) {
	g := gs.t.GetOrAdd(key, func() *gate { return new(gate) })
	if g == nil {
		return false, 0
	}
	return g.close(asked)
}

// prolongs reports whether the fleet needs to know a cooldown of d that lasts
// longer by longer than the one before. Of many requests that come back with one
// rejection each prolongs it by a moment.
func prolongs(longer, d time.Duration) bool { return longer > d/10 }

func (g *gate) left() (left, spread, asked time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Until(g.until), g.spread, time.Until(g.asked)
}

func (g *gate) close(asked time.Duration) (wasOpen bool, longer time.Duration) {
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
	g.until = now.Add(d)
	// The spread belongs to the cooldown as a whole: were it a part of what is
	// left of it, those who come late would all leave right at its end.
	g.spread = max(g.spread, d/2)
	if old == 0 {
		g.spread = d / 2
	}
	return old == 0, d - old
}
