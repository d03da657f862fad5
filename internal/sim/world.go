package sim

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/limiter"
)

// World is a fleet and its servers.
type World struct {
	Plan
	began     time.Time
	net       *network
	servers   []*Server
	cluster   *cluster    // nil without
	sentinels []*sentinel // none without
	ring      *redis.Ring // which only says where keys are; nil without
	api       *api        // nil without
	real      Real        // nil without
	mu        sync.Mutex
	processes []*process // nil for those that have not joined; then mu is needed
	ledger    *ledger
	rules     map[string]*rule // by the key in Redis
	keys      []string
	most      []int // the largest cost of each limit
	done      chan struct{}
	rushing   []rush // in their order
	flags     layers[bool]
	texts     layers[string]
}

func (w *World) now() time.Duration { return time.Since(w.began) }

// prefixOf is that of a limit.
func prefixOf(i int) string { return "sim" + strconv.Itoa(i) }

// account names what the ledger keeps of a key of a limit.
func (w *World) account(i int, key string) string {
	return prefixOf(i) + " " + key
}

// inRedis lists the keys of a limit's state: one, or one for each part.
func (w *World) inRedis(i int, key string) (names []string) {
	l := w.Limits[i]
	name := func(key string) string {
		return fmt.Sprintf("%s:v2:%s:{%s}", prefixOf(i), algorithmOf(l.Limit).Short(), lua.EncodeID(key))
	}
	if l.Parts <= 1 {
		return []string{name(key)}
	}
	for part := range l.Parts {
		names = append(names, name(fmt.Sprintf("%s\x00%02x", key, part)))
	}
	return names
}

// settled checks what must hold when all faults have been over for a while: every process
// decides by Redis again, knows its share, and owes nothing.
func (w *World) settled() {
	w.remembered()
	keys := make([][]string, len(w.processes))
	for i := range w.processes {
		keys[i] = w.calmKeys(i)
	}
	shared := w.calmKeys(len(keys)) // who gets none of it asks Redis, and counts those who spend from leases
	for round := range 30 {
		time.Sleep(time.Second)
		if round < 8 {
			w.countPermits()
		}
		for _, p := range w.processes {
			if p.gone.Load() {
				continue
			}
			for _, lim := range p.limiters {
				asked := shared
				if round < 10 {
					asked = keys[p.n]
				}
				for _, key := range slices.Concat(asked, asked) { // the first may be a probe
					_, _ = lim.AllowN(context.Background(), key, 1)
				}
			}
			if round >= 20 {
				w.counted(p)
			}
			w.sampled(p)
			for _, sem := range p.permits {
				if permit, err := sem.TryAcquire(context.Background(), "settled"); err == nil && permit.Allowed {
					_ = permit.Release()
				}
			}
			time.Sleep(time.Millisecond)
		}
	}
	time.Sleep(time.Second)
	w.followed()
	w.conserved()
	for _, p := range w.processes {
		if p.gone.Load() {
			continue
		}
		for i, lim := range p.limiters {
			for _, key := range keys[p.n] {
				res, err := lim.AllowN(context.Background(), key, 1)
				w.ledger.mu.Lock()
				w.ledger.check(err == nil && res.Source != limiter.SourceLocal, "return", "process %d, limiter %d: after all faults a decision on %s is by %v (%v)", p.n, i, key, res.Source, err)
				w.ledger.mu.Unlock()
			}
			h := lim.Health()
			w.ledger.mu.Lock()
			w.ledger.check(h.Owed == 0, "return", "process %d, limiter %d: %d keys are still owed", p.n, i, h.Owed)
			w.ledger.mu.Unlock()
		}
	}
}

// counted checks that a process counts all that are alive, and none that is gone for longer than
// a heartbeat can live.
func (w *World) counted(p *process) {
	const longest = 11 * time.Minute
	most := w.Plan.alive()
	for _, l := range w.Plan.Leaves {
		if w.ledger.now()-l.At < longest {
			most++
		}
	}
	for i, lim := range p.limiters {
		n := lim.Health().Processes
		w.ledger.mu.Lock()
		w.ledger.check(w.Plan.alive() <= n && n <= most, "share", "process %d, limiter %d: %d processes are counted, there are %d", p.n, i, n, w.Plan.alive())
		w.ledger.mu.Unlock()
	}
}

// countPermits asks how many are held. When the clock of Redis has stepped back, the permits
// of processes that died before it end a time to live after they were counted.
func (w *World) countPermits() {
	for _, p := range w.processes {
		if p.gone.Load() {
			continue
		}
		for _, sem := range p.permits {
			for _, key := range w.keys {
				_, _ = sem.InFlight(context.Background(), key)
			}
		}
		return
	}
}

// sampled asks the sampled limiter of a process, and returns who decided.
func (w *World) sampled(p *process) limiter.Source {
	if p.sampled == nil {
		return 0
	}
	res, err := p.sampled.Allow(context.Background(), "k0")
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	w.ledger.check(err == nil, "P3", "process %d: a sampled decision: %v", p.n, err)
	return res.Source
}

// followed checks that the sampled limiters follow a key by Redis, if they can track all keys. They
// forget one that is not asked for in ten intervals, so it is asked for in each.
func (w *World) followed() {
	s := w.Sampled
	if s.Keys == 0 || s.TopKeys < s.Keys || s.Interval > 2*time.Second {
		return
	}
	const rounds = 4 // a new key is decided by the share until it was reported
	for round := range rounds {
		for _, p := range w.alive() {
			from := w.sampled(p)
			if round < rounds-1 {
				continue
			}
			w.ledger.mu.Lock()
			w.ledger.check(from == limiter.SourceSampled, "return", "process %d: after all faults a sampled decision is by %v", p.n, from)
			w.ledger.mu.Unlock()
		}
		time.Sleep(s.Interval)
	}
}

// left checks that the processes which closed their sampled limiters have left the reports, unless
// they could not reach Redis then.
func (w *World) left() {
	if w.Sampled.Keys == 0 {
		return
	}
	s := w.home(sampledProcesses)
	s.mu.Lock()
	v := s.get(sampledProcesses)
	s.mu.Unlock()
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	w.ledger.check(v == nil || len(v.set) <= len(w.Leaves), "P8", "all sampled limiters are closed, and %v report", v)
}

// conserved checks that no permit is lost: all of them can be acquired, and no more.
func (w *World) conserved() {
	alive := w.alive()
	if len(alive) == 0 {
		return
	}
	for i, of := range w.Permits {
		for _, key := range w.keys {
			held := 0
			for n := range of.N + 1 {
				permit, err := alive[n%len(alive)].permits[i].TryAcquire(context.Background(), key)
				if err == nil && permit.Allowed {
					held++
					defer permit.Release() //nolint:errcheck // it was not before
				}
			}
			w.ledger.mu.Lock()
			w.ledger.check(held == of.N, "permits", "semaphore %d, key %s: %d permits can be acquired when none is held, there are %d", i, key, held, of.N)
			w.ledger.mu.Unlock()
		}
	}
}

// makeServers makes the servers of the plan's shape.
func (w *World) makeServers() {
	for i := range w.Shape.servers() {
		s := newServer(w.net, w.ledger, fmt.Sprintf("10.0.0.%d:6379", i+1), w.Seed+uint64(i))
		if w.Shape.replicated() {
			s.follow(fmt.Sprintf("10.0.1.%d:6379", i+1))
		}
		s.real = w.real
		w.servers = append(w.servers, s)
	}
	switch w.Shape {
	case Single, Wrapped:
	case Sentinel:
		w.sentinels = newSentinels(w.net, w.ledger, w.servers[0], w.Seed)
	case Ring:
		w.ring = newRing(w.servers, nil, false)
	default:
		w.cluster = newCluster(w.servers)
	}
}

// home is the server that has a key.
func (w *World) home(key string) *Server {
	switch {
	case w.cluster != nil:
		return w.cluster.of(key)
	case w.ring != nil:
		node := must(w.ring.GetShardClientForKey(key))
		return w.servers[slices.IndexFunc(w.servers, func(s *Server) bool { return s.address() == node.Options().Addr })]
	}
	return w.servers[0]
}

// on lists the servers that a fault concerns.
func (w *World) on(f Fault) []*Server {
	if f.On < 0 || f.On >= len(w.servers) {
		return w.servers
	}
	return w.servers[f.On : f.On+1]
}

// server is the number of the one which has a key of a limit, 0 where the library does not
// tell servers apart.
func (w *World) server(i int, key string) int {
	if w.Shape != Cluster && w.Shape != Ring || w.Limits[i].Parts > 1 {
		return 0
	}
	return slices.Index(w.servers, w.home(w.inRedis(i, key)[0]))
}

// calmKeys lists a key for each server, for each process: the leases of others would leave
// it nothing of a key that all ask for.
func (w *World) calmKeys(process int) (keys []string) {
	for _, s := range w.servers {
		n := 0
		for w.home(fmt.Sprintf("{settled%d.%d}", process, n)) != s {
			n++
		}
		keys = append(keys, fmt.Sprintf("settled%d.%d", process, n))
	}
	return keys
}

// migrate moves half of the slots that the world uses to a server, key by key, and takes so
// long for it.
func (w *World) migrate(to *Server, long time.Duration, rng *rand.Rand) {
	var slots []int
	for _, key := range slices.Sorted(maps.Keys(w.rules)) {
		if slot := slotOf(key); strings.Contains(key, "{") && !slices.Contains(slots, slot) {
			slots = append(slots, slot)
		}
	}
	slots = slices.DeleteFunc(slots, func(int) bool { return rng.IntN(2) == 0 })
	for _, slot := range slots {
		w.cluster.migrate(slot, to)
	}
	for range 4 {
		time.Sleep(long / 4)
		for _, slot := range slots {
			w.cluster.move(slot, func(string) bool { return rng.IntN(2) == 0 })
		}
	}
	for _, slot := range slots {
		w.cluster.moveRest(slot)
	}
}

// alive lists the processes that are.
func (w *World) alive() (all []*process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		if p != nil && !p.gone.Load() {
			all = append(all, p)
		}
	}
	return all
}

// change tells each process of another limit, at a time of its own.
func (w *World) change(c Change, rng *rand.Rand) {
	time.Sleep(c.At)
	w.ledger.fault("limit %d becomes %v", c.Of, c.To)
	var wg sync.WaitGroup
	for _, p := range w.alive() {
		after := time.Duration(rng.Int64N(int64(time.Second + c.Within)))
		wg.Go(func() {
			time.Sleep(after)
			if !p.gone.Load() {
				_ = p.limiters[c.Of].SetLimit(c.To) // it was checked, or the limiter is closed
			}
		})
	}
	wg.Wait()
}

// remembered checks how many keys the limiters of each process remember.
func (w *World) remembered() {
	for _, p := range w.alive() {
		if p.sampled == nil {
			break
		}
		n, most := p.sampled.Health().LocalKeys, w.Sampled.TopKeys+w.Sampled.LocalKeys
		w.ledger.mu.Lock()
		w.ledger.check(n <= most, "P6", "process %d: its sampled limiter remembers %d keys, at most %d", p.n, n, most)
		w.ledger.mu.Unlock()
	}
	if w.Options.LocalKeys == 0 {
		return
	}
	for _, p := range w.alive() {
		for i, lim := range p.limiters {
			h := lim.Health()
			w.ledger.mu.Lock()
			w.ledger.check(max(h.LocalKeys, h.Owed) <= w.Options.LocalKeys, "P6", "process %d, limiter %d: %d keys are remembered and %d owed, at most %d", p.n, i, h.LocalKeys, h.Owed, w.Options.LocalKeys)
			w.ledger.mu.Unlock()
		}
	}
}
