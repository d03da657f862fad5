package limiter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// receipt says where units were taken. A nil one is of no interest to anybody.
type receipt struct {
	s   *spec
	key string // of the part, where it is split

	redis  lua.Taken // Units is 0 where Redis was not asked
	lease  *lease
	scrape scrape
	local  fallback.Receipt

	end time.Time // of the decision's budget, where units go back before it is over
}

// budget is the time in which units can be given back.
func (rc *receipt) budget(of time.Duration) time.Duration {
	if rc.end.IsZero() {
		return of
	}
	return min(of, time.Until(rc.end))
}

func (rc *receipt) forLocal(s *spec, key string) *fallback.Receipt {
	if rc == nil {
		return nil
	}
	rc.s, rc.key = s, key
	return &rc.local
}

func (rc *receipt) fromRedis(l *Limiter, r *request, d *decision) {
	rc.s, rc.key = r.s, r.key
	rc.redis = lua.Taken{
		Keys: l.names.KeysOf(r.s.args.Kind, r.id), Params: r.s.args, Units: int64(r.n), Of: int64(r.n),
		At: d.at, Member: d.member, First: d.first,
	}
}

func (rc *receipt) fromLease(r *request, ls *lease, units scrape) {
	if rc != nil && units.sum() > 0 {
		rc.s, rc.key, rc.lease, rc.scrape = r.s, r.key, ls, units
	}
}

// credits are units that Redis could not be told of.
type credits struct {
	count atomic.Int64 // of items, to be read without the lock
	mu    sync.Mutex
	items []lua.Taken
}

// maxCredits bounds what an outage can leave behind.
const maxCredits = 4096

func (c *credits) add(t lua.Taken) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.items) >= maxCredits {
		return false
	}
	c.items = append(c.items, t)
	c.count.Store(int64(len(c.items)))
	return true
}

// take removes those that the filter accepts.
func (c *credits) take(accept func(id string) bool) (out []lua.Taken) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.items = slices.DeleteFunc(c.items, func(t lua.Taken) bool {
		if !accept(t.Keys.ID()) {
			return false
		}
		out = append(out, t)
		return true
	})
	c.count.Store(int64(len(c.items)))
	return out
}

// giveUp gives n of the units of rc back to where they were taken: those of Redis
// before those that this process holds.
func (l *Limiter) giveUp(ctx context.Context, rc *receipt, n int) error {
	left := int64(n)
	var err error
	if t := rc.redis; t.Units > 0 {
		units := min(left, t.Units)
		t.First += t.Units - units
		t.Units = units
		left -= units
		err = l.returnTaken(ctx, rc, t)
	}
	if rc.lease != nil && left > 0 {
		part := rc.scrape
		for i := range part.units {
			part.units[i] = min(part.units[i], left)
			left -= part.units[i]
		}
		l.undo(rc.lease, &part)
	}
	if left > 0 {
		l.local.GiveBack(rc.key, &rc.local, left)
	}
	return err
}

// returnTaken tells Redis, now or when it is back.
func (l *Limiter) returnTaken(ctx context.Context, rc *receipt, t lua.Taken) error {
	id := t.Keys.ID()
	defer l.denials.forget(id)
	err := l.tellWithin(ctx, rc.budget(l.budget), l.shards.forID(id), l.closed, func(ctx context.Context, c *call) error {
		_, err := c.lua.GiveBack(ctx, 0, &c.ticket, []lua.Taken{t})
		return err
	})
	if fallsBack(err) && neverExecuted(err) && l.credits.add(t) {
		return nil
	}
	return l.unavailable(ctx, rc.key, err)
}

// charge takes n more units of the key of rc: as many as there is room for.
func (l *Limiter) charge(ctx context.Context, rc *receipt, n int) error {
	id := lua.EncodeID(rc.key)
	item := []lua.Item{{Keys: l.names.KeysOf(rc.s.args.Kind, id), Params: rc.s.args, Cost: -int64(n)}}
	err := l.tell(ctx, id, func(ctx context.Context, c *call) error {
		_, _, err := c.lua.Decide(ctx, 0, &c.ticket, item, nil)
		return err
	})
	if !fallsBack(err) || l.policy == fallback.Closed {
		return l.unavailable(ctx, rc.key, err)
	}
	if l.policy == fallback.Local {
		var home *algo.Params
		if neverExecuted(err) {
			home = &rc.s.args.Params
		}
		l.local.Charge(rc.key, rc.s.local(l.currentShare()), int64(n), home)
	}
	return nil
}

func fallsBack(err error) bool {
	var failed *callError
	return errors.As(err, &failed) && failed.class.Fallback()
}

// Refund gives n units of key back that were taken just now, by whichever process:
// a cost that turned out lower than it was charged. The key never has more than
// its limit. What was taken a while ago may have drained already, or stand in an
// earlier window: a Reservation knows that, so prefer its Cancel and Settle. A
// refund to LeakyBucketShaping does nothing, because those who wait were told
// their place.
//
// When Redis cannot be reached, only this process takes note, and the error is
// ErrUnavailable. Other errors are those of Decide.
func (l *Limiter) Refund(ctx context.Context, key string, n int, opts ...CallOption) error {
	s, err := l.forCall(ctx, opts)
	if err != nil {
		return err
	}
	if err := l.enter(ctx, s, key, n); err != nil || n == 0 {
		return err
	}
	left := int64(n)
	refund := func(s *spec, key string) error {
		l.local.Refund(key, s.local(l.currentShare()), left)
		id := lua.EncodeID(key)
		defer l.denials.forget(id)
		t := []lua.Taken{{Keys: l.names.KeysOf(s.args.Kind, id), Params: s.args, Units: left}}
		var given []int64
		err := l.ask(ctx, key, func(ctx context.Context, c *call) (err error) {
			given, err = c.lua.GiveBack(ctx, 0, &c.ticket, t)
			return err
		})
		if err == nil {
			left -= given[0]
		}
		return err
	}
	if s.parts == nil {
		return refund(s, key)
	}
	for i := range s.parts {
		if err := refund(&s.parts[i], partKey(key, i)); err != nil {
			return ofKey(err, key)
		}
		if left == 0 {
			break
		}
	}
	return nil
}

// giveBackSoon returns units in the background, or when the limiter is closing as a
// part of that.
func (l *Limiter) giveBackSoon(items []lua.Taken) {
	if l.background.start(func(context.Context) { l.giveBack(items) }) {
		return
	}
	for _, t := range items {
		l.credits.add(t)
	}
}

// giveBack returns units to Redis: each at most once, so what is lost with a
// reply stays charged.
func (l *Limiter) giveBack(items []lua.Taken) {
	groups := map[algo.Kind][]lua.Taken{}
	for _, it := range items {
		groups[it.Params.Kind] = append(groups[it.Params.Kind], it)
	}
	_, single := l.rdb.(*redis.Client)
	ctx, cancel := context.WithTimeout(context.Background(), reconcileBudget)
	defer cancel()
	for _, group := range groups {
		for batch := range slices.Chunk(group, perCall(single)) {
			if ctx.Err() != nil {
				return
			}
			l.returnUnits(ctx, batch)
		}
	}
}

// perCall is how many keys one script may touch in the background.
func perCall(single bool) int {
	if single {
		return reconcileBatch
	}
	return 1 // in a cluster or a ring they may be on different servers
}

// returnUnits makes one call, under the breaker and the budget. What was not sent is
// kept until Redis answers.
func (l *Limiter) returnUnits(ctx context.Context, batch []lua.Taken) {
	sh := l.shards.forID(batch[0].Keys.ID())
	err := l.tellShard(ctx, sh, nil, func(ctx context.Context, c *call) error {
		_, err := c.lua.GiveBack(ctx, 0, &c.ticket, batch)
		return err
	})
	if fallsBack(err) && neverExecuted(err) {
		for _, t := range batch {
			l.credits.add(t)
		}
	}
}
