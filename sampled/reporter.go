package sampled

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/random"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

const (
	// staleReports is how many reports fail before Redis counts as unavailable.
	staleReports = 3
	// buriesPerReport is how many calls a process makes in a report to take the dead out of the sums.
	buriesPerReport = 20
	// reportsPerSecond is how many calls a second a fleet makes to report: a process of a large fleet
	// reports less often, at least every longestPause. Of this, the longest life follows that
	// scripts/sampled.lua allows.
	reportsPerSecond = 2500
	longestPause     = 200 * time.Second
)

// reporter reports the rates of this process to Redis, and learns those of the fleet.
type reporter struct {
	redis    *redislink.Link
	number   atomic.Int64  // of this process, until it changes in an outage
	interval time.Duration // between two reports of a small fleet
	calls    atomic.Int64  // that a report takes
	next     atomic.Int64  // when the next report of a large fleet is due
	reported atomic.Int64  // when the last one was, by the clock of redis
}

func newReporter(link *redislink.Link, interval time.Duration) *reporter {
	r := &reporter{redis: link, interval: interval}
	r.number.Store(newNumber())
	r.calls.Store(1)
	r.reported.Store(math.MinInt64 / 2)
	return r
}

// newNumber is one that no other process has.
func newNumber() int64 { return 1 + int64(random.Uint64()>>12) }

// pause is the time between two reports, the least and the most: so much that the fleet makes no more
// than reportsPerSecond calls, and that processes which report together do not stay together.
func (r *reporter) pause() (least, most time.Duration) {
	least = min(time.Duration(r.calls.Load())*r.redis.Pace(reportsPerSecond), longestPause)
	if least <= r.interval {
		return r.interval, r.interval
	}
	return least, least * 5 / 4
}

// due reports that a report is, at the end of an interval.
func (r *reporter) due() bool {
	least, _ := r.pause()
	return least == r.interval || r.redis.Now()+r.interval/2 >= time.Duration(r.next.Load())
}

// stale reports that the last reports, of which there should have been staleReports, have failed.
func (r *reporter) stale() bool {
	_, most := r.pause()
	return r.redis.Now()-time.Duration(r.reported.Load()) > staleReports*most
}

// report reports some rates of this process, and sets those of the fleet. One of the calls
// of a report also takes the dead out.
func (r *reporter) report(ctx context.Context, asked []lua.Asked, buries bool) bool {
	_, most := r.pause()
	cmd := &lua.Report{Names: r.redis.Names, Process: r.number.Load(), Life: (staleReports*most + time.Second).Microseconds(), Asked: asked}
	err := r.redis.Exec(ctx, lua.Sampled, cmd)
	if err == nil {
		r.reported.Store(int64(r.redis.Now()))
		r.redis.Counted(max(1, cmd.Alive))
	}
	least, most := r.pause()
	r.next.Store(int64(r.redis.Now() + least + random.Below(most-least+1)))
	if err == nil && buries && cmd.Dead > 0 {
		r.bury(cmd.Dead, false, buriesPerReport, func(cmd lua.Command) bool { return r.redis.Exec(ctx, lua.Sampled, cmd) == nil })
	}
	return err == nil
}

// leave takes this process out of the sums, in as many calls as that takes.
func (r *reporter) leave(send func(lua.Command) bool) {
	r.bury(r.number.Load(), true, math.MaxInt, send)
}

// bury takes a process out of the sums that leaves, or dead ones, in some calls; what is left is buried
// by others.
func (r *reporter) bury(process int64, leaves bool, calls int, send func(lua.Command) bool) {
	for range calls {
		b := &lua.Bury{Names: r.redis.Names, Process: process, Leaves: leaves}
		switch {
		case !send(b):
			return
		case b.More:
		case leaves || b.Dead == 0:
			return
		default:
			process = b.Dead
		}
	}
}
