//go:build unix

package sim

import (
	"sync"
	"syscall"
	"time"
)

// sockets are two of the system: of the first the other end is open and has sent nothing, of
// the second it is closed.
var sockets = sync.OnceValues(func() (fds [2]uintptr, err error) {
	for i := range fds {
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		if err != nil {
			return fds, err
		}
		fds[i] = uintptr(pair[0])
		if i == 1 {
			_ = syscall.Close(pair[1]) // it has no data to lose
		}
	}
	return fds, nil
})

// SyscallConn lets go-redis see whether a connection that no caller uses was reset, as it checks
// the socket of a real one.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	fds, err := sockets()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.closed {
		return raw(fds[1]), nil
	}
	return raw(fds[0]), nil
}

// raw is a socket to check.
type raw uintptr

func (r raw) Control(f func(fd uintptr)) error { f(uintptr(r)); return nil }
func (r raw) Read(f func(fd uintptr) (done bool)) error {
	for !f(uintptr(r)) {
		time.Sleep(time.Microsecond)
	}
	return nil
}
func (raw) Write(func(fd uintptr) (done bool)) error { return syscall.ENOTSUP }
