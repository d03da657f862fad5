package limiter

import (
	"time"

	"github.com/holdfast-go/holdfast/breaker"
)

// Health is a limiter's state at one moment.
type Health struct {
	// Servers has one entry per Redis server that can fail on its own: the only
	// one, each master of a cluster, each node of a ring; sorted by name. In a
	// cluster one entry has no address until the masters are known: it stands for all.
	Servers []ServerHealth
	// Share is 1 divided by Processes, or what WithShare fixes. What this process may use
	// of a key while Redis cannot decide follows from it: see WithEqualShare.
	Share float64
	// ShareOrigin says where Share comes from: "assumed" by WithExpectedProcesses, while it is
	// not known how many processes there are; "learnt" from the heartbeat or WithPeerCount;
	// "fixed" by WithShare. It is empty of NewLocal.
	ShareOrigin string
	// Processes is how many share the limit as far as this process knows, itself included:
	// those that were alive when Redis was last asked, or what WithPeerCount says; until
	// then those that are expected. Where the share is fixed it is 1 divided by that, rounded.
	Processes int
	// Decisions counts those made since New, by source.
	Decisions map[Source]uint64
	// Reconciled counts the keys whose local use was charged in Redis after an
	// outage.
	Reconciled uint64
	// Owed is how many keys have local use that Redis has not been charged with yet.
	Owed int
	// LocalKeys is how many keys have a state in this process: those of NewLocal, of an outage and
	// those with a Block. Those of an outage go when they are fully reset and Redis decides again.
	LocalKeys int
	// FunctionsError is why WithFunctions is not in effect, if it is not.
	FunctionsError error
	// PeerCountError is why the last call of the function of WithPeerCount gave no number; nil if it
	// gave one, or was not called yet.
	PeerCountError error
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
	// Decisions counts those on its keys since New, by source. In a cluster those made before the masters
	// were known, or on one that has left, are counted in Health.Decisions only.
	Decisions map[Source]uint64
	// Overloaded counts the requests since New that were not sent because they waited for their turn
	// until their time was over, while the server answered others: this process asks for more than
	// the server, or the client's connections to it, can answer within the budget. It decided those
	// itself; what gives units back is counted, too.
	Overloaded uint64
}
