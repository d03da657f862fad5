package httpclient

import (
	"sync"
	"time"
)

// maxCooldown bounds how long one response can close a gate. Hourly quotas
// are common; a longer wait is more likely a mistake, and one request an hour
// to find out does no harm.
const maxCooldown = time.Hour

// maxGates bounds the keys that cool down at once, at about 150 bytes each.
const maxGates = 1 << 16

// gates holds the cooldowns of this process: until when nothing may be sent to
// a key because its server asked for a pause. Keys that never had one take no
// space. It is safe for concurrent use.
type gates struct {
	t *table[gate]
}

// gate is the cooldown of one key. The zero value is open.
type gate struct {
	mu    sync.Mutex
	until time.Time
	// spread is the time after until over which waiters come back.
	spread time.Duration
}

func newGates(max int) *gates {
	return &gates{newTable(max, func(g *gate) bool {
		left, _ := g.left()
		return left > 0
	})}
}

// left returns how long key still cools down, and over which time after that
// its waiters spread.
func (gs *gates) left(key string) (left, spread time.Duration) {
	g := gs.t.get(key)
	if g == nil {
		return 0, 0
	}
	return g.left()
}

// close makes key cool down for d and never shortens a longer cooldown. It
// reports whether it was open, and by how much the cooldown now lasts longer.
// When every gate in the table is closed the new cooldown is lost: the request
// that met it waits, others find out for themselves.
func (gs *gates) close(key string, d time.Duration) (wasOpen bool, longer time.Duration) {
	g := gs.t.getOrAdd(key, func() *gate { return new(gate) })
	if g == nil {
		return false, 0
	}
	return g.close(d)
}

func (g *gate) left() (left, spread time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Until(g.until), g.spread
}

func (g *gate) close(d time.Duration) (wasOpen bool, longer time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := max(0, time.Until(g.until))
	if d <= old {
		return false, 0
	}
	g.until = time.Now().Add(d)
	// The spread belongs to the cooldown as a whole: were it a part of what is
	// left of it, those who come late would all leave right at its end.
	g.spread = max(g.spread, d/2)
	if old == 0 {
		g.spread = d / 2
	}
	return old == 0, d - old
}
