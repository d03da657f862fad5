package redisproc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// SlotsOf returns the hash slots that a node serves, according to itself.
func (c *Cluster) SlotsOf(s *Server) ([]int, error) {
	nodes, err := text(s, "cluster", "nodes")
	if err != nil {
		return nil, err
	}
	var slots []int
	for line := range strings.Lines(nodes) {
		if strings.Contains(line, "myself") {
			for slot := range slotCount {
				if parseClaim(line, slot).own {
					slots = append(slots, slot)
				}
			}
		}
	}
	return slots, nil
}

// MoveSlots moves slots with their keys from one master to another while both serve, as
// redis-cli does, and returns when all nodes that run know the new owner.
func (c *Cluster) MoveSlots(slots []int, from, to *Server) error {
	if len(slots) == 0 {
		return nil
	}
	fromID, err1 := text(from, "cluster", "myid")
	toID, err2 := text(to, "cluster", "myid")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	// The new owner first: between the two, the old one still redirects to it.
	tell := []*Server{to, from}
	for _, s := range c.Nodes() {
		if s != to && s != from && s.Running() && isMaster(s) {
			tell = append(tell, s)
		}
	}
	clients := map[*Server]*redis.Client{}
	for _, s := range tell {
		clients[s] = admin(s)
		defer clients[s].Close()
	}
	ctx := context.Background()
	setslot := func(s *Server, slot int, state, id string) error {
		return clients[s].Do(ctx, "cluster", "setslot", slot, state, id).Err()
	}
	for _, slot := range slots {
		if err := errors.Join(setslot(to, slot, "importing", fromID), setslot(from, slot, "migrating", toID)); err != nil {
			return fmt.Errorf("redisproc: slot %d: %w", slot, err)
		}
		if err := moveKeys(clients[from], slot, to); err != nil {
			return fmt.Errorf("redisproc: keys of slot %d: %w", slot, err)
		}
		for _, s := range tell {
			// One that has given its last slot may have become a replica of the new owner.
			if err := setslot(s, slot, "node", toID); err != nil && isMaster(s) {
				return fmt.Errorf("redisproc: slot %d: %w", slot, err)
			}
		}
	}
	last := slots[len(slots)-1]
	if err := poll(settle, func() error { return c.agree(last, to) }); err != nil {
		return err
	}
	return c.WaitOK()
}

func isMaster(s *Server) bool {
	info, err := text(s, "info", "replication")
	return err == nil && strings.Contains(info, "role:master")
}

// Add runs one more master, without slots, and returns when all nodes know it and it takes
// keys: it does not for two seconds after it has met the others.
func (c *Cluster) Add() (*Server, error) {
	s, err := Start(Options{Config: c.config})
	if err != nil {
		return nil, err
	}
	c.Masters, c.Replicas = append(c.Masters, s), append(c.Replicas, nil)
	for _, other := range c.Nodes() {
		if other != s && other.Running() {
			if err := do(s, "cluster", "meet", "127.0.0.1", other.Port()); err != nil {
				return nil, err
			}
		}
	}
	id, err := text(s, "cluster", "myid")
	if err != nil {
		return nil, err
	}
	for _, other := range c.Nodes() {
		if !other.Running() {
			continue
		}
		err := poll(settle, func() error {
			nodes, err := text(other, "cluster", "nodes")
			if err == nil && !strings.Contains(nodes, id) {
				err = fmt.Errorf("redisproc: %s does not know %s", other.Addr(), s.Addr())
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return s, poll(settle, func() error {
		info, err := text(s, "cluster", "info")
		if err == nil && !strings.Contains(info, "cluster_state:ok") {
			err = fmt.Errorf("redisproc: %s takes no part yet: %s", s.Addr(), info)
		}
		return err
	})
}

// Remove makes the other nodes forget a master that has no slots any more, and ends it.
func (c *Cluster) Remove(s *Server) error {
	id, err := text(s, "cluster", "myid")
	if err != nil {
		return err
	}
	i := slices.Index(c.Masters, s)
	if i < 0 || len(c.Replicas[i]) > 0 {
		return fmt.Errorf("redisproc: %s is no master without replicas", s.Addr())
	}
	c.Masters, c.Replicas = slices.Delete(c.Masters, i, i+1), slices.Delete(c.Replicas, i, i+1)
	for _, other := range c.Nodes() {
		if other.Running() {
			if err := do(other, "cluster", "forget", id); err != nil {
				return err
			}
		}
	}
	return s.Close()
}
