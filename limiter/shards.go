package limiter

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
)

// shard is one Redis server that can fail on its own: the only one, a master of
// a cluster, or a node of a ring. Each has its breaker and its calls in flight,
// so that a sick one takes only its own keys along.
type shard struct {
	name    string
	breaker *breaker.Breaker
	batches *batches // of decisions
	calls   calls    // of all else
	_       [64]byte // keeps the counters away from what is only read
	counts  [numSources]atomic.Uint64
}

func (s *shard) count(r Result) Result {
	s.counts[r.Source].Add(1)
	return r
}

// decisions returns the counts by source.
func (s *shard) decisions() map[Source]uint64 {
	m := make(map[Source]uint64, numSources)
	for i := range s.counts {
		if n := s.counts[i].Load(); n > 0 {
			m[Source(i)] = n
		}
	}
	return m
}

// shards finds the shard of a key, and makes it when it is new.
type shards struct {
	make func(name string) *shard
	// of names the shard of an id as it stands in keys. It must not block.
	of func(id string) string

	mu   sync.RWMutex
	all  map[string]*shard
	only *shard // where there is but one
}

// maxShards bounds what a topology that keeps changing can leave behind; beyond
// it, new ones share a breaker.
const maxShards = 4096

// newQueue makes the batches of a shard.
type newQueue func(sh *shard, max int, sameSlot bool) *batches

func (l *link) newShards(queue newQueue) (*shards, error) {
	s := &shards{all: make(map[string]*shard)}
	settings := l.breakerSettings()
	if _, err := breaker.New(settings); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidConfig, err)
	}
	// Clients we do not know may have a cluster behind them.
	sameSlot := true
	switch l.rdb.(type) {
	case *redis.Client, *redis.Ring:
		sameSlot = false
	}
	s.make = func(name string) *shard {
		own := settings
		if own.Name == "" {
			own.Name = l.prefix
		}
		if name != "" {
			own.Name += "@" + name
		}
		b, _ := breaker.New(own) // the settings are good
		sh := &shard{name: own.Name, breaker: b, calls: newCalls(l.maxInFlight)}
		if queue != nil {
			sh.batches = queue(sh, l.maxInFlight, sameSlot)
		}
		return sh
	}
	switch rdb := l.rdb.(type) {
	case *redis.ClusterClient:
		l.slots = newSlotMap(rdb)
		s.of = l.slots.master
	case *redis.Ring:
		s.of = func(id string) string {
			node, err := rdb.GetShardClientForKey("{" + id + "}")
			if err != nil {
				return ""
			}
			return node.Options().Addr
		}
	default:
		s.only = s.get("")
	}
	return s, nil
}

func (l *link) breakerSettings() breaker.Settings {
	set := l.config.breaker
	if set.ProbeTimeout == 0 {
		// A probe ends with the budget; a little more, so that one which just
		// made it is not called late.
		set.ProbeTimeout = l.budget + l.budget/4
	}
	if set.OpenMax == 0 {
		// Processes that return at different times use Redis and their shares
		// side by side: the sooner the last one is back, the less is admitted
		// beyond the limit. A probe costs one caller at most the budget.
		set.OpenMax = max(5*time.Second, set.OpenMin)
	}
	if set.SlowCall == 0 {
		set.SlowCall = l.budget / 2
	}
	onChange := set.OnChange
	set.OnChange = func(ch breaker.Change) {
		l.breakerChanged(ch)
		if onChange != nil {
			onChange(ch)
		}
	}
	return set
}

// forID returns the shard of an encoded id.
func (s *shards) forID(id string) *shard {
	if s.only != nil {
		return s.only
	}
	return s.get(s.of(id))
}

func (s *shards) get(name string) *shard {
	s.mu.RLock()
	sh := s.all[name]
	s.mu.RUnlock()
	if sh != nil {
		return sh
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sh = s.all[name]; sh != nil {
		return sh
	}
	if len(s.all) >= maxShards {
		name = "others"
		if sh = s.all[name]; sh != nil {
			return sh
		}
	}
	sh = s.make(name)
	s.all[name] = sh
	return sh
}

// list returns the shards seen so far.
func (s *shards) list() []*shard {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]*shard, 0, len(s.all))
	for _, sh := range s.all {
		out = append(out, sh)
	}
	return out
}

const (
	slotRefresh      = 5 * time.Second
	slotRefreshHurry = 250 * time.Millisecond
)

// slotMap knows which master of a cluster serves a slot. It learns that in the
// background, while there is traffic; until it knows, all keys share a breaker.
type slotMap struct {
	rdb  *redis.ClusterClient
	turn every

	mu    sync.RWMutex
	slots [16384]string
}

func newSlotMap(rdb *redis.ClusterClient) *slotMap { return &slotMap{rdb: rdb} }

func (m *slotMap) master(id string) string {
	slot := slotOf(id)
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.slots[slot]
}

// hurry asks again soon: a call has failed, perhaps because its master has.
func (m *slotMap) hurry() { m.turn.soon(time.Now().Add(slotRefreshHurry)) }

// refresh asks any node for the map. When it differs from the one before, the
// client is told to look too: it heeds a node that refuses connections only
// after a minute.
func (m *slotMap) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	//lint:ignore SA1019 Redis 6.2 has no CLUSTER SHARDS
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

// slotOf returns the slot of an encoded id, which is the part of its keys that
// counts.
func slotOf(id string) int { return int(crc16(id) % 16384) }

// crc16 is CRC-16/XMODEM, by which a cluster assigns keys to slots
// (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/).
func crc16(s string) uint16 {
	var crc uint16
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}
