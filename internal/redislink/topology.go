package redislink

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// cluster is what a cluster client has, also when it is embedded in a type of the user's.
type cluster interface {
	ClusterSlots(ctx context.Context) *redis.ClusterSlotsCmd
	ReloadState(ctx context.Context)
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
}

// ring is what a ring has.
type ring interface {
	GetShardClientForKey(key string) (*redis.Client, error)
}

// topology returns how the server of an id is found, nil where there is but one, and
// whether a command may have keys of one hash slot only, and the map of hash slots of a cluster. A
// client that is not known may have a cluster behind it.
func topology(client redis.UniversalClient) (of func(id string) string, oneSlot bool, slots *slotMap) {
	switch rdb := client.(type) {
	case *redis.Client:
		return nil, false, nil
	case cluster:
		slots = &slotMap{rdb: rdb}
		return slots.master, true, slots
	case ring:
		return func(id string) string {
			node, err := rdb.GetShardClientForKey("{" + id + "}")
			if err != nil {
				return ""
			}
			return node.Options().Addr
		}, false, nil
	}
	return nil, true, nil
}

// connections is how many a client may have to a server; 0 if that is not known.
func connections(client redis.UniversalClient) int {
	switch rdb := client.(type) {
	case *redis.Client:
		return rdb.Options().PoolSize
	case *redis.ClusterClient:
		return rdb.Options().PoolSize
	case *redis.Ring:
		return rdb.Options().PoolSize
	}
	return 0
}

const (
	slotRefresh     = 5 * time.Second
	slotRefreshSoon = 250 * time.Millisecond
)

// slotMap knows which master of a cluster serves a slot. It learns that in the
// background, while there is traffic; until it knows, all keys share a server.
type slotMap struct {
	rdb  cluster
	turn Every

	mu    sync.RWMutex
	slots [16384]string
}

func (m *slotMap) master(id string) string {
	slot := Slot(id)
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.slots[slot]
}

// serves reports whether keys of a slot are sent to a server.
func (m *slotMap) serves(addr string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return addr == others || slices.Contains(m.slots[:], addr)
}

// watch keeps the map up to date: soon after a call has failed, perhaps because its
// master has.
func (m *slotMap) watch(failed bool, now time.Duration, background *Background) {
	if failed {
		m.turn.Soon(now + slotRefreshSoon)
	}
	if m.turn.Due(now, slotRefresh) {
		background.Start(m.refresh)
	}
}

// refresh asks any node for the map. When it differs from the one before, the client is
// made to reload it too: by itself it notices a node that rejects connections only after a minute. A hook of the client's
// that panics would end the program from here, as in wire.do: the map stays as it is.
func (m *slotMap) refresh(ctx context.Context) {
	defer func() { _ = recover() }()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	// Redis 6.2 has no CLUSTER SHARDS
	ranges, err := m.rdb.ClusterSlots(ctx).Result()
	if err != nil || len(ranges) == 0 {
		return
	}
	changed := false
	m.mu.Lock()
	for _, r := range ranges {
		if len(r.Nodes) == 0 {
			continue
		}
		for slot := max(0, r.Start); slot <= min(r.End, len(m.slots)-1); slot++ {
			if m.slots[slot] != r.Nodes[0].Addr {
				changed = changed || m.slots[slot] != ""
				m.slots[slot] = r.Nodes[0].Addr
			}
		}
	}
	m.mu.Unlock()
	if changed {
		m.rdb.ReloadState(ctx)
	}
}
