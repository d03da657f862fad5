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
	instants  instants
}

// instants are when callers go on: each at a time of its own, so that what happens at one time does not
// depend on the order in which Go runs them.
type instants struct {
	mu    sync.Mutex
	taken map[time.Duration]bool
}

// take returns the first time from at on that is not taken.
func (i *instants) take(at time.Duration) time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	for i.taken[at] {
		at++
	}
	i.taken[at] = true
	return at
}

func (i *instants) pass(at time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.taken, at)
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

// pause draws how long a caller pauses now.
func (w *World) pause(rng *rand.Rand) time.Duration {
	tiny := time.Duration(rng.Int64N(1000))
	think := time.Duration(rng.ExpFloat64() * float64(w.Think))
	now := w.now()
	next := slices.IndexFunc(w.rushing, func(r rush) bool { return r.to >= now })
	if w.Idle <= w.Think || next < 0 || w.rushing[next].from <= now {
		return tiny + think
	}
	return tiny + min(time.Duration(rng.ExpFloat64()*float64(w.Idle)), w.rushing[next].from-now+think)
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
			w.sampled(p, round)
			for _, sem := range p.permits {
				if permit, err := sem.TryAcquire(context.Background(), "settled"); err == nil && permit.Allowed {
					_ = permit.Release()
				}
			}
			time.Sleep(time.Millisecond)
		}
	}
	time.Sleep(time.Second)
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

// sampled asks the sampled limiter of a process, which follows a key by Redis in the end if it can
// keep track of it.
func (w *World) sampled(p *process, round int) {
	if p.sampled == nil {
		return
	}
	res, err := p.sampled.Allow(context.Background(), "k0")
	s := w.Sampled
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	w.ledger.check(err == nil, "P3", "process %d: a sampled decision: %v", p.n, err)
	if round == 29 && s.TopKeys >= s.Keys && s.Interval <= 2*time.Second {
		w.ledger.check(res.Source == limiter.SourceSampled, "return", "process %d: after all faults a sampled decision is by %v", p.n, res.Source)
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
	case Single, Wrapped, Sentinel:
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
		after := time.Duration(rng.Int64N(int64(time.Second)))
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

// inject lets a fault happen.
func (w *World) inject(f Fault, rng *rand.Rand) {
	time.Sleep(f.At + time.Duration(rng.Int64N(1000)))
	w.ledger.fault("%v", f)
	of := f.Of
	if of == nil {
		for i := range w.Processes {
			of = append(of, i)
		}
	}
	servers := w.on(f)
	paths := func(change func(*Path)) {
		for _, addr := range addressesOf(servers) {
			for _, i := range of {
				w.net.set(w.processes[i].name, addr, change)
			}
		}
	}
	each := func(do func(*Server)) {
		for _, s := range servers {
			do(s)
		}
	}
	healths := func(change func(*Health)) { each(func(s *Server) { s.set(change) }) }
	end := func() {}
	switch f.Kind {
	case Refused:
		paths(func(p *Path) { p.Refused = true })
		end = func() { paths(func(p *Path) { p.Refused = false }) }
	case BlackHole:
		paths(func(p *Path) { p.Lost = true })
		end = func() { paths(func(p *Path) { p.Lost = false }) }
	case RepliesLost:
		paths(func(p *Path) { p.RepliesLost = true })
		end = func() { paths(func(p *Path) { p.RepliesLost = false }) }
	case Far:
		paths(func(p *Path) { p.Delay += f.By; p.Jitter += f.By / 2 })
		end = func() { paths(func(p *Path) { p.Delay -= f.By; p.Jitter -= f.By / 2 }) }
	case Reset: // again and again: only what is on its way then matters
		n := 1 + rng.IntN(30)
		for range n {
			paths(func(p *Path) { p.Refused = true })
			paths(func(p *Path) { p.Refused = false })
			time.Sleep(f.For / time.Duration(n))
		}
		f.For = 0
	case Frozen:
		healths(func(h *Health) { h.Frozen = true })
		end = func() { healths(func(h *Health) { h.Frozen = false }) }
	case Sluggish:
		healths(func(h *Health) { h.Slow += f.By })
		end = func() { healths(func(h *Health) { h.Slow -= f.By }) }
	case Rejecting:
		healths(func(h *Health) { h.Rejects = f.Text })
		end = func() { healths(func(h *Health) { h.Rejects = "" }) }
	case RejectingWrites:
		healths(func(h *Health) { h.RejectsWrites = f.Text })
		end = func() { healths(func(h *Health) { h.RejectsWrites = "" }) }
	case Restarted, RestartedEmpty:
		healths(func(h *Health) { h.Down = true })
		each((*Server).crash)
		end = func() {
			if f.Kind == RestartedEmpty {
				each(func(s *Server) { s.lose(func(string) bool { return true }) })
			}
			each((*Server).forgetScripts)
			healths(func(h *Health) { h.Down = false })
		}
	case FailedOver:
		each((*Server).save)
		end = func() { each((*Server).failOver) }
		if w.Shape.replicated() { // the replica is elected for half of the time
			time.Sleep(f.For / 2)
			f.For -= f.For / 2
			healths(func(h *Health) { h.Down = true })
			each((*Server).crash)
			end = func() {
				each((*Server).failOver)
				healths(func(h *Health) { h.Down = false })
			}
		}
	case Flushed:
		each(func(s *Server) { s.lose(func(string) bool { return true }) })
	case Evicted:
		each(func(s *Server) { s.lose(func(string) bool { return rng.IntN(3) == 0 }) })
	case ScriptsForgotten:
		each((*Server).forgetScripts)
	case ClockSteps:
		w.ledger.clockStepped()
		each(func(s *Server) { s.step(f.By) })
	case Paused:
		paths(func(p *Path) { p.Lost = true })
		for _, i := range of {
			w.processes[i].thaw.Store(int64(w.now() + f.For))
		}
		end = func() { paths(func(p *Path) { p.Lost = false }) }
	case Migrated:
		w.migrate(w.servers[f.On], f.For, rng)
		f.For = 0
	}
	time.Sleep(f.For)
	w.remembered()
	end()
	w.ledger.fault("over: %v", f)
}
