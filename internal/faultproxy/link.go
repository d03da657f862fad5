package faultproxy

import (
	"net"
	"sync"
	"sync/atomic"
)

// link is a client's connection and the one to the server that belongs to it.
type link struct {
	client *net.TCPConn
	alone  bool           // began in a black hole: there is no server for it
	lost   [2]atomic.Bool // whether bytes of a direction were swallowed

	mu     sync.Mutex
	server *net.TCPConn // nil until dialled
	ended  bool
	done   chan struct{} // closed when the link has ended
}

// hole is where the bytes of a link without a server go.
type hole struct{ swallowed *atomic.Int64 }

func (h hole) Write(b []byte) (int, error) {
	h.swallowed.Add(int64(len(b)))
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
