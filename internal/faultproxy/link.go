package faultproxy

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// The directions, as indices.
const (
	requests = iota
	replies
)

// link is a client's connection and the one to the server that belongs to it.
type link struct {
	p      *Proxy
	client *net.TCPConn
	alone  bool           // began in a black hole: there is no server for it
	lost   [2]atomic.Bool // whether bytes of a direction were swallowed

	mu     sync.Mutex
	server *net.TCPConn // nil until dialled
	ended  bool
	done   chan struct{} // closed when the link has ended
}

// serve joins the two ends until both have nothing more to say.
func (l *link) serve() {
	defer l.p.forget(l)
	defer l.close()
	if l.alone {
		_, _ = io.Copy(hole{l.p}, l.client)
		return
	}
	var d net.Dialer
	c, err := d.DialContext(l.p.ctx, "tcp", l.p.target)
	if err != nil {
		l.reset()
		return
	}
	server := c.(*net.TCPConn)
	if !l.join(server) {
		_ = server.Close()
		return
	}
	up, down := newPipe(l, requests, l.client, server), newPipe(l, replies, server, l.client)
	var all sync.WaitGroup
	all.Go(up.read)
	all.Go(up.write)
	all.Go(down.read)
	all.Go(down.write)
	all.Wait()
}

// hole is where the bytes of a link without a server go.
type hole struct{ p *Proxy }

func (h hole) Write(b []byte) (int, error) {
	h.p.swallowed.Add(int64(len(b)))
	return len(b), nil
}

// join is false if the link has ended while the server was dialled.
func (l *link) join(server *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.server = server
	}
	return !l.ended
}

// close ends both connections in order: what was delivered arrives.
func (l *link) close() { l.end(false) }

// reset ends both with a RST, which overtakes what the other side has not read.
func (l *link) reset() { l.end(true) }

func (l *link) end(rst bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	close(l.done)
	for _, c := range []*net.TCPConn{l.client, l.server} {
		if c == nil {
			continue
		}
		if rst {
			_ = c.SetLinger(0)
		}
		_ = c.Close()
	}
}
