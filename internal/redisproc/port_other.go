//go:build !linux

package redisproc

import (
	"net"
	"strconv"
)

// hold is nothing here: two sockets can't share a port unless both know of it.
// The port was free when it was asked for; nothing keeps it free.
type hold struct{}

func holdPort(number int) (hold, error) {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(number)))
	if err != nil {
		return hold{}, err
	}
	return hold{}, l.Close()
}

func (hold) release() error { return nil }
