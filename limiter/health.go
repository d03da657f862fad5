package limiter

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

// Health is a limiter's state at one moment.
type Health struct {
	// Servers has one entry per Redis server that can fail on its own: the only
	// one, each master of a cluster, each node of a ring; sorted by name.
	Servers []ServerHealth
	// Share is the part of the limit that this process may use while Redis
	// cannot decide.
	Share float64
	// Processes is how many were alive when Redis was last asked, this one
	// included; 1 when that is not known, or the share is fixed.
	Processes int
	// Decisions counts those made since New, by source.
	Decisions map[Source]uint64
	// Reconciled counts the keys whose local use was charged in Redis after an
	// outage.
	Reconciled uint64
	// Owed is how many keys have local use that Redis is yet to be charged for.
	Owed int
	// LocalKeys is how many keys the in-process limiters remember.
	LocalKeys int
	// FunctionsError is why WithFunctions is not in effect, if it is not.
	FunctionsError error
}

// ServerHealth is the state of one Redis server as this limiter sees it.
type ServerHealth struct {
	// Name is the prefix, and in a cluster or ring the server's address.
	Name string
	// State of its circuit breaker.
	State breaker.State
	// Since is when it entered that state.
	Since time.Time
	// LastFailure is the class of the last error that counted, or ClassOK.
	LastFailure breaker.Class
	// RetryAt is when Redis is asked again while the breaker is open.
	RetryAt time.Time
	// Decisions counts those on its keys since New, by source.
	Decisions map[Source]uint64
}

// Health reports without asking Redis.
func (l *Limiter) Health() Health {
	h := l.health()
	h.Reconciled, h.Owed, h.LocalKeys = l.settled.Load(), l.local.Owed()+int(l.underway.Load()), l.local.Len()
	return h
}

// health is what every limiter knows of Redis.
func (l *link) health() Health {
	h := Health{
		Share:     l.currentShare(),
		Processes: int(l.peers.alive.Load()),
		Decisions: make(map[Source]uint64, numSources),
	}
	if l.functions {
		_, h.FunctionsError = l.redis.Functions()
	}
	for _, sh := range l.redis.Servers() {
		snap := sh.Breaker.Snapshot()
		own := decisionsOf(sh)
		h.Servers = append(h.Servers, ServerHealth{
			Name: sh.Name, State: snap.State, Since: snap.Since, LastFailure: snap.LastFailure, RetryAt: snap.OpenUntil, Decisions: own,
		})
		for s, n := range own {
			h.Decisions[s] += n
		}
	}
	slices.SortFunc(h.Servers, func(a, b ServerHealth) int { return cmp.Compare(a.Name, b.Name) })
	return h
}

// decisionsOf returns the counts by source.
func decisionsOf(srv *redislink.Server) map[Source]uint64 {
	m := make(map[Source]uint64, numSources)
	for i := range numSources {
		if n := srv.Counts[i].Load(); n > 0 {
			m[Source(i)] = n
		}
	}
	return m
}
