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
}

// Health returns the state of the servers seen so far, and the decisions on all of them.
func Health[S ~uint8](l *Link) (servers []ServerHealth[S], decisions map[S]uint64) {
	decisions = make(map[S]uint64)
	for _, srv := range l.Servers() {
		snap := srv.Breaker.Snapshot()
		h := ServerHealth[S]{srv.Name, snap.State, snap.Since, snap.LastFailure, snap.OpenUntil, make(map[S]uint64)}
		for i := range srv.Counts {
			if n := srv.Counts[i].Load(); n > 0 {
				h.Decisions[S(i)] = n
				decisions[S(i)] += n
			}
		}
		servers = append(servers, h)
	}
	return servers, decisions
}
