package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// drawVaried lets callers of half of the fleets also block, reset and refund, ask for as much as
// there is room for and count only what failed, and limits keep headroom for critical calls.
func (p *Plan) drawVaried(rng *rand.Rand) {
	if rng.IntN(2) == 0 {
		return
	}
	p.Varied = 0.3 * rng.Float64()
	for i := range p.Limits {
		l := p.Limits[i]
		l.Headroom = 0.5 * rng.Float64()
		if rng.IntN(2) == 0 && l.most() > 0 && len(p.Changes) == 0 { // a lower limit may not leave a unit to both
			p.Limits[i] = l
		}
	}
}

// vary makes a call of another kind than most.
func (p *process) vary(ctx context.Context, rng *rand.Rand, i int, key string, n int) {
	w, lim, began := p.w, p.limiters[i], p.w.now()
	account := w.account(i, key)
	unavailable := func(err error) error {
		if errors.Is(err, limiter.ErrUnavailable) {
			return nil // these say that Redis does not know of it yet
		}
		return err
	}
	switch u := rng.Float64(); {
	case u < 0.02:
		w.ledger.forgotten(account)
		err := lim.Reset(ctx, key)
		w.ledger.reset(account, err)
		w.ledger.timely(p.n, key, unavailable(err), w.now()-began, ctx.Err() != nil)
	case u < 0.05:
		d := time.Duration(rng.ExpFloat64() * float64(w.Think)).Truncate(time.Microsecond)
		d = min(max(d, time.Millisecond), time.Minute)
		w.ledger.fault("process %d blocks %s for %v", p.n, account, d)
		err := unavailable(lim.Block(ctx, key, d))
		left := ctx.Err() != nil
		w.ledger.timely(p.n, key, err, w.now()-began, left)
		if err == nil && !left && w.Options.LocalKeys == 0 {
			w.ledger.blocked(p.n, account, began, began+d)
		}
	case u < 0.3:
		if res, err := lim.AllowN(ctx, key, n); err == nil && res.Allowed {
			began, back := w.now(), 1+rng.IntN(n)
			w.ledger.unused(p.n, account, int64(back))
			err := unavailable(lim.Refund(ctx, key, back))
			w.ledger.timely(p.n, key, err, w.now()-began, ctx.Err() != nil)
		}
	case u < 0.6:
		res, err := lim.Allow(ctx, key, limiter.AtMost(n))
		if err != nil || res.Source != limiter.SourceRedis {
			w.ledger.perhaps(account, int64(n-res.Admitted)) // for a part, the first call may have been charged
		}
	case u < 0.8:
		_, _ = limiter.CountFailed(ctx, lim, key, func(context.Context) bool {
			if !p.pause(between(rng, time.Millisecond, time.Second)) || rng.IntN(2) == 0 {
				return true
			}
			w.ledger.unused(p.n, account, int64(n))
			return false
		}, limiter.Cost(n))
	default:
		_, _ = lim.AllowN(limiter.Critical(ctx), key, n)
	}
}

// forgotten notes that a process forgets a key: what it has admitted of it by itself, and Redis
// what it has (see remove of Server).
func (l *ledger) forgotten(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of(key)
	a.lost = append(a.lost, loss{l.now(), 1})
	a.resets++
	clear(a.blocks)
}

// reset notes how a reset has ended. One that has failed may still be executed.
func (l *ledger) reset(key string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.of(key); err == nil {
		a.resets--
		a.wasReset = l.now()
	}
}

// perhaps notes units that no caller has, but that may have been charged.
func (l *ledger) perhaps(key string, units int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of(key)
	a.unknown += units
	a.leftOver += units
}

// block is a time for which a process denies a key, from when it has told the limiter.
type block struct{ from, until time.Duration }

// blocked notes a block. Calls made from now on are denied.
func (l *ledger) blocked(process int, key string, began, until time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of(key)
	if a.resets > 0 || a.wasReset >= began {
		return // which of the two was executed first is not known
	}
	if a.blocks == nil {
		a.blocks = map[int]block{}
	}
	if b := a.blocks[process]; b.until < until {
		a.blocks[process] = block{l.now(), until}
	}
}

// obeys checks that no call that was made after a block is admitted before its end, unless the clock or the state
// of Redis has changed since. Blocks end at a microsecond, as those of Redis. mu is held.
func (l *ledger) obeys(process int, key string, a *account, began time.Duration) {
	b := a.blocks[process]
	if began <= b.from || l.now() > b.until-time.Microsecond {
		return
	}
	for _, lost := range a.lost {
		if lost.at >= b.from {
			return
		}
	}
	for _, at := range l.stepped {
		if at >= b.from {
			return
		}
	}
	l.check(false, "block", "process %d, key %s: admitted, and blocked from %v until %v", process, key, b.from, b.until)
}
