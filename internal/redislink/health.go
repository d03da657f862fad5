package redislink

import (
	"time"

	"github.com/holdfast-go/holdfast/breaker"
)

// ServerHealth is the state of a server. S is limiter.Source, by which decisions are
// counted: a limiter.ServerHealth has the same fields.
type ServerHealth[S ~uint8] struct {
	Name        string
	State       breaker.State
	Since       time.Time
	LastFailure breaker.Class
	RetryAt     time.Time
	Decisions   map[S]uint64
	Overloaded  uint64
}

// Health returns the state of the servers in use, and the decisions on all that were. A
// master that has left the cluster, or what stood for all of them until they were known, is
// not in use: no key is sent there any more, so its breaker would never change again.
func Health[S ~uint8](l *Link) (servers []ServerHealth[S], decisions map[S]uint64) {
	decisions = make(map[S]uint64)
	for _, srv := range l.Servers() {
		snap := srv.Breaker.Snapshot()
		h := ServerHealth[S]{srv.Name, snap.State, snap.Since, snap.LastFailure, snap.OpenUntil, make(map[S]uint64), srv.queue.overloaded.Load()}
		for i := range srv.Counts {
			if n := srv.Counts[i].Load(); n > 0 {
				h.Decisions[S(i)] = n
				decisions[S(i)] += n
			}
		}
		if l.slots == nil || l.slots.serves(srv.Addr) {
			servers = append(servers, h)
		}
	}
	return servers, decisions
}
