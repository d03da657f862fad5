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
	until     time.Time // nothing can be admitted until then
	end       time.Time // nothing is believed after that
	retryAt   time.Time
	resetAt   time.Time
	// asked counts those who have asked Redis again since.
	asked atomic.Int64
}

func newDenials() *denials { return &denials{seed: maphash.MakeSeed()} }

// hash also leaves room for costs: those of one key don't displace each other.
func (c *denials) hash(id string) uint64 { return maphash.String(c.seed, id) }

func (c *denials) slot(h uint64, n int) *atomic.Pointer[denial] {
	return &c.slots[(h+uint64(n))%denialSlots]
}

func (c *denials) age(h uint64) *atomic.Uint32 { return &c.ages[h%denialSlots] }

// get returns a denial of n units of id, as it stands now. From the time at which
// a bucket has produced n units it lets as many callers ask as there can be units
// for, and denies the others: or all who were denied would come at once for one.
func (c *denials) get(h uint64, id string, p *algo.Params, n int) (algo.Decision, bool) {
	d := c.slot(h, n).Load()
	if d == nil || d.n != n || d.id != id || d.params != *p || d.age != c.age(h).Load() {
		return algo.Decision{}, false
	}
	now := time.Now()
	retryAt := d.retryAt
	if !now.Before(d.until) {
		if !now.Before(d.end) {
			return algo.Decision{}, false
		}
		// In floating point, and a hair more than what can have been produced.
		interval := float64(n) * float64(p.Den) / float64(p.Num) * float64(time.Microsecond)
		produced := 1 + int64(float64(now.Sub(d.until)+time.Microsecond)/interval*(1+1e-9))
		if d.asked.Load() < produced && d.asked.Add(1) <= produced {
			return algo.Decision{}, false
		}
		retryAt = retryAt.Add(time.Duration(float64(produced) * interval))
	}
	return algo.Decision{
		Remaining:  d.remaining,
		RetryAfter: max(1, ceilMicros(retryAt.Sub(now))),
		ResetAfter: max(1, ceilMicros(d.resetAt.Sub(now))),
	}, true
}

// put remembers what Redis said of n units of id when it was asked between sent
// and now: that it denied them, or that a bucket has no room for n more. age is
// that of the key before it was asked: what was forgotten meanwhile is not
// remembered.
func (c *denials) put(h uint64, id string, p *algo.Params, n int, age uint32, d algo.Decision, sent, now time.Time) {
	room := p.RetryAfterReset(d.ResetAfter, int64(n)) // when the bucket itself has it
	if d.Allowed {
		if d.RetryAfter = room; d.RetryAfter <= 0 {
			return
		}
		sent = sent.Add(-2 * time.Microsecond) // by which that may be too long
	}
	// The time starts when Redis decided. Believed from the earliest moment at
	// which that can have been, told from the latest: a caller that comes back
	// when it was told is not met by the same denial.
	until := sent.Add(min(duration(d.RetryAfter), denialLife))
	end := sent.Add(denialLife)
	if !p.Kind.Bucket() || d.RetryAfter > room {
		// A window ends, or a block does: how much there is then is not known.
		end = until
	}
	if !end.After(now) {
		return
	}
	slot := c.slot(h, n)
	if old := slot.Load(); old != nil && old.id == id && old.n == n && old.params == *p && old.age == age && old.until.After(until) {
		return // answers may overtake each other
	}
	slot.Store(&denial{
		id: id, params: *p, n: n, age: age, remaining: d.Remaining,
		until: until, end: end, retryAt: now.Add(duration(d.RetryAfter)), resetAt: now.Add(duration(d.ResetAfter)),
	})
}

// forget drops what is remembered of id.
func (c *denials) forget(id string) { c.age(c.hash(id)).Add(1) }

func ceilMicros(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}
