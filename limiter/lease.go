package limiter

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/lua"
)

// lease is what this process holds of one key under one limit: units that Redis
// has charged already. Spending takes no lock.
type lease struct {
	id     string
	params lua.Args
	size   int64
	age    time.Duration

	// The older and the newer of what was granted.
	grants [2]atomic.Pointer[grant]
	// call for more is closed when it has ended: there is at most one.
	call atomic.Pointer[chan struct{}]
	// askAt is when there may be more, in ns by the clock of the link.
	askAt atomic.Int64
	seen  atomic.Pointer[seen]
	// writes is odd while a call's units and what Redis said of them are put in.
	writes atomic.Int64

	mu    sync.Mutex // of what changes the grants, never held across a call
	stale bool       // what the call under way brings is not wanted any more
	dead  bool       // not among the leases any more
	used  time.Time  // when it last held something
}

// grant is what one call brought.
type grant struct {
	left atomic.Int64
	_    [56]byte // what is written at every decision, away from what is read

	returned atomic.Int64 // units that were given back, from the last one
	until    time.Time    // the last moment at which they may be spent

	dropped          bool // nobody's any more, guarded by lease.mu
	total, at, first int64
	member           string
}

// seen is what Redis last said of the key.
type seen struct {
	remaining int64
	resetAt   time.Time
}

// take spends up to n units of g.
func (g *grant) take(n int64) int64 {
	for {
		left := g.left.Load()
		take := min(left, n)
		if take <= 0 {
			return 0
		}
		if g.left.CompareAndSwap(left, left-take) {
			return take
		}
	}
}

// scrape is units that were taken for one cost.
type scrape struct {
	from  [2]*grant
	units [2]int64
}

func (sc *scrape) sum() int64 { return sc.units[0] + sc.units[1] }

// undo puts back what was taken for a cost that was denied. What it returns is not
// held any more, and to be given back.
func (ls *lease) undo(sc *scrape) (over []*grant) {
	if sc.sum() == 0 {
		return nil
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for i, g := range sc.from {
		if sc.units[i] == 0 || g.dropped {
			continue
		}
		g.left.Add(sc.units[i])
		if g != ls.grants[0].Load() && g != ls.grants[1].Load() {
			over = append(over, g)
		}
	}
	return over
}

// spend takes n units, or, with false, as many of them as are held.
func (ls *lease) spend(n int64, now time.Time) (sc scrape, ok bool) {
	for i := range ls.grants {
		if g := ls.grants[i].Load(); g != nil && now.Before(g.until) {
			sc.from[i], sc.units[i] = g, g.take(n-sc.sum())
			if sc.sum() == n {
				return sc, true
			}
		}
	}
	return sc, false
}

// held is how many units can be spent, and until when all of them can.
func (ls *lease) held(now time.Time) (units int64, until time.Time) {
	for i := range ls.grants {
		g := ls.grants[i].Load()
		if g == nil || !now.Before(g.until) {
			continue
		}
		if left := g.left.Load(); left > 0 {
			units += left
			if until.IsZero() || g.until.Before(until) {
				until = g.until
			}
		}
	}
	return units, until
}

// view is what is held and what Redis last said, both of the same moment.
func (ls *lease) view(now time.Time) (held int64, until time.Time, said *seen) {
	before := ls.writes.Load()
	if before%2 == 0 {
		held, until = ls.held(now)
		said = ls.seen.Load()
		if ls.writes.Load() == before {
			return held, until, said
		}
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	held, until = ls.held(now)
	return held, until, ls.seen.Load()
}

// begin claims the call for more.
func (ls *lease) begin() bool {
	if ls.call.Load() != nil {
		return false
	}
	done := make(chan struct{})
	return ls.call.CompareAndSwap(nil, &done)
}

// end is the other end of begin.
func (ls *lease) end() {
	ls.mu.Lock()
	ls.stale = false
	ls.mu.Unlock()
	close(*ls.call.Swap(nil))
}

// arrive adds what a call brought, if anything, and what Redis said: who reads both
// sees both or neither. What it returns is to be given back.
func (ls *lease) arrive(g *grant, remaining int64, resetAt time.Time) (old *grant) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.writes.Add(1)
	defer ls.writes.Add(1)
	ls.note(remaining, resetAt)
	if g == nil {
		return nil
	}
	switch {
	case ls.stale:
		return nil
	case ls.dead:
		return g
	}
	ls.used = g.until
	old = ls.grants[0].Load()
	if newer := ls.grants[1].Load(); newer != nil {
		ls.grants[0].Store(newer)
		ls.grants[1].Store(g)
		return old
	}
	ls.grants[1].Store(g)
	return nil
}

// drop forgets what is held, and what the call under way brings.
func (ls *lease) drop() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.stale = ls.call.Load() != nil
	for i := range ls.grants {
		if g := ls.grants[i].Swap(nil); g != nil {
			g.dropped = true
			g.left.Store(0)
		}
	}
	ls.askAt.Store(0)
}

// expired takes out the grants that are over, or all.
func (ls *lease) expired(now time.Time, all bool) (over []*grant) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for i := range ls.grants {
		if g := ls.grants[i].Load(); g != nil && (all || !now.Before(g.until)) {
			ls.grants[i].Store(nil)
			over = append(over, g)
		}
	}
	return over
}

// retire reports whether the lease has not been used for a while, and is not
// from now on.
func (ls *lease) retire(now time.Time, after time.Duration) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.call.Load() != nil || ls.grants[0].Load() != nil || ls.grants[1].Load() != nil || now.Sub(ls.used) < after {
		return false
	}
	ls.dead = true
	return true
}

// unspent is what is left of g, to be given back; it is taken out.
func (ls *lease) unspent(g *grant, names *lua.Namer) (lua.Taken, bool) {
	units := g.left.Swap(0)
	if units <= 0 {
		return lua.Taken{}, false
	}
	return lua.Taken{
		Keys: names.KeysOf(ls.params.Kind, ls.id), Params: ls.params, Units: units,
		At: g.at, Member: g.member, First: g.first + g.total - g.returned.Add(units),
	}, true
}

// note keeps what Redis said.
func (ls *lease) note(remaining int64, resetAt time.Time) {
	ls.seen.Store(&seen{remaining, resetAt})
}
