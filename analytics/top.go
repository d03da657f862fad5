package analytics

import (
	"context"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/topk"
	"github.com/holdfast-go/holdfast/limiter"
)

const (
	// longestKey is the length beyond which a key is kept as its hash.
	longestKey = 128
	// stripes is a power of two: 1<<stripeBits.
	stripes    = 1 << stripeBits
	stripeBits = 3
	// mostUnits is where the sum of units ends, so that it does not overflow; no limit
	// has a cost above maxCost.
	mostUnits, maxCost = math.MaxInt64 / 4, 1 << 53
	// lastEvery is how exact the time of the last denial is kept.
	lastEvery = time.Millisecond
)

// Top knows the keys that were denied most. It is safe for concurrent use, runs no
// goroutine and needs no Close. Make one with New; the zero value is not usable.
//
// It keeps, for each of two periods, at most 8 × capacity keys, of about 250 bytes each.
// Denials of keys that it keeps are counted without a lock.
type Top struct {
	capacity int
	config
	seed    maphash.Seed
	start   time.Time // other times are since then, by the monotonic clock
	periods atomic.Pointer[periods]
	mu      sync.Mutex // for the next period
}

// periods are the current one and the one before, which is nil when nothing was asked then.
type periods struct {
	begin, end        time.Duration
	current, previous *counts
}

// counts are those of a period, apart by the hash of the key. Each sketch has the full
// capacity, so that no key needs more than its part of all denials to be kept.
type counts [stripes]*topk.Sketch[counters]

// counters are what is known of a key since it is kept.
type counters struct {
	extra   atomic.Int64 // units that were denied, beyond one for each decision
	allowed atomic.Int64 // decisions
	last    atomic.Int64 // denial, in ns
}

// New returns a Top that can report that many keys, 1 to 10,000. The error
// matches limiter.ErrInvalidConfig.
func New(capacity int, opts ...Option) (*Top, error) {
	c, err := newConfig(capacity, opts)
	if err != nil {
		return nil, configerr.In("analytics", err)
	}
	t := &Top{capacity: capacity, config: *c, seed: maphash.MakeSeed(), start: time.Now()}
	t.periods.Store(&periods{end: t.period, current: t.newCounts()})
	return t, nil
}

func (t *Top) newCounts() *counts {
	c := new(counts)
	for i := range c {
		c[i] = topk.New[counters](t.capacity, longestKey)
	}
	return c
}

func (c *counts) of(hash uint64) *topk.Sketch[counters] { return c[hash>>(64-stripeBits)] }

// Hooks returns what to pass to limiter.WithHooks. Decisions that are errors are not
// counted, and neither are those of a part of a Multi that had room when another part
// denied.
func (t *Top) Hooks() limiter.Hooks { return limiter.Hooks{Decision: t.decided} }

func (t *Top) decided(_ context.Context, d limiter.DecisionInfo) {
	switch {
	case d.Err != nil || d.NotCharged:
	case d.Result.Allowed:
		t.allowed(d.Key)
	default:
		t.denied(d.Key, d.Cost)
	}
}

// allowed counts for the keys that are kept; for others it changes nothing.
func (t *Top) allowed(key string) {
	hash := maphash.String(t.seed, key)
	p := t.periods.Load()
	if e := p.current.of(hash).Find(hash, key); e != nil && time.Since(t.start) < p.end {
		e.Data.allowed.Add(1)
	}
}

func (t *Top) denied(key string, cost int) {
	hash := maphash.String(t.seed, key)
	now := time.Since(t.start)
	e := t.at(now).current.of(hash).Add(hash, key, 1)
	if cost > 1 && e.Data.extra.Add(min(int64(cost-1), maxCost)) > mostUnits {
		e.Data.extra.Store(mostUnits)
	}
	// Not at every denial: those who count a hot key share its memory.
	if last := e.Data.last.Load(); last == 0 || int64(now)-last >= int64(lastEvery) {
		e.Data.last.Store(int64(now))
	}
}

// at returns the periods at a time, and begins a new one when it is due.
func (t *Top) at(now time.Duration) *periods {
	if p := t.periods.Load(); now < p.end {
		return p
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.periods.Load()
	if now < p.end {
		return p
	}
	begin := now - (now-p.begin)%t.period
	next := &periods{begin: begin, end: begin + t.period, current: t.newCounts()}
	if begin == p.end {
		next.previous = p.current
	}
	t.periods.Store(next)
	return next
}
