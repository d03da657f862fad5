package redisproc

import (
	"os"
	"syscall"
)

// hold is a socket that is bound and never listens: connections to its port are refused
// and no other process gets it, but a server with SO_REUSEADDR, such as
// redis-server, can listen there again and again.
type hold int

// holdPort binds without SO_REUSEADDR: with it, a port that another process holds in the
// same way would seem free. Afterwards the socket gets it, so that the server may have it, too.
func holdPort(number int) (hold, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	err = os.NewSyscallError("bind", syscall.Bind(fd, &syscall.SockaddrInet4{Port: number, Addr: [4]byte{127, 0, 0, 1}}))
	if err == nil {
		err = os.NewSyscallError("setsockopt", syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	}
	if err != nil {
		_ = syscall.Close(fd)
		return 0, err
	}
	return hold(fd), nil
}

func (h hold) release() error { return os.NewSyscallError("close", syscall.Close(int(h))) }
