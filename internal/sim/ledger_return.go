package sim

import "time"

// returnsWithin is how long after a fault every process decides by Redis again: the longest time
// that a breaker is open, with its jitter, and that a process waits for the others of its fleet. Then
// no more decisions are local than can be made while a probe is on its way. A process that asks for
// nothing when its breaker would let it returns so much later, and the others with it.
const returnsWithin = 16 * time.Second

// openMost is the longest time that a breaker is open, with its jitter.
const openMost = 6 * time.Second

// returns notes a decision, and checks one that was local because a breaker is open. mu is held.
func (l *ledger) returns(of [3]int, refused bool) {
	server := -1
	if (l.plan.Shape == Cluster || l.plan.Shape == Ring) && l.plan.Limits[of[1]].Parts <= 1 {
		server = of[2] // a server that is gone takes no decisions from others
	}
	over, where := l.plan.calmSince(l.now(), server), [2]int{of[1], of[2]}
	if since, ok := l.asked[of]; (!ok || since != over) && l.now() >= over+openMost {
		l.asked[of], l.askedLast[where] = over, l.now()
	}
	calm := max(over, l.askedLast[where]-openMost) + returnsWithin
	if !refused || l.now() < calm {
		return
	}
	r := l.refused[of]
	if r == nil || r.since != calm {
		r = &waiting{since: calm}
		l.refused[of] = r
	}
	r.n++
	most := 4 * l.plan.Callers * l.plan.Shape.servers()
	l.check(r.n <= most, "return", "process %d, limiter %d, server %d: no fault since %v, and %d decisions were not sent to Redis since %v", of[0], of[1], of[2], over, r.n, calm)
}
