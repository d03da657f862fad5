package sim

import (
	"context"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Path is what the network does between a process and a server.
type Path struct {
	// Refused ends connections, and rejects new ones.
	Refused bool
	// Lost delivers nothing in either direction, or nothing of what the server says.
	Lost, RepliesLost bool
	// Gone keeps it so until the end: the process has crashed.
	Gone bool
	// Delay is the time one way, beside the usual one; Jitter what is added at random.
	Delay, Jitter time.Duration
	// PerKiB is how long a kibibyte takes, both ways together; Free is when what is on its way has arrived.
	PerKiB time.Duration
	Free   time.Time

	name  uint64 // a number of its own
	dials uint64
}

// carry is how long so many bytes are on their way, behind those before them.
func (p *Path) carry(bytes int) time.Duration {
	if p.PerKiB == 0 {
		return 0
	}
	now := time.Now()
	if p.Free.Before(now) {
		p.Free = now
	}
	p.Free = p.Free.Add(time.Duration(bytes) * p.PerKiB / 1024)
	return p.Free.Sub(now)
}

// host is what a connection leads to.
type host interface {
	// listens reports whether connections to an address are accepted.
	listens(addr string) bool
	receive(c *conn, b []byte)
}

// network connects processes with servers.
type network struct {
	mu    sync.Mutex
	rng   *rand.Rand
	seed  uint64
	paths map[[2]string]*Path // by process and address
	conns map[*conn]struct{}  // the client's ends
	// servers by address.
	servers  map[string]host
	usual    time.Duration
	instants instants
}

func newNetwork(seed uint64, usual time.Duration) *network {
	return &network{rng: rand.New(rand.NewPCG(seed, 1)), seed: seed, paths: map[[2]string]*Path{}, conns: map[*conn]struct{}{}, servers: map[string]host{}, usual: usual, instants: instants{taken: map[int64]struct{}{}}}
}

// path is that between a process and an address. mu is held.
func (n *network) path(process, addr string) *Path {
	k := [2]string{process, addr}
	p := n.paths[k]
	if p == nil {
		h := fnv.New64a()
		_, _ = h.Write([]byte(process + addr))
		p = &Path{name: mix(h.Sum64(), n.seed)}
		n.paths[k] = p
	}
	return p
}

// set changes a path. What was under way on a path that was lost and is not any more
// arrives late, or the connection is reset.
func (n *network) set(process, addr string, change func(*Path)) {
	n.mu.Lock()
	p := n.path(process, addr)
	before := *p
	if !p.Gone {
		change(p)
	}
	after := *p
	var ends []*conn
	for c := range n.conns {
		if c.process == process && c.addr == addr {
			ends = append(ends, c)
		}
	}
	sortConns(ends)
	var resets, flushes []*conn
	for _, c := range ends {
		switch {
		case after.Refused && !before.Refused:
			resets = append(resets, c)
		case (before.Lost || before.RepliesLost) && !after.Lost && !after.RepliesLost:
			if n.rng.IntN(2) == 0 {
				resets = append(resets, c)
			} else {
				flushes = append(flushes, c)
			}
		}
	}
	n.mu.Unlock()
	n.reset(resets)
	for _, c := range flushes {
		c.flush()
		c.peer.flush()
	}
}

// reset ends connections, one after the other: those who wait for them dial again, each at a time of its own.
func (n *network) reset(ends []*conn) {
	for _, c := range ends {
		n.instants.after(0, c.reset)
	}
}

// mix makes a number of two that looks random (splitmix64).
func mix(a, b uint64) uint64 {
	x := a + b*0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// latency is that of one message, drawn by its number: which one asks first at one time is
// the scheduler's choice. mu is held.
func (n *network) latency(p *Path, number uint64) time.Duration {
	d := n.usual + p.Delay + time.Duration(number%uint64(n.usual/2+1))
	if p.Jitter > 0 {
		d += time.Duration(mix(number, 1) % uint64(p.Jitter))
	}
	return d
}

// dial connects a process with an address.
func (n *network) dial(ctx context.Context, process, addr string) (net.Conn, error) {
	n.mu.Lock()
	path := n.path(process, addr)
	path.dials++
	id := mix(path.name, path.dials)
	p, d := *path, n.latency(path, id)+n.latency(path, mix(id, 1))
	srv := n.servers[addr]
	n.mu.Unlock()
	if s, ok := srv.(*sentinel); ok {
		c := n.connect(process, addr, id, s)
		c.atOnce = true
		if p.Refused {
			s.reject(c)
		}
		return c, nil
	}
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	at := n.instants.take(time.Now().Add(d))
	defer n.instants.pass(at)
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	if p.Lost {
		timer.Stop() // never
	}
	select {
	case <-timer.C:
	case <-ctx.Done():
		time.Sleep(time.Duration(1 + id%uint64(n.usual))) // dials of one time do not go on at one time
		return fail(ctx.Err())
	}
	if p.Refused || srv == nil || !srv.listens(addr) {
		return fail(syscall.ECONNREFUSED)
	}
	return n.connect(process, addr, id, srv), nil
}

func (n *network) connect(process, addr string, id uint64, srv host) *conn {
	client, server := &conn{n: n, process: process, addr: addr, id: id}, &conn{n: n, process: process, addr: addr, id: mix(id, 2), server: srv}
	client.peer, server.peer = server, client
	client.init()
	server.init()
	n.mu.Lock()
	client.path = n.path(process, addr)
	server.path = client.path
	n.conns[client] = struct{}{}
	n.mu.Unlock()
	return client
}

// conn is one end of a connection. That of a server has no reader: the server is called
// with what arrives.
type conn struct {
	n             *network
	process, addr string
	path          *Path
	id, sent      uint64
	peer          *conn
	server        host

	mu       sync.Mutex
	arrived  sync.Cond
	buf      []byte
	held     [][]byte  // what the network keeps while it loses it
	last     time.Time // when the last message to this end arrives: they arrive in order
	err      error     // of reading, once buf is empty
	closed   bool
	deadline time.Time
	alarm    *time.Timer
	request  []byte // of a server: what has arrived of the next request
	asking   bool   // of a server: the last command was ASKING
	atOnce   bool   // what is written arrives at once
}

func (c *conn) init() { c.arrived.L = &c.mu }

// Read waits for what arrives.
func (c *conn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.buf) == 0 {
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case c.err != nil:
			return 0, c.err
		case !c.deadline.IsZero() && !time.Now().Before(c.deadline):
			return 0, &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
		}
		c.arrived.Wait()
	}
	n := copy(b, c.buf)
	c.buf = append(c.buf[:0], c.buf[n:]...) // mostly nothing is left
	return n, nil
}

// Write sends b, which arrives later, or never.
func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	closed, err := c.closed, c.err
	c.mu.Unlock()
	if closed {
		return 0, net.ErrClosed
	}
	if err == errRefused { //nolint:errorlint // it is not wrapped
		return 0, err
	}
	if err != nil && err != io.EOF { //nolint:errorlint // it is not wrapped
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
	}
	if c.atOnce {
		c.peer.arrive(b)
		return len(b), nil
	}
	c.send(append([]byte(nil), b...))
	return len(b), nil
}

// send lets b arrive at the other end.
func (c *conn) send(b []byte) {
	n := c.n
	n.mu.Lock()
	p := c.path
	lost := p.Lost || p.RepliesLost && c.server != nil
	c.sent++
	d := n.latency(p, mix(c.id, c.sent)) + p.carry(len(b))
	n.mu.Unlock()
	peer := c.peer
	peer.mu.Lock()
	if lost || len(peer.held) > 0 {
		peer.held = append(peer.held, b)
		peer.mu.Unlock()
		return
	}
	peer.last = n.instants.after(max(d, time.Until(peer.last)+1), func() { peer.arrive(b) })
	peer.mu.Unlock()
}

// flush delivers what the network has kept, as TCP does by sending it again.
func (c *conn) flush() {
	c.mu.Lock()
	held := c.held
	c.held = nil
	c.mu.Unlock()
	for _, b := range held {
		c.peer.send(b)
	}
}

// arrive takes what has arrived.
func (c *conn) arrive(b []byte) {
	c.n.mu.Lock()
	p := c.path
	lost := p.Lost || p.RepliesLost && c.server == nil
	c.n.mu.Unlock()
	c.mu.Lock()
	if lost {
		c.held = append(c.held, b)
		c.mu.Unlock()
		return
	}
	if c.server != nil {
		if c.err != nil { // reset
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		c.server.receive(c, b)
		return
	}
	if !c.closed && c.err == nil {
		c.buf = append(c.buf, b...)
		c.arrived.Broadcast()
	}
	c.mu.Unlock()
}

var errRefused = error(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED})

var errReset = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}

// reset ends the connection for both ends at once: it is reset, or closed in order, after
// which go-redis sends again what may be sent twice.
func (c *conn) reset() {
	why := error(errReset)
	if c.id%2 == 0 {
		why = io.EOF
	}
	for _, end := range []*conn{c, c.peer} {
		end.mu.Lock()
		if end.err == nil {
			end.err = why
		}
		end.held = nil
		end.arrived.Broadcast()
		end.mu.Unlock()
	}
	c.n.forget(c)
	c.n.forget(c.peer)
}

func (n *network) forget(c *conn) {
	n.mu.Lock()
	delete(n.conns, c)
	n.mu.Unlock()
	if s, ok := c.server.(*sentinel); ok {
		s.left(c)
	}
}

// Close is that of the client. What was written before still arrives.
func (c *conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return net.ErrClosed
	}
	c.closed = true
	if c.alarm != nil {
		c.alarm.Stop()
	}
	c.arrived.Broadcast()
	c.mu.Unlock()
	c.n.forget(c)
	if c.atOnce {
		c.n.forget(c.peer)
	}
	return nil
}

// SetDeadline sets that of reading. Writing never blocks.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline does nothing: writing never blocks.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// SetReadDeadline ends a Read at t.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	if !t.IsZero() { // those with one deadline end at times of their own
		c.deadline = t.Add(-time.Duration(c.id % 10_000))
	}
	switch left := time.Until(c.deadline); {
	case t.IsZero() || c.closed:
		if c.alarm != nil {
			c.alarm.Stop()
		}
	case c.alarm != nil:
		c.alarm.Reset(left)
	default:
		c.alarm = time.AfterFunc(left, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.arrived.Broadcast()
		})
	}
	return nil
}

// SyscallConn lets go-redis see whether a connection in its pool was reset, as it checks the
// sockets of real ones.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return socket{}, c.err
}

// socket is one in which nothing has arrived. It makes no call of the system, in which Go
// would let another goroutine go on.
type socket struct{}

func (socket) Control(func(fd uintptr)) error           { return nil }
func (socket) Read(func(fd uintptr) (done bool)) error  { return nil }
func (socket) Write(func(fd uintptr) (done bool)) error { return nil }

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// LocalAddr names the process.
func (c *conn) LocalAddr() net.Addr { return address(c.process) }

// RemoteAddr names the server.
func (c *conn) RemoteAddr() net.Addr { return address(c.addr) }

func sortConns(cs []*conn) {
	slices.SortFunc(cs, func(a, b *conn) int {
		switch {
		case a.id < b.id:
			return -1
		case a.id > b.id:
			return 1
		}
		return 0
	})
}
