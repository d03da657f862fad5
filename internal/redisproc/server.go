// Package redisproc runs real redis-server processes on free loopback ports,
// each in a temporary folder of its own, and kills, freezes and restarts them. Tests,
// demonstrations and benchmarks use it. No server outlives its program: on Linux a server
// also ends when its parent is killed.
package redisproc

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var (
	errClosed     = errors.New("redisproc: server is closed")
	errNotRunning = errors.New("redisproc: server is not running")
)

// Server is one redis-server process. Make it with [Start]. Its methods may be
// called in any order and from several goroutines; those that change its state
// wait for each other, those that ask for it never wait.
type Server struct {
	path   string
	opts   Options
	guards bool // DEBUG and protected settings have to be enabled, in a directive that servers before 7.0 reject
	dir    string
	port   *port
	tls    *tls.Config

	proc atomic.Pointer[process] // the last one started
	logs atomic.Pointer[string]  // what is left of them when the folder is gone

	mu     sync.Mutex // serialises changes of state
	closed bool
}

// Start runs a server and returns when it answers.
func Start(opts Options) (*Server, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	path, err := Find()
	if err != nil {
		return nil, err
	}
	s := &Server{path: path, opts: opts, guards: AtLeast(7, 0)}
	if s.dir, err = os.MkdirTemp("", "holdfast-redis-"); err != nil {
		return nil, err
	}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	for attempt := 1; ; attempt++ {
		if s.port, err = reservePort(opts.cluster()); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		if err = s.Restart(); err == nil {
			return s, nil
		}
		// Where ports can't be held, one that was free may be taken by now.
		if attempt == 5 || !strings.Contains(s.Logs(), "Address already in use") {
			return nil, errors.Join(err, s.Close())
		}
		if err := s.port.release(); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
}

// prepare writes the files that a server keeps over restarts.
func (s *Server) prepare() error {
	if s.opts.TLS {
		if err := s.certify(); err != nil {
			return err
		}
	}
	if s.opts.sentinel == nil {
		return nil
	}
	return os.WriteFile(s.sentinelFile(), []byte(strings.Join(s.opts.sentinel, "\n")+"\n"), 0o600)
}

// Addr returns host and port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port())) }

// Port returns the port, which stays the same over restarts.
func (s *Server) Port() int { return s.port.number }

// PID returns the process id, or 0 while the server does not run.
func (s *Server) PID() int {
	if p := s.proc.Load(); p != nil && p.running() {
		return p.cmd.Process.Pid
	}
	return 0
}

// Running reports whether the process exists, frozen or not.
func (s *Server) Running() bool { return s.PID() != 0 }

func (s *Server) logFile() string      { return filepath.Join(s.dir, "redis.log") }
func (s *Server) sentinelFile() string { return filepath.Join(s.dir, "sentinel.conf") }

// Logs returns what the server has logged, over all restarts.
func (s *Server) Logs() string {
	if kept := s.logs.Load(); kept != nil {
		return *kept
	}
	b, _ := os.ReadFile(s.logFile())
	return string(b)
}

// Restart starts the server again on its port and in its folder, after killing
// it if it still runs, and returns when it answers. Data comes back only if
// Config made the server save it; a sentinel or a cluster node remembers what
// it knew of the others.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.kill()
	p, err := s.spawn()
	if err != nil {
		return err
	}
	s.proc.Store(p)
	if err := s.waitReady(p); err != nil {
		p.kill()
		return err
	}
	return nil
}

// Kill ends the server at once (SIGKILL) and returns when it is gone.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
	return nil
}

func (s *Server) kill() {
	if p := s.proc.Load(); p != nil {
		p.kill()
	}
}

// Terminate asks the server to shut down (SIGTERM) and waits until it has. One
// that takes longer than 15 s is killed, and that is an error.
func (s *Server) Terminate() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.proc.Load()
	if p == nil || !p.running() {
		return nil
	}
	if err := p.terminate(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if !p.endsWithin(15 * time.Second) {
		p.kill()
		return errors.New("redisproc: server did not shut down and was killed")
	}
	return nil
}

// Freeze stops the process without ending it (SIGSTOP): connections stay open
// and new ones are accepted by the kernel, but nothing is answered any more.
func (s *Server) Freeze() error { return s.change((*process).freeze) }

// Thaw lets a frozen process go on (SIGCONT).
func (s *Server) Thaw() error { return s.change((*process).thaw) }

func (s *Server) change(f func(*process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.proc.Load()
	if p == nil || !p.running() {
		return errNotRunning
	}
	return f(p)
}

// Close kills the server, frozen or not, gives its port back and removes its
// folder. Only the first call does anything.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.kill()
	logs := s.Logs()
	s.logs.Store(&logs)
	var errs []error
	if s.port != nil {
		errs = append(errs, s.port.release())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}
