package sim

import (
	"context"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// Shape is what servers there are, and what kind of client a process has.
type Shape int

// The shapes.
const (
	// Single is one server and a plain client.
	Single Shape = iota
	// Wrapped is Single with a client of a type that the library does not know.
	Wrapped
	// OneShard is a cluster of one server behind a plain client.
	OneShard
	// WrappedShard is OneShard with a client of a type that the library does not know.
	WrappedShard
	// Sentinel is a server with a replica, of which a process learns from three sentinels.
	Sentinel
	// Cluster is a cluster of three masters, of which each has a replica.
	Cluster
	// WrappedCluster is Cluster with a client of a type that the library does not know.
	WrappedCluster
	// Ring is three servers that know nothing of each other, among which the client divides the
	// keys. It never considers one of them down.
	Ring
	shapes
	// drawnShapes are those that drawShape draws. drawRing draws the others, so that the fleets of
	// most seeds stay what they were.
	drawnShapes = Ring
)

var shapeNames = [shapes]string{"one server", "one server, wrapped client", "one-shard cluster", "one-shard cluster, wrapped client", "sentinel", "cluster", "cluster, wrapped client", "ring"}

// String names it.
func (s Shape) String() string { return shapeNames[s] }

// servers is how many there are.
func (s Shape) servers() int {
	if s.isCluster() || s == Ring {
		return 3
	}
	return 1
}

// isCluster reports that keys are on several servers.
func (s Shape) isCluster() bool { return s == Cluster || s == WrappedCluster }

// replicated reports that each server has a replica.
func (s Shape) replicated() bool { return s.isCluster() || s == Sentinel }

// client makes that of a process. deadlines are those of contexts, which it then obeys.
func (s Shape) client(servers []*Server, deadlines bool, dial func(ctx context.Context, addr string) (net.Conn, error)) (rdb redis.UniversalClient) {
	dialer := func(ctx context.Context, _, addr string) (net.Conn, error) { return dial(ctx, addr) }
	switch {
	case s == Ring:
		rdb = newRing(servers, dialer, deadlines)
	case s.isCluster():
		// With routing policies the client holds a lock while it asks for COMMAND, and in a
		// bubble no time passes while a goroutine waits for a lock.
		rdb = redis.NewClusterClient(&redis.ClusterOptions{Addrs: addressesOf(servers), Protocol: 2, DisableIdentity: true, DisableRoutingPolicies: true, Dialer: dialer, ContextTimeoutEnabled: deadlines})
	case s == Sentinel:
		// It learns of the third sentinel from the others. It asks again without a pause where an answer was lost,
		// because it holds a lock meanwhile. Nothing of the library is asked again.
		rdb = redis.NewFailoverClient(&redis.FailoverOptions{MasterName: masterName, SentinelAddrs: sentinelAddrs[:2], Protocol: 2, DisableIdentity: true, Dialer: dialer, ContextTimeoutEnabled: deadlines, MinRetryBackoff: -1})
	default:
		rdb = redis.NewClient(&redis.Options{Addr: servers[0].address(), Protocol: 2, DisableIdentity: true, Dialer: dialer, ContextTimeoutEnabled: deadlines})
	}
	switch s {
	case Wrapped, WrappedShard, WrappedCluster:
		return struct{ redis.UniversalClient }{rdb}
	}
	return rdb
}

// newRing makes a ring.
func newRing(servers []*Server, dialer func(ctx context.Context, network, addr string) (net.Conn, error), deadlines bool) *redis.Ring {
	addrs := map[string]string{}
	for _, s := range servers {
		addrs[s.address()] = s.address()
	}
	return redis.NewRing(&redis.RingOptions{
		Addrs: addrs, Protocol: 2, DisableIdentity: true, Dialer: dialer, ContextTimeoutEnabled: deadlines,
		HeartbeatFrequency: time.Hour, HeartbeatFn: func(context.Context, *redis.Client) bool { return true },
	})
}

// addressesOf lists those of servers.
func addressesOf(servers []*Server) (all []string) {
	for _, s := range servers {
		all = append(all, s.addresses()...)
	}
	return all
}
