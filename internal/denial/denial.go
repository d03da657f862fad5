// Package denial remembers what Redis denied a moment ago, so that asking again for the
// same is answered without a call until it could be admitted. It never admits.
package denial

import (
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/internal/algo"
)

const (
	// cells bounds the denials remembered. They are found by their hash; of two that
	// meet, the later one stays.
	cells = 4096
	// Life bounds for how long a denial is remembered: what another process gives
	// back, resets or raises is seen after that at the latest.
	Life = time.Second
)

// Cache remembers denials. It takes no lock, and is safe for concurrent use. Make one
// with New.
type Cache struct {
	cells [cells]atomic.Pointer[denial]
	// ages are raised to forget what was denied before; several keys share one.
	ages [cells]atomic.Uint32
}

// Asking is a key that is about to be asked for. What is forgotten after Ask is not
// remembered by Put.
type Asking struct {
	id   string
	hash uint64
	age  uint32
}

// denial is what Redis said of a cost of n.
type denial struct {
	id        string
	params    algo.Params
	n         int
	age       uint32
	remaining int64
	until     time.Time // nothing can be admitted until then
	end       time.Time // nothing is remembered after that
	retryAt   time.Time
	resetAt   time.Time
	// asked counts those who have asked Redis again since.
	asked atomic.Int64
}

// New returns an empty cache.
func New() *Cache { return new(Cache) }

// Ask begins to ask for an id.
func (c *Cache) Ask(id string) Asking {
	return c.Again(Asking{id: id, hash: c.Hash(id)})
}

// Again begins to ask once more, for the id of a.
func (c *Cache) Again(a Asking) Asking {
	a.age = c.age(a.hash).Load()
	return a
}

// Hash is that of an id. It has no secret seed, so that a run can be repeated: who chooses
// ids that meet in a cell only makes the cache forget them.
func (c *Cache) Hash(id string) uint64 { return xxhash.Sum64String(id) }

// cell leaves room for costs: those of one key don't displace each other.
func (c *Cache) cell(h uint64, n int) *atomic.Pointer[denial] {
	return &c.cells[(h+uint64(n))%cells]
}

func (c *Cache) age(h uint64) *atomic.Uint32 { return &c.ages[h%cells] }

// Get returns a denial of n units, as it stands now. From the time at which
// a bucket has produced n units it lets as many callers ask as there can be units
// for, and denies the others: or all who were denied would come at once for one.
func (c *Cache) Get(a Asking, p *algo.Params, n int) (algo.Decision, bool) {
	d := c.cell(a.hash, n).Load()
	if d == nil || d.n != n || d.id != a.id || d.params != *p || d.age != c.age(a.hash).Load() {
		return algo.Decision{}, false
	}
	now := time.Now()
	retryAt := d.retryAt
	if !now.Before(d.until) {
		if !now.Before(d.end) {
			return algo.Decision{}, false
		}
		// In floating point, and slightly more than what can have been produced.
		interval := float64(n) * float64(p.Den) / float64(p.Num) * float64(time.Microsecond)
		produced := 1 + int64(float64(now.Sub(d.until)+time.Microsecond)/interval*(1+1e-9))
		if d.asked.Load() < produced && d.asked.Add(1) <= produced {
			return algo.Decision{}, false
		}
		retryAt = retryAt.Add(time.Duration(float64(produced) * interval))
	}
	return algo.Decision{
		Remaining:  d.remaining,
		RetryAfter: max(1, algo.Micros(retryAt.Sub(now))),
		ResetAfter: max(1, algo.Micros(d.resetAt.Sub(now))),
	}, true
}

// Put remembers what Redis said of n units when it was asked between sent and now: that
// it denied them, or that a bucket has no room for n more.
func (c *Cache) Put(a Asking, p *algo.Params, n int, d algo.Decision, sent, now time.Time) {
	room := p.RetryAfterReset(d.ResetAfter, int64(n)) // when the bucket itself has it
	if d.Allowed {
		if d.RetryAfter = room; d.RetryAfter <= 0 {
			return
		}
		sent = sent.Add(-2 * time.Microsecond) // by which that may be too long
	}
	// The time starts when Redis decided. It is kept from the earliest moment at
	// which that can have been, but callers wait from the latest: a caller that comes
	// back after its RetryAfter does not get the same denial.
	until := sent.Add(min(algo.Duration(d.RetryAfter), Life))
	end := sent.Add(Life)
	if !p.Kind.Bucket() || d.RetryAfter > room {
		// A window ends, or a block does: how much there is then is not known.
		end = until
	}
	if !end.After(now) {
		return
	}
	cell := c.cell(a.hash, n)
	if old := cell.Load(); old != nil && old.id == a.id && old.n == n && old.params == *p && old.age == a.age && old.until.After(until) {
		return // answers may overtake each other
	}
	cell.Store(&denial{
		id: a.id, params: *p, n: n, age: a.age, remaining: d.Remaining,
		until: until, end: end, retryAt: now.Add(algo.Duration(d.RetryAfter)), resetAt: now.Add(algo.Duration(d.ResetAfter)),
	})
}

// Forget drops what is remembered of id.
func (c *Cache) Forget(id string) { c.age(c.Hash(id)).Add(1) }
