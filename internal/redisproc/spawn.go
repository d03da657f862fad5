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
	"time"
)

// spawn starts the process. It logs to its standard output, so that what it
// says before it has read its configuration is in the same file.
func (s *Server) spawn() (*process, error) {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(s.path, s.args()...)
	cmd.Stdout, cmd.Stderr = log, log
	return startProcess(cmd)
}

// args is the command line.
func (s *Server) args() []string {
	number := strconv.Itoa(s.Port())
	common := []string{"--bind", "127.0.0.1", "--dir", s.dir, "--daemonize", "no", "--protected-mode", "no", "--loglevel", "notice"}
	if s.opts.sentinel != nil {
		return append([]string{s.sentinelFile(), "--sentinel", "--port", number}, common...)
	}
	args := append(common, "--save", "", "--appendonly", "no")
	if s.guards {
		args = append(args, "--enable-debug-command", "yes", "--enable-protected-configs", "yes")
	}
	if s.tls == nil {
		args = append(args, "--port", number)
	} else {
		args = append(args, "--port", "0", "--tls-port", number, "--tls-auth-clients", "no",
			"--tls-cert-file", filepath.Join(s.dir, serverCert), "--tls-key-file", filepath.Join(s.dir, serverKey),
			"--tls-ca-cert-file", filepath.Join(s.dir, serverCert))
	}
	for _, c := range s.opts.Config {
		args = append(append(args, "--"+c[0]), c[1:]...)
	}
	return args
}

// waitReady asks until the server answers, with any reply but that it is
// loading: one that demands a password is up too.
func (s *Server) waitReady(p *process) error {
	err := poll(15*time.Second, func() error {
		reply, err := s.ping()
		switch {
		// Before the reply counts: it may be that of another server that has the
		// port, and because of which our process has ended.
		case !p.running():
			return permanent{fmt.Errorf("redisproc: redis-server ended at once: %s", lastLines(s.Logs(), 3))}
		case err != nil:
			return fmt.Errorf("redisproc: redis-server does not answer: %w", err)
		case strings.HasPrefix(reply, "-LOADING"):
			return fmt.Errorf("redisproc: redis-server is not ready: %s", reply)
		}
		return nil
	})
	return err
}

// ping is one PING on a connection of its own, without a client's retries.
func (s *Server) ping() (string, error) {
	c, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return "", err
	}
	if s.tls != nil {
		c = tls.Client(c, s.tls)
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

// permanent is an error that trying again does not heal.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// poll tries until it succeeds, the time is over, or there is no point.
func poll(limit time.Duration, try func() error) error {
	deadline := time.Now().Add(limit)
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := try()
		var final permanent
		switch {
		case err == nil:
			return nil
		case errors.As(err, &final):
			return final.error
		case time.Now().After(deadline):
			return err
		}
		time.Sleep(pause)
	}
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}
