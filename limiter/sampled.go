package limiter

import (
	"cmp"
	"context"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lua"
)

const (
	sampledSlots  = 4096
	sampledShards = 64
	// sampledIdle is for how many intervals a key is kept that nobody asks for.
	sampledIdle = 10
	// sampledStale is for how many intervals a report is believed.
	sampledStale = 3
	// milli is the unit in which rates are reported: units per 1000 seconds.
	milli = 1000
	// candidateEvery is how many of the calls for keys beyond the top are counted.
	candidateEvery = 8
	always         = math.MaxUint64
)

// Sampled is a limiter for fleets too large for a call per decision. No decision
// waits for Redis: each process counts what it is asked for, tells Redis once per
// interval (WithInterval), learns what the fleet is asked for, and admits with the
// probability that brings the fleet to the rate.
//
// It is not exact: see docs/choosing.md for what was measured. A key's first
// interval, a process's first, and all while Redis cannot be reached, are decided by
// the process's share of the rate. It admits a request or not as it comes; it has no
// burst beyond an interval's, and RetryAfter is the interval.
//
// The keys that are asked for most, up to WithTopKeys, are followed; others are
// decided by this process's share, in bounded memory. It is safe for concurrent use,
// and idle it runs no goroutine. Make one with NewSampled; the zero value is not
// usable.
type Sampled struct {
	*link
	spec   spec
	store  *fallback.Store // of keys beyond the top
	number int64           // of this process, in the reports
	units  float64         // of the rate, in an interval

	table      sampleTable
	fleet      atomic.Int64     // processes at the last report
	reported   atomic.Int64     // when that was, in ns of the epoch
	unanswered atomic.Bool      // under the policy Closed: nobody is admitted
	counts     [2]atomic.Uint64 // units that were sampled, and that were decided by share

	mu         sync.Mutex
	timer      *time.Timer // nil while it is stopped
	last       time.Time   // of the ticks
	candidates map[string]int64
}

// sample is one key that is followed.
type sample struct {
	key, id string

	// Written at every decision.
	asked atomic.Int64
	left  atomic.Int64 // of what this process may admit in this interval
	_     [48]byte

	// Written once per interval.
	threshold atomic.Uint64 // what a random number must be below
	local     atomic.Bool
	demand    demand
	idle      int
}

// sampleTable finds samples without a lock, mostly.
type sampleTable struct {
	seed   maphash.Seed
	max    int64
	count  atomic.Int64
	slots  [sampledSlots]atomic.Pointer[sample]
	shards [sampledShards]struct {
		mu    sync.RWMutex
		byKey map[string]*sample
	}
}

// find returns the sample of a key; nil when it is not followed.
func (t *sampleTable) find(key string) (*sample, uint64) {
	h := maphash.String(t.seed, key)
	slot := &t.slots[h%sampledSlots]
	if k := slot.Load(); k != nil && k.key == key {
		return k, h
	}
	sh := &t.shards[h%sampledShards]
	sh.mu.RLock()
	k := sh.byKey[key]
	sh.mu.RUnlock()
	if k != nil {
		slot.Store(k)
	}
	return k, h
}

// add follows a key, unless there are too many. made is false when it was there.
func (t *sampleTable) add(key string, h uint64, start func(*sample)) (k *sample, made bool) {
	sh := &t.shards[h%sampledShards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if k = sh.byKey[key]; k != nil {
		return k, false
	}
	if t.count.Add(1) > t.max {
		t.count.Add(-1)
		return nil, false
	}
	k = &sample{key: key, id: lua.EncodeID(key)}
	start(k)
	if sh.byKey == nil {
		sh.byKey = make(map[string]*sample)
	}
	sh.byKey[key] = k
	return k, true
}

func (t *sampleTable) drop(k *sample) {
	h := maphash.String(t.seed, k.key)
	sh := &t.shards[h%sampledShards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	delete(sh.byKey, k.key)
	t.slots[h%sampledSlots].CompareAndSwap(k, nil)
	t.count.Add(-1)
}

func (t *sampleTable) all() []*sample {
	out := make([]*sample, 0, t.count.Load())
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.RLock()
		for _, k := range sh.byKey {
			out = append(out, k)
		}
		sh.mu.RUnlock()
	}
	return out
}

// NewSampled returns a limiter that brings the fleet to a rate, per key. Every
// process should use the same rate. Options about leases, key shards, a reserve and
// slots are refused. Like New it does not talk to Redis. The error is a *ConfigError.
func NewSampled(rdb redis.UniversalClient, rate Rate, opts ...Option) (*Sampled, error) {
	l, err := newLink(rdb, opts, nil)
	if err != nil {
		return nil, err
	}
	switch {
	case l.leaseSet:
		return nil, &ConfigError{"lease", l.lease, "has no meaning for a sampled limiter"}
	case l.keyShards > 1:
		return nil, &ConfigError{"key shards", l.keyShards, "cannot be used with a sampled limiter"}
	case l.reserveSet:
		return nil, &ConfigError{"reserve", l.reserve, "cannot be used with a sampled limiter"}
	}
	if err := l.only("NewSampled"); err != nil {
		return nil, err
	}
	s := &Sampled{link: l, number: 1 + rand.Int64N(1<<52), candidates: make(map[string]int64)}
	// What is decided by share may come at once, up to an interval's part.
	burst := float64(rate.N) * float64(l.interval) / float64(max(1, rate.Per))
	if s.spec, err = newSpec(TokenBucket(rate, int(max(1, math.Ceil(min(burst, math.MaxInt32))))), tuning{}); err != nil {
		return nil, err
	}
	s.units = burst
	s.table.seed, s.table.max = maphash.MakeSeed(), int64(l.topKeys)
	s.fleet.Store(1)
	s.store, err = fallback.NewStore(l.maxKeys)
	return s, err
}

// Limit returns the rate as a token bucket of what an interval lets through, which
// is also what results carry.
func (s *Sampled) Limit() Limit { return s.spec.limit }

// Allow is AllowN with a cost of 1.
func (s *Sampled) Allow(ctx context.Context, key string) (Result, error) {
	return s.AllowN(ctx, key, 1)
}

// AllowN decides at once. A cost of 0 looks. Remaining is what this process may still
// admit in this interval, if all of it is admitted. Source is SourceSampled, or
// SourceLocal where the process's share decides.
//
// The error is ErrInvalidKey, ErrInvalidCost, ErrCostExceedsLimit when the cost is
// above what an interval lets through, ErrClosed, the context's own, or, only under
// the policy fallback.Closed, ErrUnavailable.
func (s *Sampled) AllowN(ctx context.Context, key string, n int) (Result, error) {
	if key == "" || n < 0 || int64(n) > s.spec.args.Cap {
		return Result{}, s.spec.check(key, n)
	}
	if s.isClosed() {
		return Result{}, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	if s.unanswered.Load() {
		return Result{Limit: s.spec.limit, RetryAfter: s.interval, Source: SourceClosed}, ErrUnavailable
	}
	k, h := s.table.find(key)
	if k == nil {
		if n > 0 {
			k = s.follow(key, h)
		}
		if k == nil {
			return s.beyond(key, n), nil
		}
	}
	res := Result{Limit: s.spec.limit, ResetAfter: s.interval, Source: SourceSampled}
	if k.local.Load() {
		res.Source = SourceLocal
	}
	k.asked.Add(int64(n))
	left := int64(0)
	if t := k.threshold.Load(); t == always || rand.Uint64() < t {
		if left = k.left.Add(-int64(n)); left >= 0 {
			res.Allowed = true
		} else {
			left = k.left.Add(int64(n))
		}
	}
	res.Remaining = int(min(max(0, left), s.spec.args.Cap))
	if !res.Allowed {
		res.RetryAfter = s.interval
	}
	return res, nil
}

// follow begins to follow a key, by the share.
func (s *Sampled) follow(key string, h uint64) *sample {
	if s.table.count.Load() >= s.table.max {
		return nil
	}
	k, made := s.table.add(key, h, func(k *sample) { k.set(alone(0, s.units, s.ownShare()), true) })
	if made {
		s.wind()
	}
	return k
}

// set begins an interval.
func (k *sample) set(part plan, local bool) {
	t := uint64(always)
	if part.p < 1-1e-15 {
		t = uint64(part.p * (1 << 63) * 2)
	}
	k.local.Store(local)
	k.threshold.Store(t)
	k.left.Store(int64(min(part.most, math.MaxInt32)))
}

// ownShare is the part of the rate that is this process's.
func (s *Sampled) ownShare() float64 {
	if s.share > 0 {
		return s.share
	}
	return 1 / float64(max(1, s.fleet.Load()))
}

// beyond decides on a key that is not followed, and now and then takes note of it.
func (s *Sampled) beyond(key string, n int) Result {
	if s.policy == fallback.Open {
		return Result{Allowed: true, Limit: s.spec.limit, Remaining: s.spec.limit.Burst(), Source: SourceOpen}
	}
	if n > 0 && rand.N(candidateEvery) == 0 {
		s.mu.Lock()
		s.note(key, int64(n))
		s.mu.Unlock()
	}
	s.counts[1].Add(uint64(n))
	return s.spec.result(s.store.Decide(key, s.spec.local(s.ownShare()), int64(n)), SourceLocal)
}

// note counts a key among the candidates, by the Space-Saving algorithm (Metwally,
// Agrawal, El Abbadi, "Efficient computation of frequent and top-k elements in data
// streams", 2005): a new one takes the place of the least. mu is held.
func (s *Sampled) note(key string, n int64) {
	if _, ok := s.candidates[key]; !ok && len(s.candidates) >= 16+s.topKeys/4 {
		least, count := "", int64(math.MaxInt64)
		for k, c := range s.candidates {
			if c < count {
				least, count = k, c
			}
		}
		delete(s.candidates, least)
		n += count
	}
	s.candidates[key] += n
}

// Health reports without asking Redis. Processes are those that reported; Decisions
// are the units asked for, up to the last interval.
func (s *Sampled) Health() Health {
	h := s.health()
	h.Processes, h.Share = int(s.fleet.Load()), s.ownShare()
	h.LocalKeys = int(s.table.count.Load()) + s.store.Len()
	h.Decisions[SourceSampled], h.Decisions[SourceLocal] = s.counts[0].Load(), s.counts[1].Load()
	return h
}

// Close takes this process out of the reports and fails later calls with ErrClosed.
// The client stays open. Closing twice is harmless.
func (s *Sampled) Close() error {
	s.mu.Lock()
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.close(func() { s.report(context.Background(), s.rates(s.table.all(), nil), 0) })
	return nil
}

// wind makes sure that there is a tick to come, at once when it is the first.
func (s *Sampled) wind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil || s.isClosed() {
		return
	}
	pause := s.interval
	if s.last.IsZero() {
		// How many there are is known sooner than what they are asked for.
		s.last = time.Now()
		s.background.start(s.greet)
	}
	s.timer = time.AfterFunc(pause, s.tick)
}

func (s *Sampled) life() time.Duration { return sampledStale*s.interval + time.Second }

// tick ends an interval, in the background, and goes on while keys are followed.
func (s *Sampled) tick() {
	s.background.start(func(ctx context.Context) {
		now := time.Now()
		s.mu.Lock()
		elapsed := now.Sub(s.last)
		s.last = now
		s.mu.Unlock()
		s.turn(ctx, elapsed)
		s.mu.Lock()
		s.timer = nil
		more := s.table.count.Load() > 0
		if !more {
			s.last = time.Time{}
		}
		s.mu.Unlock()
		if !more {
			s.report(ctx, nil, 0)
			if s.table.count.Load() == 0 {
				return
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.timer == nil && !s.isClosed() {
			if s.last.IsZero() {
				s.last = now
			}
			s.timer = time.AfterFunc(max(s.interval/10, s.interval-time.Since(now)), s.tick)
		}
	})
}

// turn reports what was asked for, and plans the next interval.
func (s *Sampled) turn(ctx context.Context, elapsed time.Duration) {
	all := s.table.all()
	own := make(map[*sample]float64, len(all))
	scale := float64(s.interval) / float64(max(elapsed, s.interval/10))
	for _, k := range all {
		asked := k.asked.Swap(0)
		if k.idle++; asked > 0 {
			k.idle = 0
		}
		own[k] = float64(asked) * scale
		which := &s.counts[0]
		if k.local.Load() {
			which = &s.counts[1]
		}
		which.Add(uint64(asked))
	}
	kept, gone := s.choose(all, own, scale)
	rates := append(s.rates(kept, own), s.rates(gone, nil)...)
	ok := s.report(ctx, rates, s.life())
	if !ok && time.Since(time.Unix(0, s.reported.Load())) > sampledStale*s.interval {
		s.outage(kept, own)
		return
	}
	s.unanswered.Store(false)
	for i, k := range kept {
		switch {
		case ok:
			fleet := float64(rates[i].Fleet) / milli * s.seconds()
			k.set(k.demand.next(own[k], fleet, s.units, int(s.fleet.Load())), false)
		case k.demand.known:
			// One report failed: what the fleet was asked for before has to do.
			k.set(k.demand.next(own[k], k.demand.fleet, s.units, int(s.fleet.Load())), false)
		default:
			k.set(alone(own[k], s.units, s.ownShare()), true)
		}
	}
}

// outage plans without Redis, by the policy.
func (s *Sampled) outage(all []*sample, own map[*sample]float64) {
	s.unanswered.Store(s.policy == fallback.Closed)
	for _, k := range all {
		k.demand = demand{}
		part := alone(own[k], s.units, s.ownShare())
		if s.policy == fallback.Open {
			part = plan{p: 1, most: math.MaxInt32}
		}
		k.set(part, true)
	}
}

// choose keeps the keys that are asked for most: those that are followed but for the
// idle ones, and candidates in the place of the least of them.
func (s *Sampled) choose(all []*sample, own map[*sample]float64, scale float64) (kept, gone []*sample) {
	for _, k := range all {
		if k.idle >= sampledIdle {
			gone = append(gone, k)
			s.table.drop(k)
		} else {
			kept = append(kept, k)
		}
	}
	s.mu.Lock()
	found := s.candidates
	s.candidates = make(map[string]int64, len(found))
	s.mu.Unlock()
	if len(found) == 0 {
		return kept, gone
	}
	slices.SortFunc(kept, func(a, b *sample) int { return cmp.Compare(own[b], own[a]) })
	keys := make([]string, 0, len(found))
	for key := range found {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Compare(found[b], found[a]) })
	for _, key := range keys {
		rate := float64(found[key]) * candidateEvery * scale
		if s.table.count.Load() >= s.table.max {
			last := len(kept) - 1
			if last < 0 || rate < 2*own[kept[last]] {
				break
			}
			gone = append(gone, kept[last])
			s.table.drop(kept[last])
			kept = kept[:last]
		}
		k, made := s.table.add(key, maphash.String(s.table.seed, key), func(*sample) {})
		if made {
			own[k] = rate
			kept = slices.Insert(kept, 0, k)
		}
	}
	return kept, gone
}

// rates is what keys were asked for, to be reported; without own they are taken out.
func (s *Sampled) rates(keys []*sample, own map[*sample]float64) []lua.Asked {
	asked := make([]lua.Asked, len(keys))
	for i, k := range keys {
		asked[i] = lua.Asked{ID: k.id, Rate: int64(min(math.Round(own[k]/s.seconds()*milli), 1<<40))}
	}
	return asked
}

func (s *Sampled) seconds() float64 { return s.interval.Seconds() }

// report tells Redis the rates of this process, and sets those of the fleet. A life
// of 0 leaves.
func (s *Sampled) report(ctx context.Context, asked []lua.Asked, life time.Duration) bool {
	var alive, dead int64
	closed := s.closed
	if life == 0 {
		closed = nil // what it says when it leaves
	}
	err := s.tellShard(ctx, s.shards.forID(lua.Sampled), closed, func(ctx context.Context, c *call) (err error) {
		alive, dead, err = c.lua.Report(ctx, 0, s.names, s.number, life.Microseconds(), asked)
		return err
	})
	s.watchTopology(classOf(err), time.Now())
	if err != nil {
		return false
	}
	s.reported.Store(time.Now().UnixNano())
	s.fleet.Store(max(1, alive))
	if dead > 0 && life > 0 {
		_ = s.tell(ctx, lua.Sampled, func(ctx context.Context, c *call) error {
			_, err := c.lua.Bury(ctx, 0, s.names, dead, s.life().Microseconds())
			return err
		})
	}
	return true
}

// greet tells Redis that this process is there, and gives what it follows already its
// share among those that are.
func (s *Sampled) greet(ctx context.Context) {
	before := s.ownShare()
	if !s.report(ctx, nil, s.life()) {
		return
	}
	for _, k := range s.table.all() {
		k.left.Add(int64(alone(0, s.units, s.ownShare()).most) - int64(alone(0, s.units, before).most))
	}
}
