package redisproc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// slotCount is the number of hash slots of every Redis Cluster.
const slotCount = 16384

// settle is how long a group of servers may take to agree on something.
const settle = 30 * time.Second

// Cluster is a Redis Cluster on loopback. Its methods are safe for concurrent
// use, except Add and Remove.
type Cluster struct {
	// Masters were masters when the cluster was formed; Replicas[i] follow
	// Masters[i]. MasterOf returns the one that serves a hash slot now.
	Masters  []*Server
	Replicas [][]*Server

	config [][]string // of each node
}

// StartCluster runs masters with replicas each and returns when all agree that
// the cluster serves, and who takes part.
func StartCluster(masters, replicas int, config ...[]string) (*Cluster, error) {
	if masters < 1 || masters > slotCount || replicas < 0 {
		return nil, fmt.Errorf("redisproc: a cluster needs at least 1 master and 0 replicas, not %d and %d", masters, replicas)
	}
	c := &Cluster{}
	if err := c.form(masters, replicas, config); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) form(masters, replicas int, config [][]string) error {
	c.config = append([][]string{
		{"cluster-enabled", "yes"}, {"cluster-node-timeout", "1000"}, {"cluster-require-full-coverage", "no"},
		// A replica may take over however long its link was down, copies its
		// master at once, and has an offset soon: one with none is not announced.
		{"cluster-announce-ip", "127.0.0.1"}, // a node that is alone does not know its own
		{"cluster-replica-validity-factor", "0"}, {"repl-diskless-sync-delay", "0"}, {"repl-ping-replica-period", "1"},
	}, config...)
	opts := Options{Config: c.config}
	for i := range masters {
		s, err := Start(opts)
		if err != nil {
			return err
		}
		c.Masters, c.Replicas = append(c.Masters, s), append(c.Replicas, nil)
		for range replicas {
			r, err := Start(opts)
			if err != nil {
				return err
			}
			c.Replicas[i] = append(c.Replicas[i], r)
		}
	}
	// Everyone meets everyone: gossip alone takes seconds to get around.
	nodes := c.Nodes()
	for i, s := range nodes {
		for _, other := range nodes[i+1:] {
			if err := do(s, "cluster", "meet", "127.0.0.1", other.Port()); err != nil {
				return err
			}
		}
	}
	for i, s := range c.Masters {
		if err := addSlots(s, slotCount*i/masters, slotCount*(i+1)/masters-1); err != nil {
			return err
		}
	}
	for i, s := range c.Masters {
		id, err := text(s, "cluster", "myid")
		if err != nil {
			return err
		}
		for _, r := range c.Replicas[i] {
			// The replica must know its master first.
			if err := poll(settle, func() error { return do(r, "cluster", "replicate", id) }); err != nil {
				return err
			}
		}
	}
	return c.WaitOK()
}

// addSlots names the slots one by one, as ADDSLOTSRANGE is missing before 7.
func addSlots(s *Server, from, to int) error {
	client := admin(s)
	defer client.Close()
	return client.ClusterAddSlotsRange(context.Background(), from, to).Err()
}

// WaitOK waits until every node that runs says that all slots are served, and
// announces all nodes that run to clients.
func (c *Cluster) WaitOK() error {
	var running []*Server
	for _, s := range c.Nodes() {
		if s.Running() {
			running = append(running, s)
		}
	}
	for _, s := range running {
		if err := poll(settle, func() error { return serves(s, running) }); err != nil {
			return err
		}
	}
	return nil
}

func serves(s *Server, all []*Server) error {
	info, err := text(s, "cluster", "info")
	if err != nil {
		return err
	}
	if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_slots_ok:%d", slotCount)) {
		return fmt.Errorf("redisproc: cluster at %s does not serve: %s", s.Addr(), info)
	}
	if err := linked(s); err != nil {
		return err
	}
	client := admin(s)
	defer client.Close()
	//nolint:staticcheck // Redis 6.2 has no CLUSTER SHARDS
	slots, err := client.ClusterSlots(context.Background()).Result()
	if err != nil {
		return err
	}
	announced := map[string]bool{}
	for _, r := range slots {
		for _, n := range r.Nodes {
			announced[n.Addr] = true
		}
	}
	for _, other := range all {
		if !announced[other.Addr()] {
			return fmt.Errorf("redisproc: cluster at %s does not announce %s", s.Addr(), other.Addr())
		}
	}
	return nil
}

// linked is an error while a replica does not follow its master.
func linked(s *Server) error {
	info, err := text(s, "info", "replication")
	if err == nil && strings.Contains(info, "master_link_status:down") {
		err = fmt.Errorf("redisproc: replica %s has no link to its master", s.Addr())
	}
	return err
}

// Nodes returns masters and replicas.
func (c *Cluster) Nodes() []*Server {
	all := append([]*Server(nil), c.Masters...)
	for _, r := range c.Replicas {
		all = append(all, r...)
	}
	return all
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string { return addrs(c.Nodes()) }

// Close ends every node.
func (c *Cluster) Close() error { return closeAll(c.Nodes()) }
