package limiter

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

const (
	// slotPatience is how long Redis believes that somebody waits who does not ask.
	slotPatience = 2 * time.Second
	// Between these a process asks again for those who wait, the later the more are
	// ahead of them.
	slotPollLeast = 10 * time.Millisecond
	slotPollMost  = 200 * time.Millisecond
	slotPollEach  = 5 * time.Millisecond
	// slotAgain is the most that a caller who was refused is told to wait: a slot may
	// be released at any time.
	slotAgain = time.Second
	// slotCallers is how many of those who wait are asked for in one call.
	slotCallers = 64
	// slotBeats is how many heartbeats there are in a slot's time to live.
	slotBeats = 3
	// slotsPerBeat bounds one call of the heartbeat.
	slotsPerBeat = 1000
)

// first reports whether nobody of this process waits before a caller of that rank.
func (c *Concurrency) first(g *gate, rank int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := 0; r <= rank; r++ {
		if len(g.waiting[r]) > 0 {
			return false
		}
	}
	return true
}

// queue lets w wait, and sees to it that somebody asks for it.
func (c *Concurrency) queue(g *gate, w *waiter, rank int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g.waiting[rank] = append(g.waiting[rank], w)
	if g.polling {
		return
	}
	g.polling = c.redis.Background.Start(func(ctx context.Context) { c.poll(ctx, g) })
	if !g.polling {
		w.err = ErrClosed
		close(w.done)
	}
}

// unqueue is for a waiter that has left. A slot that it got at the same moment is
// released.
func (c *Concurrency) unqueue(g *gate, w *waiter, rank int) {
	c.mu.Lock()
	g.waiting[rank] = slices.DeleteFunc(g.waiting[rank], func(other *waiter) bool { return other == w })
	select {
	case <-w.done:
		c.mu.Unlock()
		if w.slot != nil && w.slot.Allowed {
			_ = w.slot.Release()
		}
		return
	default:
	}
	// Its place would hold others up until it is not believed any more. The poller
	// takes it out, after a call that may be on its way with it.
	g.left = append(g.left, w.caller)
	c.mu.Unlock()
	g.poke()
}

// poll asks for those who wait, until there are none.
func (c *Concurrency) poll(ctx context.Context, g *gate) {
	timer := time.NewTimer(slotPollLeast)
	defer timer.Stop()
	for {
		ahead, more := c.round(ctx, g)
		if !more {
			return
		}
		pause := min(slotPollMost, slotPollLeast+time.Duration(ahead)*slotPollEach)
		timer.Reset(pause*3/4 + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-g.wake:
		case <-ctx.Done():
		}
	}
}

// round asks once for the first of those who wait, the critical ones for
// themselves. It reports how many are ahead, and whether anybody still waits.
func (c *Concurrency) round(ctx context.Context, g *gate) (ahead int64, more bool) {
	ahead = -1
	c.mu.Lock()
	left := g.left
	g.left = nil
	c.mu.Unlock()
	for some := range slices.Chunk(left, slotsPerBeat) {
		c.forgetCallers(ctx, g, some...)
	}
	for rank := range g.waiting {
		c.mu.Lock()
		batch := slices.Clone(g.waiting[rank][:min(slotCallers, len(g.waiting[rank]))])
		c.mu.Unlock()
		if len(batch) == 0 {
			continue
		}
		if n := c.askFor(ctx, g, batch, rank == 0); ahead < 0 || n < ahead {
			ahead = n
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(g.waiting[0])+len(g.waiting[1])+len(g.left) > 0 && ctx.Err() == nil {
		return max(0, ahead), true
	}
	g.polling = false
	c.tidy(g)
	return 0, false
}

// askFor asks for a batch of waiters and gives them what there is.
func (c *Concurrency) askFor(ctx context.Context, g *gate, batch []*waiter, critical bool) (ahead int64) {
	callers := make([]string, len(batch))
	again := false
	for i, w := range batch {
		callers[i] = w.caller
		again = again || w.asked
	}
	reply, _, err := c.askRedis(ctx, g, callers, critical, again, true)
	for i, w := range batch {
		w.asked = true
		switch {
		case err == nil && reply.Granted[i]:
			c.settleWaiter(g, w, func() { w.slot = c.hold(g, w.caller, max(0, c.max-int(reply.Held)), SourceRedis) })
		case fallsBack(err):
			slot, err := c.fallBack(ctx, g, w.caller, critical, err)
			if err != nil {
				c.fail(g, w, err)
			} else if slot.Allowed {
				c.settleWaiter(g, w, func() { w.slot = slot })
			}
		case err != nil && ctx.Err() == nil:
			c.fail(g, w, c.unavailable(ctx, g.key, err))
		}
	}
	return reply.Ahead
}

// fail ends the wait of w with an error, and its place.
func (c *Concurrency) fail(g *gate, w *waiter, err error) {
	c.settleWaiter(g, w, func() {
		w.err = err
		g.left = append(g.left, w.caller)
	})
}

// settleWaiter ends the wait of w. One that has left meanwhile leaves its slot.
func (c *Concurrency) settleWaiter(g *gate, w *waiter, settle func()) {
	c.mu.Lock()
	settle()
	here := false
	for r := range g.waiting {
		g.waiting[r] = slices.DeleteFunc(g.waiting[r], func(other *waiter) bool {
			here = here || other == w
			return other == w
		})
	}
	close(w.done)
	c.mu.Unlock()
	if !here && w.slot != nil {
		_ = w.slot.Release()
	}
}

// wind makes sure that there is a heartbeat to come. mu is held.
func (c *Concurrency) wind() {
	if c.timer == nil && !c.redis.IsClosed() {
		c.timer = time.AfterFunc(c.slotTTL/slotBeats, c.tick)
	}
}

// tick keeps what is held, in the background, and goes on while there is something.
func (c *Concurrency) tick() {
	c.redis.Background.Start(func(ctx context.Context) {
		c.keepSlots(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.timer = nil
		if c.held > 0 {
			c.wind()
		}
	})
}

// beatOf is the slots of one key in a heartbeat.
type beatOf struct {
	g     *gate
	slots []*Slot
}

// keepSlots extends all slots of this process, whoever granted them: those that it
// granted itself count in Redis from then on.
func (c *Concurrency) keepSlots(ctx context.Context) {
	var all []beatOf
	c.mu.Lock()
	for _, g := range c.gates {
		if len(g.holding) == 0 {
			continue
		}
		b := beatOf{g: g}
		for _, s := range g.holding {
			b.slots = append(b.slots, s)
		}
		for part := range slices.Chunk(b.slots, slotsPerBeat) {
			all = append(all, beatOf{g, part})
		}
	}
	c.mu.Unlock()
	for batch := range slices.Chunk(all, outboxCall) {
		c.keepOn(ctx, batch)
	}
}

// keepOn is one round of the heartbeat.
func (c *Concurrency) keepOn(ctx context.Context, beats []beatOf) {
	ops := make([]*redislink.Op, len(beats))
	for i, b := range beats {
		of := &lua.Holders{ID: b.g.id, Key: b.g.inRedis}
		for _, s := range b.slots {
			of.Callers = append(of.Callers, s.caller)
		}
		ops[i] = &redislink.Op{ID: b.g.id, Keep: of, TTL: c.slotTTL.Microseconds()}
	}
	errs := c.doAll(ctx, ops)
	for i, b := range beats {
		var gone []string
		for k, s := range b.slots {
			if s.released.Load() {
				gone = append(gone, s.caller) // meanwhile: the heartbeat has brought it back
			} else if errs[i] == nil && s.known.Swap(true) && ops[i].Lost[k] {
				s.lose()
			}
		}
		if len(gone) > 0 {
			c.forgetCallers(ctx, b.g, gone...)
		}
	}
}
