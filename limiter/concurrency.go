package limiter

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

// Concurrency bounds how many of something are in flight at once, per key, over
// all processes that use the same Redis and prefix: calls to an API that allows 10
// at a time, exports per tenant. It is safe for concurrent use. Make one with
// NewConcurrency; the zero value is not usable.
//
// Redis keeps a slot for a time to live (WithSlotTTL), and a heartbeat extends it
// while it is held. A process that dies frees its slots by that; one that cannot
// reach Redis for so long, or stands still, may lose one: see Slot.Lost. While
// Redis answers, and no slot is lost, there are never more than max.
//
// While Redis cannot decide, each process has its share of max, at least 1, and
// what it holds already counts. With shares that add up to 1 there are then at most
// max in flight, and in addition what processes held beyond their share when Redis
// went away, so less than 2·max. A Redis that lost its state knows all who hold a
// slot after a third of the time to live; until then it may admit up to max more.
type Concurrency struct {
	*link
	max, keep int
	patience  time.Duration // slotPatience
	claimed   *claimed
	shared    atomic.Pointer[scaledSlots]

	mu    sync.Mutex
	gates map[string]*gate
	held  int
	timer *time.Timer // of the heartbeat; nil while it is stopped
}

// gate is a key that somebody of this process holds slots of, or waits for.
type gate struct {
	key     string
	id      string
	inRedis string // its name there
	sh      *redislink.Server
	holding map[string]*Slot
	waiting [2][]*waiter // the critical ones before the others
	left    []string     // callers who waited, and whom Redis may still know
	wake    chan struct{}
	polling bool
	pending int // callers on their way
}

// waiter is a caller in the queue.
type waiter struct {
	caller string
	asked  bool
	slot   *Slot
	err    error
	done   chan struct{} // closed when there is a slot or an error
}

type scaledSlots struct {
	share     float64
	max, keep int
}

// NewConcurrency returns a limit of max in flight for each key. Of the options,
// those about leases and key shards have no meaning here and are refused. Like New
// it does not talk to Redis. The error is a *ConfigError.
func NewConcurrency(rdb redis.UniversalClient, max int, opts ...Option) (*Concurrency, error) {
	l, err := newLink(rdb, opts)
	if err != nil {
		return nil, err
	}
	c := &Concurrency{link: l, max: max, patience: slotPatience, gates: make(map[string]*gate)}
	switch {
	case max < 1 || max > math.MaxInt32:
		return nil, &ConfigError{"max", max, "must be at least 1 and below 2^31"}
	case l.leaseSet:
		return nil, &ConfigError{"lease", l.lease, "has no meaning for slots"}
	case l.keyShards > 1:
		return nil, &ConfigError{"key shards", l.keyShards, "cannot be used with slots"}
	}
	if err := l.only("NewConcurrency"); err != nil {
		return nil, err
	}
	if l.reserve > 0 {
		if c.keep = reserveOf(max, l.reserve); c.keep >= max {
			return nil, &ConfigError{"reserve", l.reserve, fmt.Sprintf("leaves no slot of %d to calls that are not critical", max)}
		}
	}
	if c.claimed, err = claim(l, "slots", fmt.Sprintf("a max of %d", max)); err != nil {
		return nil, err
	}
	return c, nil
}

// reserveOf is the part f of n, rounded up but for what floating point adds.
func reserveOf(n int, f float64) int { return int(math.Ceil(float64(n)*f*(1-1e-12) - 1e-9)) }

// Max returns how many may be in flight for one key.
func (c *Concurrency) Max() int { return c.max }

// TryAcquire takes a slot if there is one, and nobody waits for it. One that is not
// Allowed needs no Release.
//
// The error is ErrInvalidKey, ErrClosed, ErrState, the context's own error, or,
// only under the policy fallback.Closed, ErrUnavailable.
func (c *Concurrency) TryAcquire(ctx context.Context, key string) (*Slot, error) {
	return c.told(ctx, key, c.tryAcquire)
}

// told tells of what acquire decides.
func (c *Concurrency) told(ctx context.Context, key string, acquire func(context.Context, string) (*Slot, error)) (*Slot, error) {
	if !c.hooks.observes(1) {
		return acquire(ctx, key)
	}
	start := time.Now()
	slot, err := acquire(ctx, key)
	var res Result
	if slot != nil {
		res = slot.Result
	}
	c.hooks.decided(ctx, key, 1, res, err, start)
	return slot, err
}

func (c *Concurrency) tryAcquire(ctx context.Context, key string) (*Slot, error) {
	g, err := c.enter(ctx, key)
	if err != nil {
		return nil, err
	}
	defer c.leave(g)
	return c.ask(ctx, g, c.newWaiter(), false)
}

// Acquire waits for a slot. Those who wait get theirs in the order in which they
// came, over all processes, critical ones before others. Processes ask again every
// 10 to 200 ms, the later the more are ahead of them, and at once when one of their
// own slots is released; in a process only the first ones ask. One that stands
// still loses its place after 2 s.
//
// The error is the context's own when it ends before, or one of TryAcquire.
func (c *Concurrency) Acquire(ctx context.Context, key string) (*Slot, error) {
	return c.told(ctx, key, c.acquire)
}

func (c *Concurrency) acquire(ctx context.Context, key string) (*Slot, error) {
	g, err := c.enter(ctx, key)
	if err != nil {
		return nil, err
	}
	defer c.leave(g)
	w := c.newWaiter()
	rank := 1
	if isCritical(ctx) {
		rank = 0
	}
	if c.first(g, rank) {
		slot, err := c.ask(ctx, g, w, true)
		if err != nil || slot.Allowed {
			return slot, err
		}
		w.asked = true
	}
	c.queue(g, w, rank)
	select {
	case <-w.done:
		return w.slot, w.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-c.redis.Closed():
		err = ErrClosed
	}
	c.unqueue(g, w, rank)
	return nil, err
}

// InFlight returns how many slots of key are held. While Redis cannot be asked
// those of this process are, with ErrUnavailable.
func (c *Concurrency) InFlight(ctx context.Context, key string) (int, error) {
	g, err := c.enter(ctx, key)
	if err != nil {
		return 0, err
	}
	defer c.leave(g)
	var held int64
	cmd := &lua.Acquire{Ask: &lua.SlotAsk{Key: g.inRedis, Most: int64(c.max), TTL: c.slotTTL.Microseconds(), Patience: c.patience.Microseconds()}}
	if err = c.link.ask(ctx, key, cmd); err == nil {
		held = cmd.Got.Held
	}
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(g.holding), err
	}
	return int(held), nil
}

// Health reports without asking Redis. Decisions are those of callers who got a
// slot or were refused one.
func (c *Concurrency) Health() Health { return c.health() }

// Close fails later calls, and those that wait, with ErrClosed, and ends the
// heartbeat. Slots that are still held end with their time to live; places in the
// queue are given up. The client stays open. Closing twice is harmless.
func (c *Concurrency) Close() error {
	places := make(map[*gate][]string)
	c.mu.Lock()
	if c.timer != nil {
		c.timer.Stop()
	}
	for _, g := range c.gates {
		for _, waiting := range g.waiting {
			for _, w := range waiting {
				places[g] = append(places[g], w.caller)
			}
		}
		places[g] = append(places[g], g.left...)
	}
	c.mu.Unlock()
	c.close(func() {
		for g, callers := range places {
			if len(callers) > 0 && !c.lastOut(g, callers) {
				break // Redis forgets them soon
			}
		}
		c.claimed.release()
	})
	return nil
}

// newWaiter names a caller as no other is, with the time to live of its slot.
func (c *Concurrency) newWaiter() *waiter {
	return &waiter{caller: fmt.Sprintf("%s/%d", c.redis.Nonce(), c.slotTTL.Microseconds()), done: make(chan struct{})}
}

// enter returns the gate of a key, which stays until leave.
func (c *Concurrency) enter(ctx context.Context, key string) (*gate, error) {
	switch {
	case key == "":
		return nil, fmt.Errorf("%w: key is empty", ErrInvalidKey)
	case c.redis.IsClosed():
		return nil, ErrClosed
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.gates[key]
	if g == nil {
		id := lua.EncodeID(key)
		g = &gate{key: key, id: id, inRedis: c.names.Slots(id), sh: c.redis.Server(id), holding: make(map[string]*Slot), wake: make(chan struct{}, 1)}
		c.gates[key] = g
	}
	g.pending++
	return g, nil
}

func (c *Concurrency) leave(g *gate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g.pending--
	c.tidy(g)
}

// tidy drops a gate that nobody uses. mu is held.
func (c *Concurrency) tidy(g *gate) {
	if g.pending == 0 && len(g.holding) == 0 && !g.polling && c.gates[g.key] == g {
		delete(c.gates, g.key)
	}
}

// ask asks for one caller.
func (c *Concurrency) ask(ctx context.Context, g *gate, w *waiter, wait bool) (*Slot, error) {
	reply, ended, err := c.askRedis(ctx, g, []string{w.caller}, isCritical(ctx), false, wait)
	switch {
	case err == nil:
		if !reply.Granted[0] {
			return c.refused(g, reply.NextEnd, SourceRedis), nil
		}
		return c.grant(g, w.caller, c.max-int(reply.Held), SourceRedis), nil
	case fallsBack(err):
		slot, failed := c.fallBack(ctx, g, w.caller, isCritical(ctx), err)
		// One who waits from now on will hear what was granted.
		if failed != nil || slot.g == nil && !wait {
			c.regret(g, w.caller, ended, err)
		}
		return slot, failed
	}
	c.regret(g, w.caller, ended, err)
	return nil, c.unavailable(ctx, g.key, err)
}

// regret takes a caller out of Redis that does not know what its call was answered:
// after the call has ended, or Redis could execute it later.
func (c *Concurrency) regret(g *gate, caller string, ended <-chan struct{}, err error) {
	if redislink.NeverExecuted(err) {
		return
	}
	c.redis.Background.Start(func(ctx context.Context) {
		select {
		case <-ended:
			c.forgetCallers(ctx, g, caller)
		case <-ctx.Done():
		}
	})
}

// askRedis asks for several callers. A call that the caller leaves is over when ended
// is closed.
func (c *Concurrency) askRedis(ctx context.Context, g *gate, callers []string, critical, again, wait bool) (reply lua.SlotReply, ended <-chan struct{}, err error) {
	ask := &lua.SlotAsk{
		Key: g.inRedis, Most: int64(c.max), Keep: int64(c.keep),
		TTL: c.slotTTL.Microseconds(), Patience: c.patience.Microseconds(),
		Wait: wait, Critical: critical, Again: again, Callers: callers,
	}
	if critical {
		ask.Keep = 0
	}
	over := make(chan struct{})
	cmd := &lua.Acquire{Ask: ask}
	o := &redislink.Op{ID: g.id, Command: cmd, After: func(*redislink.Op, bool) { close(over) }}
	if err := c.execWithin(ctx, c.budget, g.sh, o); err != nil {
		return reply, over, err
	}
	c.beatIfDue()
	return cmd.Got, over, nil
}
