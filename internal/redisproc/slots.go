package redisproc

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// MasterOf returns the node that serves a slot, according to the cluster: one
// that has just died is it until another one is promoted.
func (c *Cluster) MasterOf(slot int) (*Server, error) {
	if slot < 0 || slot >= slotCount {
		return nil, fmt.Errorf("redisproc: slot is %d, must be in 0..%d", slot, slotCount-1)
	}
	var best claim
	for _, s := range c.Nodes() {
		if !s.Running() {
			continue
		}
		nodes, err := text(s, "cluster", "nodes")
		if err != nil {
			continue // frozen or cut off: the others know
		}
		for line := range strings.Lines(nodes) {
			if found := parseClaim(line, slot); found.beats(best) {
				best = found
			}
		}
	}
	for _, s := range c.Nodes() {
		if s.Port() == best.port {
			return s, nil
		}
	}
	return nil, fmt.Errorf("redisproc: no master serves slot %d", slot)
}

// claim is what one node says about who serves a slot.
type claim struct {
	port  int
	own   bool // it says so of itself
	epoch int64
}

// beats prefers what a node says of itself to what others say of it, then the newer epoch.
func (c claim) beats(other claim) bool {
	switch {
	case c.port == 0 || other.port == 0:
		return c.port != 0
	case c.own != other.own:
		return c.own
	}
	return c.epoch > other.epoch
}

// parseClaim reads a line of CLUSTER NODES: id, address, flags, master, ping,
// pong, epoch, link, slots. Its port is 0 if the line does not claim the slot.
func parseClaim(line string, slot int) claim {
	f := strings.Fields(line)
	if len(f) < 9 {
		return claim{}
	}
	served := false
	for _, r := range f[8:] {
		if strings.HasPrefix(r, "[") { // being migrated: it is also in a plain range
			continue
		}
		from, to, ranged := strings.Cut(r, "-")
		if !ranged {
			to = from
		}
		low, err1 := strconv.Atoi(from)
		high, err2 := strconv.Atoi(to)
		served = served || err1 == nil && err2 == nil && low <= slot && slot <= high
	}
	addr, _, _ := strings.Cut(f[1], "@")
	number, err1 := strconv.Atoi(addr[strings.LastIndexByte(addr, ':')+1:])
	epoch, err2 := strconv.ParseInt(f[6], 10, 64)
	if !served || err1 != nil || err2 != nil {
		return claim{}
	}
	return claim{port: number, own: strings.Contains(f[2], "myself"), epoch: epoch}
}

// MigrateSlot moves a slot with its keys from one master to another, and waits
// until all nodes agree: a slot that moves on before may get two owners, and
// each sends clients to the other.
func (c *Cluster) MigrateSlot(slot int, from, to *Server) error {
	toID, err := text(to, "cluster", "myid")
	if err != nil {
		return err
	}
	if err := c.BeginMigration(slot, from, to); err != nil {
		return err
	}
	client := admin(from)
	defer client.Close()
	if err := moveKeys(client, slot, to); err != nil {
		return err
	}
	// The new owner first: between the two, the old one still redirects to it.
	for _, s := range []*Server{to, from} {
		if err := do(s, "cluster", "setslot", slot, "node", toID); err != nil {
			return err
		}
	}
	return poll(settle, func() error { return c.agree(slot, to) })
}

// BeginMigration announces that a slot moves, and moves nothing yet.
func (c *Cluster) BeginMigration(slot int, from, to *Server) error {
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
	return do(from, "cluster", "setslot", slot, "migrating", toID)
}

// agree returns an error unless every node that runs says the same of who serves
// a slot.
func (c *Cluster) agree(slot int, owner *Server) error {
	var epoch int64
	for _, s := range c.Nodes() {
		if !s.Running() {
			continue
		}
		nodes, err := text(s, "cluster", "nodes")
		if err != nil {
			return err
		}
		for line := range strings.Lines(nodes) {
			found := parseClaim(line, slot)
			if epoch == 0 {
				epoch = found.epoch
			}
			if found.port != 0 && (found.port != owner.Port() || found.epoch != epoch) {
				return fmt.Errorf("redisproc: %s does not know that %s serves slot %d", s.Addr(), owner.Addr(), slot)
			}
		}
	}
	return nil
}

func moveKeys(from *redis.Client, slot int, to *Server) error {
	ctx := context.Background()
	for {
		keys, err := from.ClusterGetKeysInSlot(ctx, slot, 100).Result()
		if err != nil || len(keys) == 0 {
			return err
		}
		args := []any{"migrate", "127.0.0.1", to.Port(), "", 0, 5000, "keys"}
		for _, key := range keys {
			args = append(args, key)
		}
		// Keys that expire on the way are not an error, but a NOKEY status.
		if err := from.Do(ctx, args...).Err(); err != nil {
			return err
		}
	}
}
