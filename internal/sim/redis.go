package sim

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is one server by itself, for the tests of packages that use one: in a bubble of
// testing/synctest, where a round trip takes virtual time, and other processes, outages and clocks
// cost none. It keeps the library's keys and knows its scripts, as in a World.
type Redis struct {
	net *network
	srv *Server
}

// oneAddr is the address of a Redis.
const oneAddr = "10.0.0.1:6379"

// NewRedis returns an empty server, to be made in a bubble. It has no goroutine of its own.
func NewRedis() *Redis {
	n := newNetwork(1, 50*time.Microsecond)
	return &Redis{net: n, srv: newServer(n, newLedger(&Plan{}, nil, false), oneAddr, 1)}
}

// Test runs a test in a bubble, with a Redis of its own.
func Test(t *testing.T, test func(*testing.T, *Redis)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // connections that are being made end by their timeouts
		test(t, NewRedis())
	})
}

// Client returns the client of a process; opt says what is not about connections. It is the caller's
// to close.
func (r *Redis) Client(process string, opt redis.Options) *redis.Client {
	opt.Addr, opt.Protocol, opt.DisableIdentity = oneAddr, 2, true
	opt.Dialer = func(ctx context.Context, _, addr string) (net.Conn, error) { return r.net.dial(ctx, process, addr) }
	return redis.NewClient(&opt)
}

// Set changes what the server does with commands.
func (r *Redis) Set(change func(*Health)) { r.srv.set(change) }

// SetPath changes what the network does between a process and the server.
func (r *Redis) SetPath(process string, change func(*Path)) { r.net.set(process, oneAddr, change) }

// Crash ends all connections, and what they asked for.
func (r *Redis) Crash() { r.srv.crash() }

// Lose forgets the keys that have a part in them.
func (r *Redis) Lose(part string) {
	r.srv.lose(func(key string) bool { return strings.Contains(key, part) })
}

// Step moves the server's clock.
func (r *Redis) Step(d time.Duration) { r.srv.step(d) }

// Commands is how many were executed.
func (r *Redis) Commands() int {
	r.srv.mu.Lock()
	defer r.srv.mu.Unlock()
	return r.srv.commands
}

// Members are those of a sorted set, with their scores; nil of a key that is not there.
func (r *Redis) Members(key string) map[string]int64 {
	r.srv.mu.Lock()
	defer r.srv.mu.Unlock()
	v := r.srv.get(key)
	if v == nil {
		return nil
	}
	return v.clone().set
}
