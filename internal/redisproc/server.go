// Package redisproc runs real redis-server processes on free loopback ports,
// each in a temporary folder of its own, and does to them what production does:
// kills, freezes and restarts them. It serves tests, demonstrations and
// benchmarks, and leaves nothing behind.
package redisproc

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrNotFound says that there is no redis-server to run.
var ErrNotFound = errors.New("redis-server not found: install it, or name it in HOLDFAST_REDIS_SERVER")

// Find returns the path of redis-server: HOLDFAST_REDIS_SERVER if that is set,
// else what is on PATH.
func Find() (string, error) {
	name := os.Getenv("HOLDFAST_REDIS_SERVER")
	if name == "" {
		name = "redis-server"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w (%v)", ErrNotFound, err)
	}
	return path, nil
}

// Options of a server.
type Options struct {
	// Config is further directives, such as {"maxmemory", "2mb"}.
	Config [][]string
	// TLS makes the server speak TLS only, with a certificate of its own.
	TLS bool

	sentinel string // the configuration of a sentinel
}

// Server is one redis-server process. Its methods may be called in any order
// and from several goroutines.
type Server struct {
	path string
	opts Options
	dir  string
	port int
	tls  *tls.Config

	mu     sync.Mutex
	proc   *process
	closed bool
}

// Start runs a server and returns when it answers.
func Start(opts Options) (*Server, error) {
	path, err := Find()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "holdfast-redis-")
	if err != nil {
		return nil, err
	}
	s := &Server{path: path, opts: opts, dir: dir}
	if opts.TLS {
		if err := s.certify(); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	// A port that was free a moment ago may be taken by now.
	for range 5 {
		if s.port, err = freePort(); err != nil {
			break
		}
		if err = s.Restart(); err == nil {
			return s, nil
		}
	}
	return nil, errors.Join(err, s.Close())
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

// Addr returns host and port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Port returns the port, which stays the same over restarts.
func (s *Server) Port() int { return s.port }

// PID returns the process id, or 0 while the server does not run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.cmd.Process.Pid
}

// Running reports whether the process exists, frozen or not.
func (s *Server) Running() bool { return s.PID() != 0 }

func (s *Server) logFile() string { return filepath.Join(s.dir, "redis.log") }

// Logs returns what the server has logged.
func (s *Server) Logs() string {
	b, _ := os.ReadFile(s.logFile())
	return string(b)
}

// Restart starts the server again on its port, without the data it held, after
// ending it if it still runs.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("redisproc: server is closed")
	}
	s.end(syscall.SIGKILL)
	args, err := s.args()
	if err != nil {
		return err
	}
	proc, err := startProcess(exec.Command(s.path, args...))
	if err != nil {
		return err
	}
	s.proc = proc
	if err := s.waitReady(); err != nil {
		s.end(syscall.SIGKILL)
		return err
	}
	return nil
}

// args is the command line.
func (s *Server) args() ([]string, error) {
	port := strconv.Itoa(s.port)
	common := []string{"--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--logfile", s.logFile(), "--daemonize", "no", "--protected-mode", "no"}
	if s.opts.sentinel != "" {
		// A sentinel writes its configuration back.
		file := filepath.Join(s.dir, "sentinel.conf")
		if err := os.WriteFile(file, []byte(s.opts.sentinel+"\n"), 0o600); err != nil {
			return nil, err
		}
		return append([]string{file, "--sentinel"}, common...), nil
	}
	args := append(common, "--save", "", "--appendonly", "no", "--enable-debug-command", "yes", "--enable-protected-configs", "yes")
	if s.tls != nil {
		args = append(args, "--port", "0", "--tls-port", port, "--tls-auth-clients", "no",
			"--tls-cert-file", filepath.Join(s.dir, "tls.crt"), "--tls-key-file", filepath.Join(s.dir, "tls.key"), "--tls-ca-cert-file", filepath.Join(s.dir, "tls.crt"))
	}
	// In a file, since the command line takes a word such as -@all for an option.
	var conf strings.Builder
	for _, c := range s.opts.Config {
		for _, word := range c {
			if word == "" {
				word = `""`
			}
			conf.WriteString(word + " ")
		}
		conf.WriteString("\n")
	}
	file := filepath.Join(s.dir, "redis.conf")
	if err := os.WriteFile(file, []byte(conf.String()), 0o600); err != nil {
		return nil, err
	}
	return append([]string{file}, args...), nil
}

// waitReady asks until the server answers, with any reply but that it is
// loading: one that demands a password is up too.
func (s *Server) waitReady() error {
	deadline := time.After(15 * time.Second)
	for {
		reply, err := s.ping()
		if err == nil && !strings.HasPrefix(reply, "-LOADING") {
			return nil
		}
		select {
		case <-s.proc.exited:
			return fmt.Errorf("redisproc: redis-server ended at once: %s", lastLines(s.Logs(), 3))
		case <-deadline:
			return fmt.Errorf("redisproc: redis-server does not answer: %q %w", reply, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// ping is one PING on a connection of its own, without a client's retries.
func (s *Server) ping() (string, error) {
	c, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return "", err
	}
	if s.tls != nil {
		conf := s.tls.Clone()
		conf.ServerName = "127.0.0.1"
		c = tls.Client(c, conf)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return "", err
	}
	reply, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(reply), err
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}

// Kill ends the server at once (SIGKILL).
func (s *Server) Kill() error { return s.stop(syscall.SIGKILL) }

// Terminate asks the server to shut down (SIGTERM) and waits until it has.
func (s *Server) Terminate() error { return s.stop(syscall.SIGTERM) }

func (s *Server) stop(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(sig)
	return nil
}

// end ends the process if there is one. mu is held.
func (s *Server) end(sig syscall.Signal) {
	if s.proc == nil {
		return
	}
	_ = s.proc.signal(syscall.SIGCONT) // a frozen process does not see SIGTERM
	_ = s.proc.signal(sig)
	select {
	case <-s.proc.exited:
	case <-time.After(10 * time.Second):
		_ = s.proc.signal(syscall.SIGKILL)
		<-s.proc.exited
	}
	s.proc = nil
}

// Freeze stops the process without ending it (SIGSTOP): connections stay open
// and new ones are accepted by the kernel, but nothing is answered.
func (s *Server) Freeze() error { return s.send(syscall.SIGSTOP) }

// Thaw lets a frozen process go on (SIGCONT).
func (s *Server) Thaw() error { return s.send(syscall.SIGCONT) }

func (s *Server) send(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return errors.New("redisproc: server is not running")
	}
	return s.proc.signal(sig)
}

// Close ends the server and removes its folder.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.end(syscall.SIGKILL)
	return os.RemoveAll(s.dir)
}
