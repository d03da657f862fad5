package sim

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"
)

// masterName is what the sentinels call the master.
const masterName = "master"

var sentinelAddrs = []string{"10.0.2.1:26379", "10.0.2.2:26379", "10.0.2.3:26379"}

// sentinel is one of those that watch a master. It answers at once, or rejects the connection, and never says nothing:
// go-redis holds locks while it asks sentinels, and in a bubble no time passes while a goroutine waits
// for a lock. Only its messages take their time.
type sentinel struct {
	net    *network
	ledger *ledger
	addr   string
	master *Server

	mu        sync.Mutex
	rng       *rand.Rand
	says      string  // where the master is, as it knows
	listeners []*conn // that want its messages, in the order in which they said so
}

// newSentinels makes those of a master. Each knows the others.
func newSentinels(n *network, l *ledger, master *Server, seed uint64) (all []*sentinel) {
	for i, addr := range sentinelAddrs {
		s := &sentinel{net: n, ledger: l, addr: addr, master: master, says: master.address(), rng: rand.New(rand.NewPCG(seed, 100+uint64(i)))}
		n.servers[addr] = s
		all = append(all, s)
	}
	return all
}

func (s *sentinel) listens(string) bool { return true }

// notice lets it know of a failover, after half a second or late at most. It tells those who listen, but
// one in four times the message is lost.
func (s *sentinel) notice(late time.Duration) {
	s.mu.Lock()
	after, lost := time.Duration(s.rng.Int64N(int64(max(late, 500*time.Millisecond)))), s.rng.IntN(4) == 0
	s.mu.Unlock()
	s.net.instants.after(after, func() {
		s.mu.Lock()
		before := s.says
		s.says = s.master.address()
		now, listeners := s.says, s.listeners
		s.mu.Unlock()
		if now == before {
			return
		}
		text := masterName + " " + strings.ReplaceAll(before+" "+now, ":", " ")
		for _, c := range listeners {
			if lost {
				s.ledger.redirected([]byte("-switch-lost"))
				continue
			}
			s.ledger.redirected([]byte("-switch"))
			s.net.mu.Lock()
			c.sent++
			d := s.net.latency(s.net.path(c.process, c.addr), mix(c.id, c.sent))
			s.net.mu.Unlock()
			s.net.instants.after(d, func() { c.peer.arrive(push("message", "+switch-master", bulk(text))) })
		}
	})
}

// reject ends a new connection: the first write fails, because go-redis waits before it dials again where that has
// failed.
func (s *sentinel) reject(c *conn) {
	c.mu.Lock()
	c.err = errRefused
	c.mu.Unlock()
	c.n.forget(c)
	s.ledger.redirected([]byte("-sentinel-rejects"))
}

// receive answers at once.
func (s *sentinel) receive(c *conn, b []byte) {
	c.request = append(c.request, b...)
	for {
		args, rest, ok := parse(c.request)
		if !ok {
			return
		}
		c.request = rest
		c.peer.arrive(s.execute(c, args))
	}
}

func (s *sentinel) execute(c *conn, args []string) (answer []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch command := strings.ToLower(args[0]); {
	case command == "hello":
		return described("proto", integer(3))
	case command == "ping":
		return []byte("+PONG\r\n")
	case command == "subscribe":
		for i, channel := range args[1:] {
			answer = append(answer, push(command, channel, integer(int64(i+1)))...)
		}
		s.listeners = append(s.listeners, c)
		return answer
	case command == "sentinel" && args[1] == "get-master-addr-by-name" && args[2] == masterName:
		if s.says != s.master.address() {
			s.ledger.redirected([]byte("-old-master"))
		}
		host, port, _ := net.SplitHostPort(s.says)
		return array([][]byte{bulk(host), bulk(port)})
	case command == "sentinel" && args[1] == "sentinels" && args[2] == masterName:
		var others [][]byte
		for _, addr := range sentinelAddrs {
			if host, port, _ := net.SplitHostPort(addr); addr != s.addr {
				others = append(others, described("ip", bulk(host), "port", bulk(port)))
			}
		}
		return array(others)
	}
	return failure("ERR unknown command '" + strings.Join(args, " ") + "'")
}

// left forgets a connection.
func (s *sentinel) left(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range s.listeners {
		if l == c {
			s.listeners = append(s.listeners[:i:i], s.listeners[i+1:]...)
			return
		}
	}
}

// described is a map of RESP3: names, each with a value.
func described(pairs ...any) []byte {
	b := fmt.Appendf(nil, "%%%d\r\n", len(pairs)/2)
	for _, item := range pairs {
		if name, ok := item.(string); ok {
			item = bulk(name)
		}
		b = append(b, item.([]byte)...)
	}
	return b
}

// push is a message of RESP3 that comes without a command.
func push(kind, channel string, what []byte) []byte {
	b := append([]byte(">3\r\n"), bulk(kind)...)
	return append(append(b, bulk(channel)...), what...)
}
