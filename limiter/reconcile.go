package limiter

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

const (
	// reconcileSpread is the time over which processes that saw the same
	// outage begin to settle: long enough not to arrive together, short enough
	// that little is granted twice meanwhile.
	reconcileSpread = 50 * time.Millisecond
	// reconcileBatch is how many keys one script settles.
	reconcileBatch  = 64
	reconcileBudget = time.Second
	// reconcileEvery keeps the debts to a master that stays away from being
	// looked through at every decision of the others.
	reconcileEvery = 250 * time.Millisecond
)

// reconcile charges in Redis what was admitted here while Redis could not be
// asked: an outage refunds nothing. Each debt is sent at most once, so what is
// lost with a reply is forgotten rather than charged twice.
func (l *Limiter) reconcile(ctx context.Context) {
	defer l.reconciling.Store(false)
	if sleep(ctx, rand.N(reconcileSpread), nil) != nil {
		return
	}
	l.giveBack(l.credits.take(l.answers))
	debts := l.local.TakeDebts(func(id string) bool { return l.answers(lua.EncodeID(id)) })
	groups := map[algo.Kind][]lua.Item{}
	for _, d := range debts {
		groups[d.Limit.Kind] = append(groups[d.Limit.Kind], l.debit(d))
	}
	// In a cluster or a ring one script may touch one slot only.
	batch := reconcileBatch
	if _, single := l.rdb.(*redis.Client); !single {
		batch = 1
	}
	ctx, cancel := context.WithTimeout(ctx, reconcileBudget)
	defer cancel()
	for _, items := range groups {
		for len(items) > 0 && ctx.Err() == nil {
			n := min(batch, len(items))
			if _, _, err := l.lua.Decide(ctx, 0, l.nonce.next(nil), items[:n], nil); err == nil {
				l.settled.Add(uint64(n))
			}
			items = items[n:]
		}
	}
}

func (l *Limiter) debit(d fallback.Debt) lua.Item {
	return lua.Item{Keys: l.names.Keys(d.Limit.Kind, d.ID), Params: lua.NewArgs(d.Limit), Cost: -d.Units}
}

// afterRedis does what rides on a decision that Redis has made: remember the
// answer, and start what is due in the background.
func (l *Limiter) afterRedis(s *spec, key string, d algo.Decision, now time.Time) {
	if l.policy == fallback.Local {
		l.local.Observe(key, s.args.Params, d)
		l.beatIfDue(now)
	}
	if (l.local.Owed() > 0 || l.credits.count.Load() > 0) && l.settling.due(now, reconcileEvery) && l.reconciling.CompareAndSwap(false, true) {
		if !l.background.start(l.reconcile) {
			l.reconciling.Store(false)
		}
	}
}

// answers reports whether the server of an id does.
func (l *link) answers(id string) bool { return l.shards.forID(id).breaker.State() == breaker.Closed }
