// Package faultproxy is a TCP proxy that does to connections what networks do:
// delays, swallows, resets, cuts and slows them, switched at run time and for
// connections that are open already.
package faultproxy

import (
	"io"
	"net"
	"sync"
	"time"
)

// Mode is what the proxy does. The zero value passes everything on.
type Mode struct {
	// Delay holds each chunk of a request back, ReplyDelay each of a reply.
	// They add latency and leave the bandwidth as it is.
	Delay, ReplyDelay time.Duration
	// BlackHole swallows requests, and connections to the server are not made.
	BlackHole bool
	// HalfOpen passes requests on and swallows the replies: the server does
	// what it was asked, and nobody hears of it.
	HalfOpen bool
	// Refuse resets connections as soon as they are accepted.
	Refuse bool
	// CutAfter resets a connection after that many bytes of replies, if not 0.
	CutAfter int
	// BytesPerSecond bounds the speed of replies, if not 0.
	BytesPerSecond int
}

// Proxy stands in front of one address. Its methods are safe for concurrent use.
type Proxy struct {
	target string
	ln     net.Listener
	wg     sync.WaitGroup

	mu       sync.Mutex
	mode     Mode
	changed  chan struct{} // closed when the mode changes
	closed   bool
	conns    map[net.Conn]struct{}
	accepted int
}

// New starts a proxy on a free loopback port.
func New(target string) (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, ln: ln, changed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Accepted returns how many connections have been accepted.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Set changes what the proxy does, from the next chunk of every connection on.
func (p *Proxy) Set(m Mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	close(p.changed)
	p.changed = make(chan struct{})
}

// Pass ends every fault.
func (p *Proxy) Pass() { p.Set(Mode{}) }

// Reset breaks every open connection, as a server that crashes does.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		reset(c)
	}
}

// Close ends the proxy and its connections, and waits until nothing is left.
func (p *Proxy) Close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		_ = p.ln.Close()
		close(p.changed)
		p.changed = make(chan struct{})
		for c := range p.conns {
			_ = c.Close()
		}
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) now() (Mode, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode, p.changed
}

// track keeps a connection for Reset and Close. It is false when the proxy is
// closed.
func (p *Proxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.Close()
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

func (p *Proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.accepted++
		p.mu.Unlock()
		if !p.track(c) {
			return
		}
		p.wg.Go(func() { p.serve(c) })
	}
}

// serve joins a client with a connection of its own to the server.
func (p *Proxy) serve(client net.Conn) {
	defer p.drop(client)
	if m, _ := p.now(); m.Refuse {
		reset(client)
		return
	}
	if !p.waitWhile(func(m Mode) bool { return m.BlackHole }) {
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		reset(client)
		return
	}
	if !p.track(server) {
		return
	}
	defer p.drop(server)
	var both sync.WaitGroup
	both.Go(func() { p.copy(server, client, false) })
	both.Go(func() { p.copy(client, server, true) })
	both.Wait()
}

// waitWhile waits until the condition is over, and is false when the proxy was
// closed meanwhile.
func (p *Proxy) waitWhile(cond func(Mode) bool) bool {
	for {
		p.mu.Lock()
		m, changed, closed := p.mode, p.changed, p.closed
		p.mu.Unlock()
		if closed {
			return false
		}
		if !cond(m) {
			return true
		}
		<-changed
	}
}

type chunk struct {
	data []byte
	due  time.Time
}

// copy moves chunks from one end to the other in order, each when it is due:
// reading goes on while earlier chunks wait.
func (p *Proxy) copy(to, from net.Conn, replies bool) {
	queue := make(chan chunk, 1024)
	var writer sync.WaitGroup
	writer.Go(func() { p.write(to, queue, replies) })
	for {
		buf := make([]byte, 16<<10)
		n, err := from.Read(buf)
		if n > 0 {
			m, _ := p.now()
			d := m.Delay
			if replies {
				d = m.ReplyDelay
			}
			queue <- chunk{buf[:n], time.Now().Add(d)}
		}
		if err != nil {
			break
		}
	}
	close(queue)
	writer.Wait()
	// An end that is gone takes the other one along.
	_ = from.Close()
	_ = to.Close()
}

func (p *Proxy) write(to io.WriteCloser, queue <-chan chunk, replies bool) {
	sent := 0
	for c := range queue {
		if !p.sleep(time.Until(c.due)) {
			continue
		}
		m, _ := p.now()
		switch {
		case m.BlackHole, replies && m.HalfOpen:
			continue
		case replies && m.CutAfter > 0 && sent+len(c.data) >= m.CutAfter:
			_, _ = to.Write(c.data[:max(0, m.CutAfter-sent)])
			reset(to.(net.Conn))
			continue
		case replies && m.BytesPerSecond > 0:
			p.sleep(time.Duration(len(c.data)) * time.Second / time.Duration(m.BytesPerSecond))
		}
		n, err := to.Write(c.data)
		sent += n
		if err != nil {
			_ = to.Close()
		}
	}
}

// sleep is false when the proxy was closed meanwhile.
func (p *Proxy) sleep(d time.Duration) bool {
	timer := time.NewTimer(max(0, d))
	defer timer.Stop()
	for {
		p.mu.Lock()
		changed, closed := p.changed, p.closed
		p.mu.Unlock()
		if closed {
			return false
		}
		select {
		case <-timer.C:
			return true
		case <-changed:
		}
	}
}
