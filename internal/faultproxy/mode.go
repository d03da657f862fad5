package faultproxy

import "time"

// Mode is what the proxy does. The zero value passes everything on.
//
// A delay of an hour holds everything back without losing it: the next Set lets
// it go, like a network that retransmits once it is whole again. BlackHole and
// HalfOpen lose what they swallow.
type Mode struct {
	// Delay holds each chunk of a request back, ReplyDelay each of a reply.
	// They add latency and leave the bandwidth as it is.
	Delay, ReplyDelay time.Duration
	// BlackHole swallows what both sides send. Connections are accepted, and
	// none is made to the server.
	BlackHole bool
	// HalfOpen passes requests on and swallows the replies: the server does
	// what it was asked, and its replies are lost.
	HalfOpen bool
	// Refuse resets connections as soon as they are accepted. Open ones go on,
	// unless Reset ends them.
	Refuse bool
	// CutAfter ends each connection after that many bytes of replies, if not 0,
	// counted from the Set or from the connection's begin.
	CutAfter int
	// BytesPerSecond bounds the speed of each direction, for all connections
	// together, if not 0.
	BytesPerSecond int
}

// swallows reports whether bytes of that direction get lost.
func (m Mode) swallows(replies bool) bool { return m.BlackHole || replies && m.HalfOpen }

func (m Mode) delay(replies bool) time.Duration {
	if replies {
		return m.ReplyDelay
	}
	return m.Delay
}

// piece is how much is sent at once at the mode's speed: some 20 ms' worth, so
// that a slow reply trickles instead of coming late in one go.
func (m Mode) piece() int { return max(1, m.BytesPerSecond/50) }

func (m Mode) cost(n int) time.Duration {
	return time.Duration(n) * time.Second / time.Duration(m.BytesPerSecond)
}

// The directions, as indices.
const (
	requests = iota
	replies
)
