package sim

import (
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

// permitsKey is the key of a semaphore in Redis.
func permitsKey(sem int, key string) string {
	return "permits" + strconv.Itoa(sem) + ":v1:permits:{" + key + "}"
}

// inFlight is who holds permits of a key of one semaphore.
type inFlight struct {
	held   map[*holding]struct{}
	stays  map[*stay]struct{}
	denied bool          // the last caller was
	since  time.Duration // when the last of them was released, or one was denied after that
}

// stay is a caller that may have a permit in Redis, or a place in the queue: it asks for one, or holds one,
// or did so until lately.
type stay struct {
	process int
	ends    time.Duration // 0 is not yet
}

// settles is how long after its caller has left a permit may still be one in Redis.
const settles = time.Second

// asksPermit notes a caller that may have a permit from now on.
func (l *ledger) asksPermit(process, sem int, key string) *stay {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &stay{process: process}
	l.semaphore(permitsKey(sem, key)).stays[s] = struct{}{}
	return s
}

// leaves notes that it has left: it has been denied, or has released its permit.
func (l *ledger) leaves(s *stay) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.ends == 0 {
		s.ends = l.now() + settles
	}
}

// occupied counts the callers beside one that may have a permit. mu is held.
func (l *ledger) occupied(of *inFlight, beside *stay) (n int) {
	for s := range of.stays {
		switch {
		case s.ends > 0 && s.ends < l.now():
			delete(of.stays, s)
		case s != beside:
			n++
		}
	}
	return n
}

// holding is a permit that is held.
type holding struct {
	process int
	local   bool
	permit  *semaphore.Permit
}

// longestTTL is the longest time to live of permits.
const longestTTL = 20 * time.Second

// calmAfter is how long after a fault the permits that were granted in it are gone, and
// those that are held are known to Redis.
const calmAfter = holdMost + 45*time.Second

// calm reports that no fault can still matter to permits. mu is held.
func (l *ledger) calm(now time.Duration) bool {
	for _, f := range l.plan.Faults {
		if now >= f.At && now <= f.At+f.For+calmAfter {
			return false
		}
	}
	return true
}

// acquired notes that a permit was acquired, and checks that there are not too many. It
// returns what to call before the permit is released.
func (l *ledger) acquired(process, sem int, key string, permit *semaphore.Permit) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := permitsKey(sem, key)
	of := l.semaphore(name)
	h := &holding{process, permit.Source == limiter.SourceLocal, permit}
	of.held[h] = struct{}{}
	of.denied = false
	l.note("process %d: a permit of semaphore %d, key %s by %v", process, sem, key, permit.Source)
	all, local := l.count(of)
	n, now := l.plan.Permits[sem].N, l.now()
	if l.calm(now) && !h.local {
		l.check(all-local <= n, "P4", "semaphore %d, key %s: %d permits are held, %d of them granted locally, of %d", sem, key, all, local, n)
	}
	losses := 0
	for _, at := range slices.Concat(l.stepped, l.emptied[name]) {
		losses += int(one(at > now-calmAfter))
	}
	// What was held when the outage began, the shares meanwhile, of which each is at least
	// one permit, and what Redis grants when the first have ended.
	most := (3+losses)*n + l.plan.Processes + len(l.plan.Joins)
	l.check(all <= most, "P5", "semaphore %d, key %s: %d permits are held of %d, the bound of an outage is %d", sem, key, all, n, most)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(of.held, h)
		of.since = l.now()
		l.note("process %d: releases a permit of semaphore %d, key %s", process, sem, key)
	}
}

// semaphore is who holds permits of a key in Redis. mu is held.
func (l *ledger) semaphore(name string) *inFlight {
	of := l.permits[name]
	if of == nil {
		of = &inFlight{held: map[*holding]struct{}{}, stays: map[*stay]struct{}{}}
		l.permits[name] = of
	}
	return of
}

// denied checks that a permit was denied to a caller for a reason.
func (l *ledger) denied(process, sem int, key string, permit *semaphore.Permit, s *stay) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note("process %d: no permit of semaphore %d, key %s by %v", process, sem, key, permit.Source)
	of := l.semaphore(permitsKey(sem, key))
	if permit.Source != limiter.SourceRedis {
		return
	}
	// What ended before the clock stepped back ends a time to live after it was counted.
	if !of.denied {
		of.denied, of.since = true, l.now()
	}
	free := len(of.held) == 0 && l.now() > of.since+l.plan.Permits[sem].TTL+time.Second && l.calm(l.now())
	l.check(!free, "permits", "process %d, semaphore %d, key %s: a permit was denied, and none has been held since %v", process, sem, key, of.since)
	if n := l.occupied(of, s); l.calm(l.now()) && len(l.stepped) == 0 { // else one that was lost may be there until it is counted
		l.check(n >= l.plan.Permits[sem].N, "permits", "process %d, semaphore %d, key %s: a permit was denied, and %d others may have one or wait for it, of %d", process, sem, key, n, l.plan.Permits[sem].N)
	}
}

// count counts the permits that are held and not known to be lost. mu is held.
func (l *ledger) count(of *inFlight) (all, local int) {
	for h := range of.held {
		select {
		case <-h.permit.Lost():
			continue
		default:
		}
		all++
		local += int(one(h.local))
	}
	return all, local
}

// crashed notes that a process holds nothing any more.
func (l *ledger) crashed(process int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.permits {
		for h := range of.held {
			if h.process == process {
				delete(of.held, h)
				of.since = l.now() + longestTTL
			}
		}
		for s := range of.stays {
			if s.process == process && s.ends == 0 {
				s.ends = l.now() + longestTTL + settles
			}
		}
	}
}
