package inprocess

import (
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// entry is one key. idleAt is the time from which its state equals never-used.
type entry struct {
	id     string
	kind   algo.Kind
	age    uint32 // raised when the state begins again
	idleAt int64
	rank   int64       // idleAt when the heap last saw it: never later than idleAt
	state  *algo.State // a token bucket has one where it was blocked
	bucket *bucket     // of a token bucket
	*outside
}

// bucket is x/time/rate with its limit, for which that takes two locks. The zero value has not begun.
type bucket struct {
	rate.Limiter
	limit rate.Limit
	burst int64
}

// newEntry returns an entry in one piece of memory with its state.
func newEntry(kind algo.Kind) *entry {
	if kind == algo.TokenBucket {
		x := new(struct {
			entry  entry
			bucket bucket
		})
		x.entry.kind, x.entry.bucket = kind, &x.bucket
		return &x.entry
	}
	x := new(struct {
		entry entry
		state algo.State
	})
	x.entry.kind, x.entry.state = kind, &x.state
	return &x.entry
}

// clear lets e begin again. It keeps its place among those of its hash.
func (e *entry) clear() {
	if e.bucket != nil {
		e.state, *e.bucket = nil, bucket{}
	} else {
		*e.state = algo.State{}
	}
	e.age++
	e.idleAt = 0
	if e.outside != nil {
		*e.outside = outside{next: e.next}
	}
}

// outside is what few keys have but where there is a Redis.
type outside struct {
	next *entry // of the same hash
	lost int64  // since when this process decides alone; 0: Redis decides
	// What Redis said last, if that is newer than the state: how much was left
	// of which limit, and until when that matters. restart says that the state
	// begins again from it; otherwise it is only lowered to it.
	seenCap, seenLeft, seenUntil int64
	restart                      bool
	grants                       grants
	unsent                       *algo.Params // the limit in Redis of a block that Redis does not know
}

// out returns the outside of e, which it gets if it has none.
func (e *entry) out() *outside {
	if e.outside == nil {
		e.outside = new(outside)
	}
	return e.outside
}

// restarts reports that the state begins again from what Redis said.
func (e *entry) restarts() bool { return e.outside != nil && e.restart }

// part is what counts at now of a process's part p of a limit, and the time until it has another
// whole unit, 0 if it never has. e is nil for a key that is not known.
func (e *entry) part(p *algo.Params, now int64) (part algo.Params, more int64) {
	since := now
	if e != nil && e.outside != nil && e.lost != 0 {
		since = e.lost
	}
	return p.In(now, since)
}

// alone notes that this process decides alone under p, where that matters: to what Redis granted, and
// to a part of a window.
func (e *entry) alone(p *algo.Params, now int64) {
	if e.outside == nil && (p.Whole == nil || !p.Kind.Windowed()) {
		return
	}
	if o := e.out(); o.lost == 0 {
		o.lost = now
	}
}

// away is since when Redis was away while this process decided alone, 0 if it was there until ago µs ago: then
// some callers only had too little time, and Redis granted others meanwhile.
func (e *entry) away(now, ago int64) int64 {
	if now-ago <= e.lost {
		return 0
	}
	return e.lost
}

// blocks returns the state with the block of e.
func (e *entry) blocks() *algo.State {
	if e.state == nil {
		e.state = new(algo.State)
	}
	return e.state
}

// blocked is for how long e is blocked at now.
func (e *entry) blocked(now int64) int64 {
	if e.state == nil {
		return 0
	}
	return e.state.Blocked(now)
}

// decide charges n to the entry, or only peeks when it is blocked, and sets all of d.
func (e *entry) decide(d *algo.Decision, p *algo.Params, now, n int64) {
	if e.outside != nil {
		e.revive(p, now)
	}
	if p.Kind == algo.TokenBucket {
		e.tokenBucket(d, p, now, n, e.blocked(now))
	} else {
		p.Decide(d, e.state, now, n)
	}
	e.idleAt = max(e.idleAt, now+d.ResetAfter)
}

// debit charges as much of n as there is room for, also when it is blocked.
func (e *entry) debit(p *algo.Params, now, n int64) {
	if e.outside != nil {
		e.revive(p, now)
	}
	var d algo.Decision
	if p.Kind == algo.TokenBucket {
		left := min(n, e.remaining(p, now))
		if e.tokenBucket(&d, p, now, left, 0); !d.Allowed && left > 1 {
			e.tokenBucket(&d, p, now, left-1, 0) // rounding made it too many by one
		}
	} else {
		d = algo.Debit(*p, e.state, now, n, 0)
	}
	e.idleAt = max(e.idleAt, now+d.ResetAfter)
}

// denied is the decision on n units for which there is no room, or will never be. more is the time
// until p has another unit, 0 if it never has.
func (e *entry) denied(d *algo.Decision, p *algo.Params, now, n, more int64) {
	if n+p.Keep <= p.Cap {
		e.decide(d, p, now, n)
		return
	}
	e.decide(d, p, now, 0)
	wait := more
	if more == 0 || n+p.Keep > p.Cap+1 {
		wait = produceTime(p, n+p.Keep)
	}
	if !d.Allowed { // blocked
		d.ResetAfter = max(d.ResetAfter, wait)
	}
	d.Allowed, d.Delay = false, 0
	d.RetryAfter = max(d.RetryAfter, wait)
}

// produceTime is the time in which the limit lets n units through.
func produceTime(p *algo.Params, n int64) int64 {
	us := float64(n) / float64(p.Num) * float64(p.Den)
	if p.Kind.Windowed() {
		us = float64(n) / float64(max(1, p.Cap)) * float64(p.Den)
	}
	return max(1, int64(min(us, algo.MaxPeriod)))
}

// tokenBucket is x/time/rate with its answers in our terms, for a key that is blocked
// for some time. It sets all of d.
func (e *entry) tokenBucket(d *algo.Decision, p *algo.Params, now, n, blocked int64) {
	limit, t, need := limitOf(p), time.UnixMicro(now), n
	if n > 0 {
		need += p.Keep
	}
	b := e.bucket
	if b.limit != limit || b.burst != p.Cap {
		b = e.under(p, t, limit, float64(need))
	}
	kept := p.Keep == 0 || b.TokensAt(t)+1e-9 >= float64(need)
	d.Allowed = blocked == 0 && (n == 0 || kept && b.AllowN(t, int(n)))
	tokens := b.TokensAt(t)
	d.Allowed = d.Allowed && tokens >= -1e-9 // a peek, where more is used than the burst
	d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay = max(0, int64(tokens+1e-9)), 0, 0, 0
	if !d.Allowed {
		if missing := float64(need) - tokens; missing > 0 {
			d.RetryAfter = max(1, int64(math.Ceil(missing/float64(b.limit)*1e6)))
			// Rounding may leave the last microsecond out, or more of them where
			// a microsecond is less than what a float64 of this size can tell.
			for step := int64(1); b.TokensAt(time.UnixMicro(now+d.RetryAfter)) < float64(need); step *= 2 {
				d.RetryAfter += step
			}
		}
	}
	if missing := float64(p.Cap) - tokens; missing > 0 {
		d.ResetAfter = int64(math.Ceil(missing / float64(b.limit) * 1e6))
	}
	if blocked > 0 {
		d.Remaining, d.RetryAfter, d.ResetAfter = 0, max(d.RetryAfter, blocked), max(d.ResetAfter, d.RetryAfter, blocked)
	}
}

// under is the bucket under another limit, for one who needs so many tokens: that of the key, or a copy for a peek. Until a
// slower limit charges the key, what is used drains at the rate of before.
func (e *entry) under(p *algo.Params, t time.Time, limit rate.Limit, need float64) *bucket {
	b, tokens := e.bucket, float64(p.Cap)
	switch {
	case b.limit == 0:
		b.restart(t, limit, p.Cap, tokens)
		return b
	case p.Whole == nil: // what is used stays used: see algo.Params.level
		tokens = b.TokensAt(t) + float64(p.Cap-b.burst)
	default: // a part keeps its tokens, at most its burst
		tokens = min(b.TokensAt(t), tokens)
	}
	if limit < b.limit && tokens+1e-9 < need {
		limit = b.limit
	}
	if need == 0 {
		b = new(bucket)
	} else if b.limit != limit {
		e.age++ // what was taken at another rate is not given back: see algo.Params.store
	}
	b.restart(t, limit, p.Cap, tokens)
	return b
}

// limitOf is the rate of p.
func limitOf(p *algo.Params) rate.Limit { return rate.Limit(float64(p.Num) / float64(p.Den) * 1e6) }

// restart lets the bucket have so many tokens at t, which may be below 0. It takes whole ones: the fraction is what it
// refills from a moment before t.
func (b *bucket) restart(t time.Time, limit rate.Limit, burst int64, tokens float64) {
	if n := math.Round(tokens); math.Abs(tokens-n) < 1e-8 {
		tokens = n // slightly less than a unit would not be admitted
	}
	whole := math.Floor(tokens)
	t = t.Add(-time.Duration((tokens - whole) / float64(limit) * float64(time.Second)))
	taken := burst - int64(whole)
	*b = bucket{limit: limit, burst: burst}
	b.SetLimitAt(time.Time{}, rate.Inf) // what is unlimited is full
	b.SetBurstAt(time.Time{}, int(max(burst, taken)))
	b.SetLimitAt(t, limit)
	b.ReserveN(t, int(taken))
	if debt := taken - burst; debt > 0 {
		b.ReserveN(t, int(debt))
		b.SetBurstAt(t, int(burst))
	}
}

func (e *entry) giveBack(p *algo.Params, now, at, taken, n int64) int64 {
	if p.Kind != algo.TokenBucket {
		return algo.GiveBack(*p, e.state, now, at, taken, n)
	}
	if e.bucket.limit == 0 {
		return 0
	}
	// As algo.GiveBack, of what cannot have drained since.
	limit, burst := e.bucket.limit, e.bucket.burst
	perMicro := float64(limit) / 1e6
	back := min(float64(n), float64(taken)-float64(max(0, now-at))*perMicro)
	before := e.bucket.TokensAt(time.UnixMicro(now))
	tokens := min(before+back, float64(burst))
	if tokens <= before { // it is full, or all of them may have drained
		return 0
	}
	e.bucket.restart(time.UnixMicro(now), limit, burst, tokens)
	return int64(min(tokens-before, float64(n)) + 1e-9)
}

// revive applies what Redis said last, if that is newer. The part of p in what was
// left is its part in the limit. A block goes on.
func (e *entry) revive(p *algo.Params, now int64) {
	if e.seenUntil == 0 {
		return
	}
	left := p.Cap
	if now < e.seenUntil {
		left = min(p.Cap, int64(float64(e.seenLeft)*float64(p.Cap)/float64(e.seenCap)))
	}
	restart := e.restart
	e.seenUntil, e.restart = 0, false
	if !restart && e.remaining(p, now) <= left {
		return
	}
	e.age++
	if p.Kind == algo.TokenBucket {
		t := time.UnixMicro(now)
		e.bucket.restart(t, limitOf(p), p.Cap, float64(left))
		return
	}
	until, length := e.state.Until, e.state.Length
	*e.state = algo.Warm(*p, now, left)
	e.state.Until, e.state.Length = until, length
}

// level is what is used of the key's own bucket, in 1/p.Den units, and 0 where it has none.
func (e *entry) level(p *algo.Params, now int64) int64 {
	switch {
	case e.id == "" || p.Kind.Windowed():
		return 0
	case p.Kind == algo.TokenBucket:
		used := float64(e.bucket.burst) - e.bucket.TokensAt(time.UnixMicro(now))
		return max(0, int64(math.Ceil((used-1e-9)*float64(p.Den))))
	}
	return p.Read(e.state, now, 0).Level
}

// remaining is what is left of the state, whether or not the key is blocked.
func (e *entry) remaining(p *algo.Params, now int64) int64 {
	if p.Kind == algo.TokenBucket {
		var d algo.Decision
		e.tokenBucket(&d, p, now, 0, 0)
		return d.Remaining
	}
	return algo.Step(*p, e.state, now, 0).Remaining
}
