package sim

import (
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/internal/redislink"
)

// cluster says which of its servers has a hash slot.
type cluster struct {
	servers []*Server

	mu    sync.Mutex
	moved map[int]*Server // slots that are not where they were at first
	// migrating are slots that are on their way to a server.
	migrating map[int]*Server
}

func newCluster(servers []*Server) *cluster {
	c := &cluster{servers: servers, moved: map[int]*Server{}, migrating: map[int]*Server{}}
	for _, s := range servers {
		s.cluster = c
	}
	return c
}

// slotOf is the hash slot of a key.
func slotOf(key string) int {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if j := strings.IndexByte(key[i+1:], '}'); j > 0 {
			key = key[i+1 : i+1+j]
		}
	}
	return redislink.Slot(key)
}

// owner is the server of a slot, and where it migrates to. mu is held.
func (c *cluster) owner(slot int) (owner, target *Server) {
	if s := c.moved[slot]; s != nil {
		return s, c.migrating[slot]
	}
	return c.servers[slot*len(c.servers)/16384], c.migrating[slot]
}

// of is the server of a key.
func (c *cluster) of(key string) *Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, _ := c.owner(slotOf(key))
	return s
}

// elsewhere is what s answers to a command on keys that it does not have, nil where it has
// them. asking says that ASKING came before it. The mu of s is held.
func (c *cluster) elsewhere(s *Server, at string, asking bool, keys []string) []byte {
	if len(keys) == 0 {
		return nil
	}
	slot, has := slotOf(keys[0]), 0
	for _, k := range keys {
		if slotOf(k) != slot {
			return failure("CROSSSLOT Keys in request don't hash to the same slot")
		}
		has += int(one(s.get(k) != nil))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	owner, target := c.owner(slot)
	answer := func(word, addr string) []byte {
		return failure(word + " " + strconv.Itoa(slot) + " " + addr)
	}
	switch {
	case at != s.address(): // its replica's
		return answer("MOVED", s.address())
	case owner == s && target == nil:
		return nil
	case owner == s || target == s && asking:
		if has == len(keys) || target == s && len(keys) == 1 {
			return nil
		}
		if has > 0 || target == s {
			return failure("TRYAGAIN Multiple keys request during rehashing of slot")
		}
		return answer("ASK", target.address())
	}
	return answer("MOVED", owner.address())
}

// migrate begins to move a slot to a server.
func (c *cluster) migrate(slot int, to *Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if owner, target := c.owner(slot); owner != to && target == nil {
		c.migrating[slot] = to
	}
}

// move takes the keys of a slot that is says to where the slot migrates to.
func (c *cluster) move(slot int, is func(key string) bool) {
	c.mu.Lock()
	from, to := c.owner(slot)
	c.mu.Unlock()
	if to == nil {
		return
	}
	at := from.clock()
	if at != to.clock() {
		to.ledger.clockStepped()
	}
	for key, v := range from.take(func(key string) bool { return slotOf(key) == slot && is(key) }) {
		to.put(key, v, at)
	}
}

// moveRest ends the migration of a slot.
func (c *cluster) moveRest(slot int) {
	c.move(slot, func(string) bool { return true })
	c.mu.Lock()
	defer c.mu.Unlock()
	if to := c.migrating[slot]; to != nil {
		c.moved[slot] = to
		delete(c.migrating, slot)
	}
}

// slots is the reply to CLUSTER SLOTS.
func (c *cluster) slots() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ranges [][]byte
	for from := 0; from < 16384; {
		owner, _ := c.owner(from)
		to := from
		for to+1 < 16384 {
			if next, _ := c.owner(to + 1); next != owner {
				break
			}
			to++
		}
		nodes := [][]byte{integer(int64(from)), integer(int64(to))}
		for _, addr := range owner.addresses() {
			nodes = append(nodes, node(addr))
		}
		ranges = append(ranges, array(nodes))
		from = to + 1
	}
	return array(ranges)
}

// node describes a server of a cluster.
func node(addr string) []byte {
	host, port, _ := net.SplitHostPort(addr)
	return array([][]byte{bulk(host), integer(number(port)), bulk(addr)})
}

func bulk(s string) []byte { return []byte("$" + strconv.Itoa(len(s)) + "\r\n" + s + "\r\n") }

func array(items [][]byte) []byte {
	b := []byte("*" + strconv.Itoa(len(items)) + "\r\n")
	for _, item := range items {
		b = append(b, item...)
	}
	return b
}
