package limiter

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
)

const (
	// denialSlots bounds the denials remembered. They are found by their hash;
	// of two that meet, the later one stays.
	denialSlots = 4096
	// denialLife bounds for how long a denial is believed: what another process
	// gives back, resets or raises is seen after that at the latest.
	denialLife = time.Second
)

// denials remembers what Redis denied a moment ago, so that asking again for the
// same is answered here until it could be admitted. It never admits. It takes no
// lock.
type denials struct {
	seed  maphash.Seed
	slots [denialSlots]atomic.Pointer[denial]
	// ages are raised to forget what was denied before; several keys share one.
	ages [denialSlots]atomic.Uint32
}

// denial is what Redis said of a cost of n.
type denial struct {
	id        string
	params    algo.Params
	n         int
	age       uint32
	remaining int64
	until     time.Time // believed until then
	retryAt   time.Time
	resetAt   time.Time
}

func newDenials() *denials { return &denials{seed: maphash.MakeSeed()} }

// hash also leaves room for costs: those of one key don't displace each other.
func (c *denials) hash(id string) uint64 { return maphash.String(c.seed, id) }

func (c *denials) slot(h uint64, n int) *atomic.Pointer[denial] {
	return &c.slots[(h+uint64(n))%denialSlots]
}

func (c *denials) age(h uint64) *atomic.Uint32 { return &c.ages[h%denialSlots] }

// get returns a denial of n units of id, as it stands now.
func (c *denials) get(h uint64, id string, p *algo.Params, n int) (algo.Decision, bool) {
	d := c.slot(h, n).Load()
	if d == nil || d.n != n || d.id != id || d.params != *p || d.age != c.age(h).Load() {
		return algo.Decision{}, false
	}
	now := time.Now()
	if !now.Before(d.until) {
		return algo.Decision{}, false
	}
	return algo.Decision{
		Remaining:  d.remaining,
		RetryAfter: max(1, ceilMicros(d.retryAt.Sub(now))),
		ResetAfter: max(1, ceilMicros(d.resetAt.Sub(now))),
	}, true
}

// put remembers that Redis denied n units of id, of which it was asked between
// sent and now. age is that of the key before it was asked: what was forgotten
// meanwhile is not remembered.
func (c *denials) put(h uint64, id string, p *algo.Params, n int, age uint32, d algo.Decision, sent, now time.Time) {
	// The time starts when Redis decided. Believed from the earliest moment at
	// which that can have been, told from the latest: a caller that comes back
	// when it was told is not met by the same denial.
	until := sent.Add(min(duration(d.RetryAfter), denialLife))
	if !until.After(now) {
		return
	}
	c.slot(h, n).Store(&denial{
		id: id, params: *p, n: n, age: age, remaining: d.Remaining,
		until: until, retryAt: now.Add(duration(d.RetryAfter)), resetAt: now.Add(duration(d.ResetAfter)),
	})
}

// forget drops what is remembered of id.
func (c *denials) forget(id string) { c.age(c.hash(id)).Add(1) }

func ceilMicros(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}
