package sampled

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/topk"
)

// startTicking makes sure that there is a tick to come, at once when it is the first.
func (s *Limiter) startTicking() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil || s.redis.IsClosed() {
		return
	}
	if s.last.IsZero() {
		// How many there are is known sooner than what they are asked for.
		s.last = time.Now()
		s.redis.Background.Start(s.register)
	}
	s.timer = time.AfterFunc(s.interval, s.tick)
}

func (s *Limiter) life() time.Duration { return staleIntervals*s.interval + time.Second }

// tick ends an interval, in the background, and goes on while keys are followed.
func (s *Limiter) tick() {
	s.redis.Background.Start(func(ctx context.Context) {
		now := time.Now()
		s.mu.Lock()
		elapsed := now.Sub(s.last)
		s.last = now
		s.mu.Unlock()
		s.turn(ctx, elapsed)
		s.mu.Lock()
		s.timer = nil
		more := s.table.count.Load() > 0
		if !more {
			s.last = time.Time{}
		}
		s.mu.Unlock()
		if !more {
			s.leave(func(cmd lua.Command) bool { return s.redis.Exec(ctx, lua.Sampled, cmd) == nil })
			if s.table.count.Load() == 0 {
				return
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.timer == nil && !s.redis.IsClosed() {
			if s.last.IsZero() {
				s.last = now
			}
			s.timer = time.AfterFunc(max(s.interval/10, s.interval-time.Since(now)), s.tick)
		}
	})
}

// turn reports what was asked for, and plans the next interval.
func (s *Limiter) turn(ctx context.Context, elapsed time.Duration) {
	all := s.table.all()
	own := make(map[*sample]float64, len(all))
	scale := float64(s.interval) / float64(max(elapsed, s.interval/10))
	for _, k := range all {
		asked := k.asked.Swap(0)
		if k.idle++; asked > 0 {
			k.idle = 0
		}
		own[k] = float64(asked) * scale
		which := &s.counts[0]
		if k.local.Load() {
			which = &s.counts[1]
		}
		which.Add(uint64(asked))
	}
	kept, gone := s.choose(all, own, scale)
	rates := append(s.rates(kept, own), s.rates(gone, nil)...)
	// As many calls as it takes: each fits the budget. Those that fail cost the budget
	// until the breaker opens, so there are no more of them when the interval is over.
	start, failed := time.Now(), false
	for i := 0; i == 0 || i < len(rates); i += lua.MaxAsked {
		end := min(i+lua.MaxAsked, len(rates))
		ok := false
		if !failed || time.Since(start) < s.interval {
			ok = s.report(ctx, rates[i:end], i == 0)
			failed = failed || !ok
		}
		s.plan(kept[min(i, len(kept)):min(end, len(kept))], rates[i:end], own, ok)
	}
}

// plan begins the next interval of some keys; ok says that asked has the rates of the
// fleet.
func (s *Limiter) plan(keys []*sample, asked []lua.Asked, own map[*sample]float64, ok bool) {
	if !ok && s.redis.Now()-time.Duration(s.reported.Load()) > staleIntervals*s.interval {
		s.outage(keys, own)
		return
	}
	s.unanswered.Store(false)
	for i, k := range keys {
		switch {
		case ok:
			fleet := float64(asked[i].Fleet) / milli * s.seconds()
			k.begin(k.demand.next(own[k], fleet, s.units, int(s.fleet.Load())), false)
		case k.demand.known:
			// One report failed: what the fleet was asked for before has to do.
			k.begin(k.demand.next(own[k], k.demand.fleet, s.units, int(s.fleet.Load())), false)
		default:
			k.begin(alone(own[k], s.units, s.ownShare()), true)
		}
	}
}

// outage plans without Redis, by the policy.
func (s *Limiter) outage(all []*sample, own map[*sample]float64) {
	s.unanswered.Store(s.policy == fallback.Closed)
	for _, k := range all {
		k.demand = demand{}
		part := alone(own[k], s.units, s.ownShare())
		if s.policy == fallback.Open {
			part = plan{quota: math.MaxInt32, most: math.MaxInt32}
		}
		k.begin(part, true)
	}
}

// choose keeps the keys that are asked for most: those that are followed but for the
// idle ones, and candidates in the place of the least of them.
func (s *Limiter) choose(all []*sample, own map[*sample]float64, scale float64) (kept, gone []*sample) {
	for _, k := range all {
		if k.idle >= idleIntervals {
			gone = append(gone, k)
			s.drop(k)
		} else {
			kept = append(kept, k)
		}
	}
	if s.candidates.Load().Len() == 0 {
		return kept, gone
	}
	found, _ := s.candidates.Swap(s.newCandidates()).Items()
	slices.SortFunc(kept, func(a, b *sample) int { return cmp.Compare(own[b], own[a]) })
	slices.SortFunc(found, func(a, b topk.Item[struct{}]) int { return cmp.Compare(b.Count, a.Count) })
	for _, c := range found {
		rate := float64(c.Count) * candidateEvery * scale
		if s.table.count.Load() >= s.table.max {
			last := len(kept) - 1
			if last < 0 || rate < 2*own[kept[last]] {
				break
			}
			gone = append(gone, kept[last])
			s.drop(kept[last])
			kept = kept[:last]
		}
		k, made := s.table.add(c.Key, c.Hash, s.prepare)
		if made {
			own[k] = rate
			kept = slices.Insert(kept, 0, k)
		}
	}
	return kept, gone
}

// rates is what keys were asked for, to be reported; without own they are taken out.
func (s *Limiter) rates(keys []*sample, own map[*sample]float64) []lua.Asked {
	asked := make([]lua.Asked, len(keys))
	for i, k := range keys {
		asked[i] = lua.Asked{ID: k.id, Rate: int64(min(math.Round(own[k]/s.seconds()*milli), 1<<40))}
	}
	return asked
}

func (s *Limiter) seconds() float64 { return s.interval.Seconds() }

// report tells Redis some rates of this process, and sets those of the fleet. One of the
// reports of an interval also takes the dead out.
func (s *Limiter) report(ctx context.Context, asked []lua.Asked, buries bool) bool {
	r := &lua.Report{Names: s.redis.Names, Process: s.number, Life: s.life().Microseconds(), Asked: asked}
	if s.redis.Exec(ctx, lua.Sampled, r) != nil {
		return false
	}
	s.reported.Store(int64(s.redis.Now()))
	s.fleet.Store(max(1, r.Alive))
	if buries && r.Dead > 0 {
		s.bury(r.Dead, s.life(), buriesPerInterval, func(cmd lua.Command) bool { return s.redis.Exec(ctx, lua.Sampled, cmd) == nil })
	}
	return true
}

// leave takes this process out of the sums, in as many calls as that takes.
func (s *Limiter) leave(send func(lua.Command) bool) { s.bury(s.number, 0, math.MaxInt, send) }

// bury takes a process out of the sums, in some calls; what is left is buried by others.
func (s *Limiter) bury(process int64, life time.Duration, calls int, send func(lua.Command) bool) {
	for range calls {
		b := &lua.Bury{Names: s.redis.Names, Process: process, Life: life.Microseconds()}
		if !send(b) || !b.More {
			return
		}
	}
}

// register tells Redis that this process is there, and gives what it follows already its
// share among those that are.
func (s *Limiter) register(ctx context.Context) {
	before := s.ownShare()
	if !s.report(ctx, nil, true) {
		return
	}
	for _, k := range s.table.all() {
		k.left.Add(int64(first(s.units, s.ownShare())) - int64(first(s.units, before)))
	}
}
