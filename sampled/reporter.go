package sampled

import (
	"context"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

// buriesPerInterval is how many calls a process makes in an interval to take a dead one
// out of the sums.
const buriesPerInterval = 20

// reporter reports the rates of this process to Redis, and learns those of the fleet.
type reporter struct {
	redis  *redislink.Link
	number int64 // of this process
	// life is for how long a process counts that does not report.
	life     time.Duration
	reported atomic.Int64 // when that was, by the clock of redis
}

func newReporter(link *redislink.Link, life time.Duration) *reporter {
	r := &reporter{redis: link, number: 1 + rand.Int64N(1<<52), life: life}
	r.reported.Store(math.MinInt64 / 2)
	return r
}

// stale reports that the last report was before a time ago.
func (r *reporter) stale(ago time.Duration) bool {
	return r.redis.Now()-time.Duration(r.reported.Load()) > ago
}

// report reports some rates of this process, and sets those of the fleet. One of the
// reports of an interval also takes the dead out.
func (r *reporter) report(ctx context.Context, asked []lua.Asked, buries bool) bool {
	cmd := &lua.Report{Names: r.redis.Names, Process: r.number, Life: r.life.Microseconds(), Asked: asked}
	if r.redis.Exec(ctx, lua.Sampled, cmd) != nil {
		return false
	}
	r.reported.Store(int64(r.redis.Now()))
	r.redis.Counted(max(1, cmd.Alive))
	if buries && cmd.Dead > 0 {
		r.bury(cmd.Dead, r.life, buriesPerInterval, func(cmd lua.Command) bool { return r.redis.Exec(ctx, lua.Sampled, cmd) == nil })
	}
	return true
}

// leave takes this process out of the sums, in as many calls as that takes.
func (r *reporter) leave(send func(lua.Command) bool) { r.bury(r.number, 0, math.MaxInt, send) }

// bury takes a process out of the sums, in some calls; what is left is buried by others.
func (r *reporter) bury(process int64, life time.Duration, calls int, send func(lua.Command) bool) {
	for range calls {
		b := &lua.Bury{Names: r.redis.Names, Process: process, Life: life.Microseconds()}
		if !send(b) || !b.More {
			return
		}
	}
}
