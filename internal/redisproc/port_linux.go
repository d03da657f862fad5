package redisproc

import (
	"os"
	"syscall"
)

// hold is a socket that is bound and never listens: connections to its port are refused
// and no other process gets it, but a server with SO_REUSEADDR, such as
// redis-server, can listen there again and again.
type hold int

// holdPort binds without SO_REUSEADDR by default: with it, a port
// that someone holds in the same way would seem free. A port that the caller
// chose is bound with it, or connections in TIME_WAIT would be an obstacle.
func holdPort(number int, reuse bool) (hold, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	share := func() error {
		return os.NewSyscallError("setsockopt", syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	}
	bind := func() error {
		return os.NewSyscallError("bind", syscall.Bind(fd, &syscall.SockaddrInet4{Port: number, Addr: [4]byte{127, 0, 0, 1}}))
	}
	steps := []func() error{bind, share}
	if reuse {
		steps = []func() error{share, bind}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			_ = syscall.Close(fd)
			return 0, err
		}
	}
	return hold(fd), nil
}

func (h hold) release() error { return os.NewSyscallError("close", syscall.Close(int(h))) }
