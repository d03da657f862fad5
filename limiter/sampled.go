package limiter

import (
	"context"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/internal/topk"
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
	// buriesPerInterval is how many calls a process makes in an interval to take a dead
	// one out of the sums.
	buriesPerInterval = 20
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
// the process's share of the rate, but each process admits the first unit of a key. It
// admits a request or not as it comes; it has no burst beyond an interval's, and
// RetryAfter is the interval. Parts of a unit are carried from interval to interval, so
// that a rate below one per interval is kept over time.
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

	claimed *claimed

	table      sampleTable
	fleet      atomic.Int64     // processes at the last report
	reported   atomic.Int64     // when that was, in ns since then
	unanswered atomic.Bool      // under the policy Closed: nobody is admitted
	counts     [2]atomic.Uint64 // units that were sampled, and that were decided by share

	// candidates are keys beyond the top, by the units that were asked for.
	candidates atomic.Pointer[topk.Sketch[struct{}]]

	mu    sync.Mutex
	timer *time.Timer // nil while it is stopped
	last  time.Time   // of the ticks
}

// NewSampled returns a limiter that brings the fleet to a rate, per key. Every
// process should use the same rate. Options about leases, key shards, a reserve and
// slots are refused. Like New it does not talk to Redis. The error is a *ConfigError.
func NewSampled(rdb redis.UniversalClient, rate Rate, opts ...Option) (*Sampled, error) {
	l, err := newLink(rdb, opts)
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
	s := &Sampled{link: l, number: 1 + rand.Int64N(1<<52)}
	s.reported.Store(math.MinInt64 / 2)
	// What is decided by share may come at once, up to an interval's part.
	burst := float64(rate.N) * float64(l.interval) / float64(max(1, rate.Per))
	if s.spec, err = newSpec(TokenBucket(rate, int(max(1, math.Ceil(min(burst, math.MaxInt32))))), tuning{}); err != nil {
		return nil, err
	}
	s.units = burst
	s.table.seed, s.table.max = maphash.MakeSeed(), int64(l.topKeys)
	s.candidates.Store(s.newCandidates())
	s.fleet.Store(1)
	if s.store, err = fallback.NewStore(l.maxKeys); err != nil {
		return nil, err
	}
	if s.claimed, err = claim(l, "sampled", rate); err != nil {
		return nil, err
	}
	return s, nil
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
	if !s.hooks.observes(n) {
		return s.judge(ctx, key, n)
	}
	start := time.Now()
	res, err := s.judge(ctx, key, n)
	s.hooks.decided(ctx, key, n, res, err, start)
	return res, err
}

// judge is AllowN without telling anybody.
func (s *Sampled) judge(ctx context.Context, key string, n int) (Result, error) {
	if key == "" || n < 0 || int64(n) > s.spec.args.Cap {
		return Result{}, s.spec.check(key, n)
	}
	if s.redis.IsClosed() {
		return Result{}, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	k, h := s.table.find(key)
	if k == nil {
		if n > 0 {
			k = s.follow(key, h)
		}
	}
	if s.unanswered.Load() {
		// Its key is followed all the same: that is how the end of it is noticed.
		if k != nil {
			k.asked.Add(int64(n))
		}
		return Result{Limit: s.spec.limit, RetryAfter: s.interval, Source: SourceClosed}, ErrUnavailable
	}
	if k == nil {
		return s.beyond(key, h, n), nil
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
			if int64(n) > k.denied.Load() {
				k.denied.Store(int64(n))
			}
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
	k, made := s.table.add(key, h, s.prepare)
	if made {
		s.wind()
	}
	return k
}

// prepare gives a key that is followed from now on its first units, as far as the local
// state has not seen them used.
func (s *Sampled) prepare(k *sample) {
	share := s.ownShare()
	units, p := first(s.units, share), s.spec.local(share)
	if left := s.store.Decide(k.key, p, 0).Remaining; left < p.Cap {
		units = min(units, float64(left))
	}
	k.left.Store(int64(units))
	k.carry = carry(units - math.Floor(units))
	k.local.Store(true)
	k.admit(1)
}

// drop ends following a key. What it has used is left to the local state, or a key that
// is asked for now and then would begin anew each time.
func (s *Sampled) drop(k *sample) {
	s.table.drop(k)
	p := s.spec.local(s.ownShare())
	if used := s.store.Decide(k.key, p, 0).Remaining - max(0, k.left.Load()); used > 0 {
		s.store.Decide(k.key, p, used)
	}
}

// ownShare is the part of the rate that is this process's.
func (s *Sampled) ownShare() float64 {
	if s.share > 0 {
		return s.share
	}
	return 1 / float64(max(1, s.fleet.Load()))
}

// beyond decides on a key that is not followed, and now and then takes note of it.
func (s *Sampled) beyond(key string, h uint64, n int) Result {
	if s.policy == fallback.Open {
		return Result{Allowed: true, Limit: s.spec.limit, Remaining: s.spec.limit.Burst(), Source: SourceOpen}
	}
	if n > 0 && rand.N(candidateEvery) == 0 {
		s.candidates.Load().Add(h, key, int64(n))
	}
	s.counts[1].Add(uint64(n))
	return s.spec.result(s.store.Decide(key, s.spec.local(s.ownShare()), int64(n)), SourceLocal)
}

// newCandidates keeps keys as long as they are: they may be followed.
func (s *Sampled) newCandidates() *topk.Sketch[struct{}] {
	return topk.New[struct{}](16+s.topKeys/4, 0)
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
	s.close(func() {
		s.leave(func(cmd lua.Command) bool {
			class, _ := s.redis.Last(&redislink.Op{ID: lua.Sampled, Command: cmd})
			return class == breaker.ClassOK
		})
		s.claimed.release()
	})
	return nil
}
