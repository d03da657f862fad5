// Package faultproxy is a TCP proxy that injects the faults of networks: it delays, drops,
// resets, cuts and slows traffic. Faults are switched at run time, and also apply to
// connections that are already open.
package faultproxy

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Proxy stands in front of one address. Make it with [New]. Its methods are safe
// for concurrent use.
type Proxy struct {
	target string
	ln     net.Listener
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	accepted atomic.Int64
	rules    rules // its lock also guards what follows
	closed   bool
	links    map[*link]struct{}
}

// Stats counts what has gone through a proxy.
type Stats struct {
	Accepted  int64 // connections
	Open      int   // of them, those that have not ended
	ToServer  int64 // bytes handed to the server
	ToClient  int64 // bytes handed to clients
	Swallowed int64 // bytes of both directions that were not delivered
}

// New starts a proxy on a free loopback port.
func New(target string) (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{
		target: target, ln: ln, ctx: ctx, cancel: cancel,
		rules: rules{changed: make(chan struct{})}, links: map[*link]struct{}{},
	}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Accepted returns how many connections have been accepted.
func (p *Proxy) Accepted() int { return int(p.accepted.Load()) }

// Stats returns the counts so far.
func (p *Proxy) Stats() Stats {
	p.rules.mu.RLock()
	defer p.rules.mu.RUnlock()
	return Stats{
		Accepted: p.accepted.Load(), Open: len(p.links), Swallowed: p.rules.swallowed.Load(),
		ToServer: p.rules.delivered[requests].Load(), ToClient: p.rules.delivered[replies].Load(),
	}
}

// Set changes what the proxy does. It holds for every byte that is not delivered
// when Set returns, those that wait for a former delay among them.
//
// A connection of which bytes were lost can't go on: its next reply would be
// taken for an earlier one. It is reset once its bytes would pass again, as by a
// peer that has forgotten it.
func (p *Proxy) Set(m Mode) {
	p.rules.mu.Lock()
	defer p.rules.mu.Unlock()
	if p.closed {
		return
	}
	p.rules.set(m)
	for l := range p.links {
		if l.lost[requests].Load() && !m.swallows(false) || l.lost[replies].Load() && !m.swallows(true) {
			l.reset()
		}
	}
}

// Pass ends every fault.
func (p *Proxy) Pass() { p.Set(Mode{}) }

// Reset breaks every open connection, as a server that crashes does. The mode
// stays.
func (p *Proxy) Reset() {
	p.rules.mu.Lock()
	defer p.rules.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
}

// Close ends the proxy and its connections, and waits until nothing is left.
func (p *Proxy) Close() {
	p.rules.mu.Lock()
	if !p.closed {
		p.closed = true
		p.cancel()
		_ = p.ln.Close()
		for l := range p.links {
			l.close()
		}
	}
	p.rules.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.accepted.Add(1)
		p.open(c.(*net.TCPConn))
	}
}

// open starts to serve a connection, unless it came too late.
func (p *Proxy) open(c *net.TCPConn) {
	p.rules.mu.Lock()
	defer p.rules.mu.Unlock()
	l := &link{client: c, done: make(chan struct{})}
	if p.closed || p.rules.mode.Refuse {
		l.reset()
		return
	}
	l.alone = p.rules.mode.BlackHole
	l.lost[requests].Store(l.alone)
	p.links[l] = struct{}{}
	p.wg.Go(func() { p.serve(l) })
}

func (p *Proxy) forget(l *link) {
	p.rules.mu.Lock()
	defer p.rules.mu.Unlock()
	delete(p.links, l)
}

// serve joins the two ends until both have nothing more to say.
func (p *Proxy) serve(l *link) {
	defer p.forget(l)
	defer l.close()
	if l.alone {
		_, _ = io.Copy(hole{&p.rules.swallowed}, l.client)
		return
	}
	var d net.Dialer
	c, err := d.DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		l.reset()
		return
	}
	server := c.(*net.TCPConn)
	if !l.join(server) {
		_ = server.Close()
		return
	}
	up, down := newPipe(&p.rules, l, requests, l.client, server), newPipe(&p.rules, l, replies, server, l.client)
	var all sync.WaitGroup
	all.Go(up.read)
	all.Go(up.write)
	all.Go(down.read)
	all.Go(down.write)
	all.Wait()
}
