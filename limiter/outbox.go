package limiter

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/random"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

const (
	// reconcileSpread is the time over which processes that saw the same
	// outage begin to reconcile: long enough not to arrive together, short enough
	// that little is granted twice meanwhile.
	reconcileSpread = 50 * time.Millisecond
	// reconcileEvery keeps what is for a server that stays away from being
	// looked through at every decision of the others.
	reconcileEvery = 250 * time.Millisecond
	// outboxCall is how much is taken at a time: what one call can carry.
	outboxCall = 64
	// debtPiece is the most units of a log that are charged in one item: each is a
	// member to be added.
	debtPiece = 500
	// maxCredits bounds the give-backs that an outage can leave behind.
	maxCredits = 4096
)

// outbox is what Redis is yet to be told of, because it could not be asked: local use,
// units to be given back, and blocks. Local use and blocks are kept by the local store.
type outbox struct {
	settled atomic.Uint64
	turn    redislink.Every
	sending atomic.Bool

	waiting atomic.Int64 // of credits, to be read without the lock
	mu      sync.Mutex
	credits []lua.Taken
}

// keep adds units to be given back later, if there is room.
func (b *outbox) keep(t lua.Taken) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.credits) >= maxCredits {
		return false
	}
	b.credits = append(b.credits, t)
	b.waiting.Store(int64(len(b.credits)))
	return true
}

// take removes the first of the units to be given back that the filter accepts.
func (b *outbox) take(accept func(id string) bool) (out []lua.Taken) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.credits = slices.DeleteFunc(b.credits, func(t lua.Taken) bool {
		if len(out) == outboxCall || !accept(t.Keys.ID()) {
			return false
		}
		out = append(out, t)
		return true
	})
	b.waiting.Store(int64(len(b.credits)))
	return out
}

// afterRedis does what rides on a decision that Redis has made: remember the
// answer, and start what is due in the background. Only what was charged shows that
// Redis can be told.
func (l *Limiter) afterRedis(s *spec, key string, n int, d algo.Decision) {
	charged := d.Allowed && n > 0
	if l.policy == fallback.Local {
		l.local.Observe(key, s.args.Params, d, charged)
		l.redis.Beat()
	}
	switch {
	case charged && l.owes():
		l.sendSoon(l.reconcile)
	case n > 0 && l.waiting.Load() > 0:
		// What waits may be what denies. A give-back that Redis does not take is kept.
		l.sendSoon(l.returnAll)
	}
}

// sendSoon empties the outbox in the background, now and then.
func (l *Limiter) sendSoon(send func(ctx context.Context)) {
	if l.outbox.turn.Due(l.redis.Now(), reconcileEvery) && l.sending.CompareAndSwap(false, true) {
		if !l.redis.Background.Start(func(ctx context.Context) {
			defer l.sending.Store(false)
			if sleep(ctx, random.Below(reconcileSpread), nil) == nil {
				send(ctx)
			}
		}) {
			l.sending.Store(false)
		}
	}
}

func (l *Limiter) owes() bool {
	return l.local.Owed() > 0 || l.waiting.Load() > 0 || l.local.UnsentAny()
}

// reconcile tells Redis what it could not be told: an outage refunds nothing. What may
// have been executed is sent once: what is lost with a reply is forgotten rather than
// charged twice. What was not executed stays for the next time.
func (l *Limiter) reconcile(ctx context.Context) {
	for _, b := range l.local.UnsentBlocks() {
		// Also as a probe: a process that asks for nothing but blocked keys has no other.
		if !l.redis.Server(lua.EncodeID(b.ID)).Breaker.Refuses() && ctx.Err() == nil {
			l.sendBlock(ctx, b)
		}
	}
	l.returnAll(ctx)
	debtors := l.local.Debtors()
	for _, srv := range l.redis.Servers() {
		mine := slices.DeleteFunc(slices.Clone(debtors), func(d fallback.Debtor) bool { return l.redis.Server(lua.EncodeID(d.ID())) != srv })
		for batch := range slices.Chunk(mine, outboxCall) {
			if ctx.Err() != nil || !srv.Answers() || !l.chargeDebts(ctx, batch) {
				break
			}
		}
	}
}

// returnAll gives back what waits for that.
func (l *Limiter) returnAll(ctx context.Context) {
	for _, srv := range l.redis.Servers() {
		for ctx.Err() == nil && srv.Answers() {
			back := l.take(func(id string) bool { return l.redis.Server(id) == srv })
			if len(back) == 0 || !l.giveBack(back) {
				break
			}
		}
	}
}

// sendBlock tells Redis of a block that it does not know of.
func (l *Limiter) sendBlock(ctx context.Context, b fallback.Blocked) {
	left := l.local.Unsent(b.Limit.Kind, b.ID)
	if left == 0 {
		return
	}
	keys := l.names.Keys(b.Limit.Kind, b.ID)
	block := &lua.Block{Keys: keys, Params: lua.NewArgs(b.Limit), Time: left}
	if l.exec(ctx, keys.ID(), block) == nil {
		l.local.Sent(b.Limit.Kind, b.ID, block.Left)
	}
}

// chargeDebts charges what was admitted locally of some keys, and reports whether Redis
// took it.
func (l *Limiter) chargeDebts(ctx context.Context, of []fallback.Debtor) bool {
	var debts []fallback.Debt
	var ops []*redislink.Op
	var owners []int
	for _, k := range of {
		d, ok := l.local.TakeDebt(k)
		if !ok {
			continue
		}
		args := lua.NewArgs(d.Limit)
		keys := l.names.Keys(d.Limit.Kind, d.ID)
		for left := d.Units; left > 0; {
			units := left
			if d.Limit.Kind == algo.SlidingWindowLog {
				units = min(units, debtPiece)
			}
			left -= units
			o := &redislink.Op{ID: keys.ID(), Args: &args, Keys: keys, Cost: -units}
			ops, owners = append(ops, o), append(owners, len(debts))
		}
		debts = append(debts, d)
	}
	failed, back := make([]bool, len(debts)), make([]int64, len(debts))
	for i, err := range l.redis.AskAll(ctx, ops) {
		if err != nil {
			failed[owners[i]] = true
			if redislink.NeverExecuted(err) {
				back[owners[i]] -= ops[i].Cost
			}
		}
	}
	took := true
	for i, d := range debts {
		l.local.Settled(d, back[i])
		if failed[i] {
			took = false
		} else {
			l.settled.Add(1)
		}
	}
	return took
}
