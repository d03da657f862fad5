package lease

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// Lease is what this process holds of one key under one limit. Spending takes no lock. It
// is safe for concurrent use.
type Lease struct {
	cfg    *Config
	id     string
	params lua.Args
	made   time.Time

	// The older and the newer of what was granted.
	grants [2]atomic.Pointer[grant]
	// call for more is closed when it has ended: there is at most one.
	call atomic.Pointer[chan struct{}]
	// askAt is when there may be more, in ns since the lease was made.
	askAt atomic.Int64
	seen  atomic.Pointer[seen]
	// writes is odd while a call's units and what Redis said of them are put in.
	writes atomic.Int64

	mu    sync.Mutex // of what changes the grants, never held across a call
	stale bool       // what the call under way brings is not wanted any more
	dead  bool       // not in the table any more
	used  time.Time  // when it last held something
}

// grant is what one call brought.
type grant struct {
	left atomic.Int64
	_    [56]byte // what is written at every decision, away from what is read

	until   time.Time // the last moment at which they may be spent
	at      int64     // when they were charged, by the server's clock
	dropped bool      // not used any more; guarded by Lease.mu
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

// Units are units that were taken from a lease for one cost. The zero value is none.
type Units struct {
	lease *Lease
	from  [2]*grant
	units [2]int64
}

// Sum is how many they are.
func (u *Units) Sum() int64 { return u.units[0] + u.units[1] }

// Undo puts n of the units back: into the lease or, where that has moved on, into Redis.
func (u *Units) Undo(n int64) {
	if n = min(n, u.Sum()); n <= 0 {
		return
	}
	ls := u.lease
	var over []*grant
	ls.mu.Lock()
	for i, g := range u.from {
		units := min(u.units[i], n)
		n -= units
		if units == 0 || g.dropped {
			continue
		}
		g.left.Add(units)
		if g != ls.grants[0].Load() && g != ls.grants[1].Load() {
			over = append(over, g)
		}
	}
	ls.mu.Unlock()
	ls.giveBack(over)
}

// Spend takes n units, or, with false, as many of them as are held.
func (ls *Lease) Spend(n int64, now time.Time) (u Units, ok bool) {
	u.lease = ls
	for i := range ls.grants {
		if g := ls.grants[i].Load(); g != nil && now.Before(g.until) {
			u.from[i], u.units[i] = g, g.take(n-u.Sum())
			if u.Sum() == n {
				return u, true
			}
		}
	}
	return u, false
}

// View is a lease at one moment.
type View struct {
	Held      int64     // units that can be spent
	Until     time.Time // the last moment at which all of them can
	Remaining int64     // of the key, beyond what is held, as Redis last said
	ResetAt   time.Time // when the key is fully reset; zero when that is not known
}

// View returns what is held and what Redis last said, both of the same moment.
func (ls *Lease) View(now time.Time) View {
	before := ls.writes.Load()
	if before%2 == 0 {
		v := ls.view(now)
		if ls.writes.Load() == before {
			return v
		}
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.view(now)
}

func (ls *Lease) view(now time.Time) (v View) {
	for i := range ls.grants {
		g := ls.grants[i].Load()
		if g == nil || !now.Before(g.until) {
			continue
		}
		if left := g.left.Load(); left > 0 {
			v.Held += left
			if v.Until.IsZero() || g.until.Before(v.Until) {
				v.Until = g.until
			}
		}
	}
	if s := ls.seen.Load(); s != nil {
		v.Remaining, v.ResetAt = s.remaining, s.resetAt
	}
	return v
}

// Wants reports whether it is time to ask for more: half of the lease is spent, or three
// quarters of its time are over, and Redis may have more.
func (ls *Lease) Wants(v View, now time.Time) bool {
	return (v.Held <= ls.cfg.Size/2 || v.Until.Sub(now) < ls.cfg.Age/4) && int64(now.Sub(ls.made)) >= ls.askAt.Load()
}

// Room is how many units are missing to a full lease, and at least 1.
func (ls *Lease) Room(now time.Time) int64 { return max(1, ls.cfg.Size-ls.view(now).Held) }

// Size is how many units a full lease has.
func (ls *Lease) Size() int64 { return ls.cfg.Size }

// Begin claims the call for more, which End, or Fill, must end.
func (ls *Lease) Begin() bool {
	if ls.call.Load() != nil {
		return false
	}
	done := make(chan struct{})
	return ls.call.CompareAndSwap(nil, &done)
}

// End ends the call for more.
func (ls *Lease) End() {
	ls.mu.Lock()
	ls.stale = false
	ls.mu.Unlock()
	close(*ls.call.Swap(nil))
}

// Await waits for the end of a call for more, if one is under way.
func (ls *Lease) Await(ctx context.Context, deadline time.Time) {
	call := ls.call.Load()
	if call == nil {
		return
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-*call:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Answer is what a call for more brought.
type Answer struct {
	Decision algo.Decision // what Redis said of the key
	Behind   int64         // units of Remaining that were charged to others since
	Sent     time.Time     // when the call was made
	// Units were admitted for the lease, at At by the server's clock.
	Units, At int64
}

// Fill ends the call for more with what it brought.
func (ls *Lease) Fill(a Answer) {
	defer ls.End()
	d := a.Decision
	said := &seen{max(0, d.Remaining+a.Behind-ls.params.Keep), a.Sent.Add(algo.Duration(d.ResetAfter))}
	askAt := a.Sent.Add(algo.Duration(d.RetryAfter)).Sub(ls.made)
	var g *grant
	if a.Units > 0 {
		g = &grant{
			until: a.Sent.Add(min(ls.cfg.Age, algo.Duration(ls.params.UntilBorder(d)))),
			at:    a.At,
		}
		g.left.Store(a.Units)
	}
	if old := ls.arrive(g, said, askAt); old != nil {
		ls.giveBack([]*grant{old})
	}
}

// arrive adds what a call brought, if anything, and what Redis said: who reads both
// sees both or neither. What it returns is to be given back.
func (ls *Lease) arrive(g *grant, said *seen, askAt time.Duration) (old *grant) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.writes.Add(1)
	defer ls.writes.Add(1)
	ls.seen.Store(said)
	if ls.stale {
		return nil
	}
	ls.askAt.Store(int64(askAt))
	if g == nil || ls.dead {
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

// Note keeps what Redis said of the key.
func (ls *Lease) Note(remaining int64, resetAt time.Time) {
	ls.seen.Store(&seen{remaining, resetAt})
}

// drop forgets what is held, and what the call under way brings.
func (ls *Lease) drop() {
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

// sweep takes out the grants that are over, or all, and returns what is left of them. It also
// reports whether the lease has not been used for a while, and is not from now on.
func (ls *Lease) sweep(now time.Time, all bool) (back []lua.Taken, unused bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	var over []*grant
	unused = ls.call.Load() == nil && now.Sub(ls.used) >= ls.cfg.Age
	for i := range ls.grants {
		switch g := ls.grants[i].Load(); {
		case g == nil:
		case all || !now.Before(g.until):
			ls.grants[i].Store(nil)
			over = append(over, g)
		default:
			unused = false
		}
	}
	ls.dead = unused
	return ls.unspent(over), unused
}

// unspent takes out what is left of grants, to be given back.
func (ls *Lease) unspent(of []*grant) (back []lua.Taken) {
	for _, g := range of {
		if units := g.left.Swap(0); units > 0 {
			back = append(back, lua.Taken{
				Keys: ls.cfg.Names.KeysOf(ls.params.Kind, ls.id), Params: ls.params, Units: units,
				At: g.at,
			})
		}
	}
	return back
}

// giveBack gives back what is left of grants, in the background.
func (ls *Lease) giveBack(of []*grant) {
	if back := ls.unspent(of); len(back) > 0 {
		ls.cfg.Outbox.GiveBackSoon(back)
	}
}
