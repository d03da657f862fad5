package limiter

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

// receipt says where units were taken. A nil one records nothing.
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

// of notes which key the decision is about; of a split one, which part.
func (rc *receipt) of(s *spec, key string) {
	if rc != nil {
		rc.s, rc.key = s, key
	}
}

func (rc *receipt) forLocal() *fallback.Receipt {
	if rc == nil {
		return nil
	}
	return &rc.local
}

func (rc *receipt) fromRedis(l *Limiter, r *request, o *redislink.Op) {
	rc.redis = lua.Taken{
		Keys: l.names.KeysOf(r.s.args.Kind, r.id), Params: r.s.args, Units: int64(r.n), Of: int64(r.n),
		At: o.At, Member: o.Member, First: o.First,
	}
}

func (rc *receipt) fromLease(ls *lease, units scrape) {
	if rc != nil && units.sum() > 0 {
		rc.lease, rc.scrape = ls, units
	}
}

// giveUp gives n of the units of rc back to where they were taken: those of Redis
// before those that this process holds.
func (l *Limiter) giveUp(ctx context.Context, rc *receipt, n int) error {
	if l.redis.IsClosed() {
		return ErrClosed // also of a lease, which Close has given back
	}
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
	defer l.denials.Forget(id)
	err := l.execWithin(ctx, rc.budget(l.budget), l.redis.Server(id), &redislink.Op{ID: id, Taken: &t})
	if fallsBack(err) && redislink.NeverExecuted(err) && l.keep(t) {
		return nil
	}
	return l.unavailable(ctx, rc.key, err)
}

// charge takes n more units of the key of rc: as many as there is room for.
func (l *Limiter) charge(ctx context.Context, rc *receipt, n int) error {
	id := lua.EncodeID(rc.key)
	err := l.execWithin(ctx, l.budget, l.redis.Server(id), &redislink.Op{ID: id, Args: &rc.s.args, Keys: l.names.KeysOf(rc.s.args.Kind, id), Cost: -int64(n)})
	if !fallsBack(err) || l.policy == fallback.Closed {
		return l.unavailable(ctx, rc.key, err)
	}
	if l.policy == fallback.Local {
		var home *algo.Params
		if redislink.NeverExecuted(err) {
			home = &rc.s.args.Params
		}
		l.local.Charge(rc.key, rc.s.local(l.currentShare()), int64(n), home)
	}
	return nil
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
		defer l.denials.Forget(id)
		o := &redislink.Op{ID: id, Taken: &lua.Taken{Keys: l.names.KeysOf(s.args.Kind, id), Params: s.args, Units: left}}
		err := l.execWithin(ctx, l.budget, l.redis.Server(id), o)
		if err == nil {
			left -= o.Given
		}
		return l.unavailable(ctx, key, err)
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
	if len(items) == 0 || l.redis.Background.Start(func(context.Context) { l.giveBack(items) }) {
		return
	}
	for _, t := range items {
		l.keep(t)
	}
}

// giveBack returns units to Redis, each at most once, so what is lost with a reply stays
// charged; what was not executed is kept until Redis answers. It reports whether Redis
// took all of them. Close waits for it, within the budget.
func (l *Limiter) giveBack(items []lua.Taken) bool {
	ops := make([]*redislink.Op, len(items))
	for i := range items {
		ops[i] = &redislink.Op{ID: items[i].Keys.ID(), Taken: &items[i], Lasts: true}
	}
	took := true
	for i, err := range l.redis.AskAll(context.Background(), ops) {
		if err != nil {
			took = false
			if fallsBack(err) && redislink.NeverExecuted(err) {
				l.keep(items[i])
			}
		}
	}
	return took
}

// flush gives back what is kept, when the limiter is closing.
func (l *Limiter) flush() {
	for {
		back := l.take(func(id string) bool { return l.redis.Server(id).Answers() })
		if len(back) == 0 || !l.giveBack(back) {
			return
		}
	}
}
