package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"syscall"
)

// portTries is how many ports are tried from the first on.
const portTries = 100

// listen opens addr, or when its port is taken the next one that is free, and says so.
// For localhost it opens both loopback addresses, since browsers try both.
func listen(addr string, out io.Writer) (ls []net.Listener, port int, err error) {
	host, number, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, 0, fmt.Errorf("addr is %q: must be host:port: %w", addr, err)
	}
	first, err := strconv.Atoi(number)
	if err != nil || first < 0 || first > 65535 {
		return nil, 0, fmt.Errorf("addr is %q: the port must be from 0 to 65535", addr)
	}
	for port = first; port < first+portTries && port <= 65535; port++ {
		ls, err = listenAt(host, port)
		switch {
		case err == nil:
			if port = ls[0].Addr().(*net.TCPAddr).Port; first != 0 && port != first {
				fmt.Fprintf(out, "Port %d is taken by another program; the page is at port %d instead.\n", first, port)
			}
			return ls, port, nil
		case !taken(err):
			return nil, 0, err
		}
	}
	return nil, 0, fmt.Errorf("addr is %q: no port from %d to %d is free: %w", addr, first, port-1, err)
}

func listenAt(host string, port int) ([]net.Listener, error) {
	if host != "localhost" {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		return []net.Listener{l}, err
	}
	four, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	six, err := net.Listen("tcp6", net.JoinHostPort("::1", strconv.Itoa(four.Addr().(*net.TCPAddr).Port)))
	switch {
	case err == nil:
		return []net.Listener{four, six}, nil
	case taken(err) && port != 0:
		return nil, errors.Join(err, four.Close())
	}
	return []net.Listener{four}, nil // there is no IPv6 here
}

// taken reports whether another program has the port.
func taken(err error) bool {
	const windows = syscall.Errno(10048) // WSAEADDRINUSE
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, windows)
}
