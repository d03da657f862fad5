package redisproc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Cluster is a Redis Cluster on loopback.
type Cluster struct {
	// Masters were masters when the cluster was formed; Replicas[i] follow
	// Masters[i].
	Masters  []*Server
	Replicas [][]*Server
}

// StartCluster runs masters with replicas each and returns when all agree that
// the cluster serves.
func StartCluster(masters, replicas int, config ...[]string) (*Cluster, error) {
	c := &Cluster{}
	if err := c.form(masters, replicas, config); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) form(masters, replicas int, config [][]string) error {
	opts := Options{Config: append([][]string{
		{"cluster-enabled", "yes"}, {"cluster-node-timeout", "1000"}, {"cluster-require-full-coverage", "no"},
		{"cluster-replica-validity-factor", "0"}, {"repl-diskless-sync-delay", "0"},
	}, config...)}
	for range masters {
		s, err := Start(opts)
		if err != nil {
			return err
		}
		c.Masters = append(c.Masters, s)
		c.Replicas = append(c.Replicas, nil)
		for range replicas {
			r, err := Start(opts)
			if err != nil {
				return err
			}
			i := len(c.Masters) - 1
			c.Replicas[i] = append(c.Replicas[i], r)
		}
	}
	first := c.Masters[0]
	for _, s := range c.Nodes()[1:] {
		if err := do(s, "cluster", "meet", "127.0.0.1", first.Port()); err != nil {
			return err
		}
	}
	for i, s := range c.Masters {
		from, to := 16384*i/masters, 16384*(i+1)/masters-1
		if err := do(s, "cluster", "addslotsrange", from, to); err != nil {
			return err
		}
	}
	for i, s := range c.Masters {
		id, err := text(s, "cluster", "myid")
		if err != nil {
			return err
		}
		for _, r := range c.Replicas[i] {
			// The replica must have heard of its master first.
			if err := poll(20*time.Second, func() error { return do(r, "cluster", "replicate", id) }); err != nil {
				return err
			}
		}
	}
	return c.WaitOK()
}

// WaitOK waits until every node that runs says that the cluster serves, and
// knows all that run.
func (c *Cluster) WaitOK() error {
	var running []*Server
	for _, s := range c.Nodes() {
		if s.Running() {
			running = append(running, s)
		}
	}
	for _, s := range running {
		err := poll(30*time.Second, func() error {
			info, err := text(s, "cluster", "info")
			if err != nil {
				return err
			}
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_slots_ok:16384") {
				return fmt.Errorf("redisproc: cluster at %s does not serve: %s", s.Addr(), info)
			}
			repl, err := text(s, "info", "replication")
			if err == nil && strings.Contains(repl, "master_link_status:down") {
				return fmt.Errorf("redisproc: replica %s has no link", s.Addr())
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Nodes returns masters and replicas.
func (c *Cluster) Nodes() []*Server {
	var all []*Server
	all = append(all, c.Masters...)
	for _, r := range c.Replicas {
		all = append(all, r...)
	}
	return all
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, s := range c.Nodes() {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// MigrateSlot moves a slot with its keys from one master to another.
func (c *Cluster) MigrateSlot(slot int, from, to *Server) error {
	fromID, err := text(from, "cluster", "myid")
	if err != nil {
		return err
	}
	toID, err := text(to, "cluster", "myid")
	if err != nil {
		return err
	}
	if err := do(to, "cluster", "setslot", slot, "importing", fromID); err != nil {
		return err
	}
	if err := do(from, "cluster", "setslot", slot, "migrating", toID); err != nil {
		return err
	}
	for {
		client := admin(from)
		keys, err := client.ClusterGetKeysInSlot(context.Background(), slot, 10).Result()
		_ = client.Close()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			if err := do(from, "migrate", "127.0.0.1", to.Port(), key, 0, 5000); err != nil && !strings.Contains(err.Error(), "NOKEY") {
				return err
			}
		}
	}
	for _, s := range []*Server{to, from} {
		if err := do(s, "cluster", "setslot", slot, "node", toID); err != nil {
			return err
		}
	}
	return nil
}

// Close ends every node.
func (c *Cluster) Close() error { return closeAll(c.Nodes()) }

func closeAll(servers []*Server) error {
	var errs []error
	for _, s := range servers {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

func admin(s *Server) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, DialerRetries: 1, PoolSize: 1})
}

func do(s *Server, args ...any) error {
	c := admin(s)
	defer c.Close()
	return c.Do(context.Background(), args...).Err()
}

func text(s *Server, args ...any) (string, error) {
	c := admin(s)
	defer c.Close()
	return c.Do(context.Background(), args...).Text()
}

// poll tries until it succeeds or the time is over.
func poll(limit time.Duration, try func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Sentinel is a master with replicas, watched by sentinels.
type Sentinel struct {
	Master    *Server
	Replicas  []*Server
	Sentinels []*Server
}

// MasterName is the name by which the sentinels know the master.
const MasterName = "holdfast"

// StartSentinel runs a master, replicas and sentinels, and returns when the
// sentinels know each other and the replicas.
func StartSentinel(replicas, sentinels int) (*Sentinel, error) {
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
	quorum := strconv.Itoa(sentinels/2 + 1)
	for range sentinels {
		n, err := Start(Options{sentinel: strings.Join([]string{
			"sentinel monitor " + MasterName + " 127.0.0.1 " + port + " " + quorum,
			"sentinel down-after-milliseconds " + MasterName + " 500",
			"sentinel failover-timeout " + MasterName + " 3000",
		}, "\n")})
		if err != nil {
			return err
		}
		s.Sentinels = append(s.Sentinels, n)
	}
	for _, n := range s.Sentinels {
		err := poll(30*time.Second, func() error {
			info, err := text(n, "info", "sentinel")
			if err != nil {
				return err
			}
			want := fmt.Sprintf("status=ok,address=127.0.0.1:%s,slaves=%d,sentinels=%d", port, replicas, sentinels)
			if !strings.Contains(info, want) {
				return fmt.Errorf("redisproc: sentinel does not say %q: %s", want, info)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Addrs returns the addresses of the sentinels.
func (s *Sentinel) Addrs() []string {
	var addrs []string
	for _, n := range s.Sentinels {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// Close ends every process.
func (s *Sentinel) Close() error {
	all := append(append([]*Server{}, s.Sentinels...), s.Replicas...)
	if s.Master != nil {
		all = append(all, s.Master)
	}
	return closeAll(all)
}
