package redisproc

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MasterName is the name by which the sentinels know the master.
const MasterName = "holdfast"

// Sentinel is a master with replicas, watched by sentinels. Its methods are
// safe for concurrent use.
type Sentinel struct {
	// Master and Replicas are what they were when all was started.
	Master    *Server
	Replicas  []*Server
	Sentinels []*Server
}

// StartSentinel runs a master, replicas and sentinels, and returns when the
// replicas follow and the sentinels know each other and the replicas.
func StartSentinel(replicas, sentinels int) (*Sentinel, error) {
	if replicas < 0 || sentinels < 1 {
		return nil, fmt.Errorf("redisproc: at least 0 replicas and 1 sentinel are needed, not %d and %d", replicas, sentinels)
	}
	s := &Sentinel{}
	if err := s.form(replicas, sentinels); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Sentinel) form(replicas, sentinels int) error {
	var err error
	fast := []string{"repl-diskless-sync-delay", "0"}
	if s.Master, err = Start(Options{Config: [][]string{fast}}); err != nil {
		return err
	}
	port := strconv.Itoa(s.Master.Port())
	for range replicas {
		r, err := Start(Options{Config: [][]string{fast, {"replicaof", "127.0.0.1", port}}})
		if err != nil {
			return err
		}
		s.Replicas = append(s.Replicas, r)
	}
	// A sentinel asks for a replica's state on meeting it, and then every 10 s:
	// one that was not following yet would stay unfit to be promoted for long.
	for _, r := range s.Replicas {
		if err := poll(settle, func() error { return linked(r) }); err != nil {
			return err
		}
	}
	for range sentinels {
		n, err := Start(Options{sentinel: []string{
			fmt.Sprintf("sentinel monitor %s 127.0.0.1 %s %d", MasterName, port, sentinels/2+1),
			"sentinel down-after-milliseconds " + MasterName + " 500",
			"sentinel failover-timeout " + MasterName + " 3000",
		}})
		if err != nil {
			return err
		}
		s.Sentinels = append(s.Sentinels, n)
	}
	want := fmt.Sprintf("status=ok,address=127.0.0.1:%s,slaves=%d,sentinels=%d", port, replicas, sentinels)
	for _, n := range s.Sentinels {
		err := poll(settle, func() error {
			info, err := text(n, "info", "sentinel")
			if err == nil && !strings.Contains(info, want) {
				err = fmt.Errorf("redisproc: sentinel %s does not say %q: %s", n.Addr(), want, info)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// servers returns master and replicas.
func (s *Sentinel) servers() []*Server {
	if s.Master == nil {
		return nil
	}
	return append([]*Server{s.Master}, s.Replicas...)
}

// Nodes returns every process: master, replicas, sentinels.
func (s *Sentinel) Nodes() []*Server { return append(s.servers(), s.Sentinels...) }

// Addrs returns the addresses of the sentinels.
func (s *Sentinel) Addrs() []string { return addrs(s.Sentinels) }

// Close ends every process, the sentinels first: they have nothing to repair.
func (s *Sentinel) Close() error {
	return closeAll(append(append([]*Server(nil), s.Sentinels...), s.servers()...))
}
