// Package outbox keeps what Redis does not know yet, because it could not be asked: local
// use that Redis is to be charged with, units to be given back, and blocks. It sends them
// when Redis answers again, each at most once.
package outbox

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/inprocess"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/random"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

const (
	// spread is the time over which processes that saw the same outage begin to
	// reconcile: long enough not to arrive together, short enough that little is granted
	// twice meanwhile.
	spread = 50 * time.Millisecond
	// every is how often the outbox is read at most: what is for a server that stays away
	// must not be read at every decision of the others.
	every = 250 * time.Millisecond
	// callKeys is how much is taken at a time: what one call can carry.
	callKeys = 64
	// debtPiece is the most units of a log that are charged in one item: each is a
	// member to be added.
	debtPiece = 500
	// maxCredits bounds the give-backs that an outage can leave behind.
	maxCredits = 4096
)

// Outbox is the outbox of one link. Local use and blocks wait in the local store, which
// merges them, and units to be given back wait here. It is safe for concurrent use. Make
// one with New.
type Outbox struct {
	link  *redislink.Link
	local *inprocess.Store

	reconciled atomic.Uint64
	turn       redislink.Every
	sending    atomic.Bool

	waiting atomic.Int64 // of credits, to be read without the lock
	mu      sync.Mutex
	credits []lua.Taken
}

// New returns an empty outbox.
func New(link *redislink.Link, local *inprocess.Store) *Outbox {
	return &Outbox{link: link, local: local}
}

// Reconciled counts the keys whose local use was charged in Redis.
func (b *Outbox) Reconciled() uint64 { return b.reconciled.Load() }

// Decided says that Redis has decided on units, and whether it has charged them. A charge
// shows that Redis takes everything. Units that wait to be given back may be what
// denies; one that Redis does not take is kept.
func (b *Outbox) Decided(charged bool) {
	switch {
	case charged && (b.local.Owed() > 0 || b.waiting.Load() > 0 || b.local.UnsentAny()):
		b.Send()
	case !charged && b.waiting.Load() > 0:
		b.sendSoon((*Outbox).returnAll)
	}
}

// Send sends everything soon, in the background.
func (b *Outbox) Send() { b.sendSoon((*Outbox).Reconcile) }

// sendSoon empties the outbox in the background, at most once in a while.
func (b *Outbox) sendSoon(send func(*Outbox, context.Context)) {
	if !b.turn.Due(b.link.Now(), every) || !b.sending.CompareAndSwap(false, true) {
		return
	}
	if !b.link.Background.Start(func(ctx context.Context) {
		defer b.sending.Store(false)
		select {
		case <-time.After(random.Below(spread)):
			send(b, ctx)
		case <-ctx.Done():
		}
	}) {
		b.sending.Store(false)
	}
}

// adjustment is one request that tells Redis of something, and what to do when it is
// known what came of it.
type adjustment struct {
	op   *redislink.Op
	done func(err error)
}

// send makes the requests side by side, and reports whether Redis took all of them.
func (b *Outbox) send(ctx context.Context, items []adjustment) bool {
	ops := make([]*redislink.Op, len(items))
	for i := range items {
		ops[i] = items[i].op
	}
	took := true
	for i, err := range b.link.AskAll(ctx, ops) {
		items[i].done(err)
		took = took && err == nil
	}
	return took
}

// Reconcile sends Redis what it does not know: an outage refunds nothing. What may
// have been executed is sent once: what is lost with a reply is forgotten rather than
// charged twice. What was not executed stays for the next time.
func (b *Outbox) Reconcile(ctx context.Context) {
	for _, blocked := range b.local.UnsentBlocks() {
		// Also as a probe: a process that asks for nothing but blocked keys has no other.
		if !b.link.Server(blocked.ID).Breaker.Rejects() && ctx.Err() == nil {
			b.send(ctx, b.block(blocked))
		}
	}
	b.returnAll(ctx)
	debtors := b.local.Debtors()
	for _, srv := range b.link.Servers() {
		mine := slices.DeleteFunc(slices.Clone(debtors), func(d inprocess.Debtor) bool { return b.link.Server(d.ID()) != srv })
		for batch := range slices.Chunk(mine, callKeys) {
			if !b.answers(ctx, srv) {
				break
			}
			var items []adjustment
			for _, debtor := range batch {
				// A bucket refills in Redis as local use of it drains. What is charged
				// before Redis decides again would be used once more by then.
				if debtor.Kind().Windowed() || !srv.Away() {
					items = append(items, b.debt(debtor)...)
				}
			}
			if !b.send(ctx, items) {
				break
			}
		}
	}
}

// answers reports whether srv does. If that is not known it is asked, as nothing else may ask it: the first part of
// a Multi asks for the later ones. What is sent must not be a probe, for what is lost with a reply is not sent again.
func (b *Outbox) answers(ctx context.Context, srv *redislink.Server) bool {
	return ctx.Err() == nil && (srv.Answers() || b.link.Probe(ctx, srv))
}

// returnAll gives back what waits for that.
func (b *Outbox) returnAll(ctx context.Context) {
	for _, srv := range b.link.Servers() {
		for b.waitsFor(srv) && b.answers(ctx, srv) {
			if !b.GiveBack(b.take(srv)) {
				break
			}
		}
	}
}

// block tells Redis of a block that it does not know, if that is not over.
func (b *Outbox) block(of inprocess.UnsentBlock) []adjustment {
	kind := of.Limit.Kind
	left := b.local.Unsent(kind, of.ID)
	if left == 0 {
		return nil
	}
	cmd := &lua.Block{Keys: b.link.Names.KeysOf(kind, of.ID), Params: lua.NewArgs(of.Limit), Time: left}
	return []adjustment{{&redislink.Op{ID: cmd.Keys.ID(), Command: cmd}, func(err error) {
		if err == nil {
			b.local.Sent(kind, of.ID, cmd.Left)
		}
	}}}
}

// debt charges what was admitted locally of a key, if that still counts.
func (b *Outbox) debt(of inprocess.Debtor) (items []adjustment) {
	d, ok := b.local.TakeDebt(of)
	if !ok {
		return nil
	}
	pieces := d.Uses
	if d.Limit.Kind == algo.SlidingWindowLog {
		pieces = nil
		for _, use := range d.Uses {
			for ; use.Units > debtPiece; use.Units -= debtPiece {
				pieces = append(pieces, algo.Use{Units: debtPiece, Age: use.Age})
			}
			pieces = append(pieces, use)
		}
	}
	args, keys := lua.NewArgs(d.Limit), b.link.Names.KeysOf(d.Limit.Kind, d.ID)
	waiting, failed := len(pieces), false
	var back []algo.Use
	for _, use := range pieces {
		items = append(items, adjustment{&redislink.Op{ID: keys.ID(), Args: &args, Keys: keys, Cost: -use.Units, Age: use.Age}, func(err error) {
			if err != nil {
				failed = true
				if redislink.NeverExecuted(err) {
					back = append(back, use)
				}
			}
			if waiting--; waiting > 0 {
				return
			}
			b.local.Settled(d, back)
			if !failed {
				b.reconciled.Add(1)
			}
		}})
	}
	return items
}

// GiveBackSoon is GiveBack in the background, or when the link is closing as a part of
// that.
func (b *Outbox) GiveBackSoon(items []lua.Taken) {
	if b.link.Background.Start(func(context.Context) { b.GiveBack(items) }) {
		return
	}
	for _, t := range items {
		b.keep(t)
	}
}

// GiveBack returns units to Redis, each at most once, so what is lost with a reply stays
// charged; what was not executed is kept until Redis answers. It reports whether Redis took
// all of the units. Close waits for it, within the budget.
func (b *Outbox) GiveBack(back []lua.Taken) bool {
	items := make([]adjustment, len(back))
	for i := range back {
		op := &redislink.Op{ID: back[i].Keys.ID(), Taken: &back[i], Lasts: true}
		items[i] = adjustment{op, func(err error) { b.kept(back[i], err) }}
	}
	return b.send(context.Background(), items)
}

// Return gives units back within a budget. What was not executed is kept, and no error;
// the error is a *redislink.Error.
func (b *Outbox) Return(ctx context.Context, t lua.Taken, budget time.Duration) error {
	id := t.Keys.ID()
	err := b.link.Ask(ctx, b.link.Server(id), &redislink.Op{ID: id, Taken: &t}, budget)
	if b.kept(t, err) {
		return nil
	}
	return err
}

// kept keeps units that could not be given back, and reports whether it did: what may
// have been executed is not sent again, and others may be granted those units.
func (b *Outbox) kept(t lua.Taken, err error) bool {
	if redislink.FallsBack(err) && redislink.NeverExecuted(err) && b.keep(t) {
		return true
	}
	b.local.Returned(t.Params.Kind, t.Keys.ID(), t.Units)
	return false
}

// keep adds units to be given back later, if there is room.
func (b *Outbox) keep(t lua.Taken) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.credits) >= maxCredits {
		return false
	}
	b.credits = append(b.credits, t)
	b.waiting.Store(int64(len(b.credits)))
	return true
}

// waitsFor reports whether there are units to be given back to a server.
func (b *Outbox) waitsFor(srv *redislink.Server) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.credits, func(t lua.Taken) bool { return b.link.Server(t.Keys.ID()) == srv })
}

// take removes the first of the units to be given back to a server.
func (b *Outbox) take(srv *redislink.Server) (out []lua.Taken) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.credits = slices.DeleteFunc(b.credits, func(t lua.Taken) bool {
		if len(out) == callKeys || b.link.Server(t.Keys.ID()) != srv {
			return false
		}
		out = append(out, t)
		return true
	})
	b.waiting.Store(int64(len(b.credits)))
	return out
}

// Close gives back what waits for that, when the link is closing.
func (b *Outbox) Close() { b.returnAll(context.Background()) }
