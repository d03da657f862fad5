package limiter

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

// fallBack decides without Redis.
func (c *Concurrency) fallBack(ctx context.Context, g *gate, caller string, critical bool, cause error) (*Slot, error) {
	switch c.policy {
	case fallback.Open:
		return &Slot{Result: count(g.sh, Result{Allowed: true, Remaining: c.max, Source: SourceOpen}), c: c}, nil
	case fallback.Closed:
		return c.refused(g, 0, SourceClosed), fmt.Errorf("%w: %w", ErrUnavailable, cause)
	}
	max, keep := c.share()
	if critical {
		keep = 0
	}
	c.mu.Lock()
	room := max - len(g.holding)
	if room <= keep {
		c.mu.Unlock()
		return c.refused(g, 0, SourceLocal), nil
	}
	slot := c.hold(g, caller, room-1, SourceLocal)
	c.mu.Unlock()
	return slot, nil
}

// share is this process's part of the slots, and of those kept.
func (c *Concurrency) share() (max, keep int) {
	share := c.currentShare()
	s := c.shared.Load()
	if s == nil || s.share != share {
		s = &scaledSlots{share: share, max: scaleSlots(c.max, share)}
		if c.keep > 0 {
			s.keep = min(reserveOf(s.max, c.reserve), s.max-1)
		}
		c.shared.Store(s)
	}
	return s.max, s.keep
}

func scaleSlots(n int, share float64) int { return max(1, int(float64(n)*share+1e-9)) }

// refused is a slot that is none.
func (c *Concurrency) refused(g *gate, nextEnd int64, from Source) *Slot {
	again := slotAgain
	if nextEnd > 0 {
		again = min(again, algo.Duration(nextEnd))
	}
	return &Slot{Result: count(g.sh, Result{RetryAfter: max(again, time.Millisecond), Source: from}), c: c}
}

// grant makes the slot of a caller.
func (c *Concurrency) grant(g *gate, caller string, remaining int, from Source) *Slot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hold(g, caller, max(0, remaining), from)
}

// hold is grant with mu held.
func (c *Concurrency) hold(g *gate, caller string, remaining int, from Source) *Slot {
	s := &Slot{Result: count(g.sh, Result{Allowed: true, Remaining: remaining, Source: from}), c: c, g: g, caller: caller}
	s.known.Store(from == SourceRedis)
	g.holding[caller] = s
	c.held++
	c.wind()
	return s
}

// release frees a slot, here and in Redis.
func (c *Concurrency) release(g *gate, caller string) {
	c.mu.Lock()
	delete(g.holding, caller)
	c.held--
	c.tidy(g)
	c.mu.Unlock()
	c.forgetCallers(context.Background(), g, caller)
	g.poke()
}

// poke lets the poller ask at once.
func (g *gate) poke() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// forgetCallers takes callers out of all that Redis keeps of the key.
func (c *Concurrency) forgetCallers(ctx context.Context, g *gate, callers ...string) {
	_ = c.exec(ctx, g.id, lua.LeaveSlots(g.inRedis, callers...))
}

// lastOut is forgetCallers when the limiter is closing, and reports whether it worked.
func (c *Concurrency) lastOut(g *gate, callers []string) bool {
	class, _ := c.redis.Last(&redislink.Op{ID: g.id, Command: lua.LeaveSlots(g.inRedis, callers...)})
	return class == breaker.ClassOK
}
