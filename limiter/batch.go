package limiter

import (
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// batch is the decisions of one call.
type batch struct {
	q      *batches
	fly    func() // runs it, in memory that is used again
	all    []*decision
	items  []lua.Item
	of     []place // where the decision at the same index stands
	last   map[string]int
	out    []algo.Decision
	ticket ticket
	apart  []string      // the nonces of items that were sent one by one
	gone   chan struct{} // closed when all callers have left

	// Guarded by batches.mu.
	permit  breaker.Permit
	sent    time.Time
	waiting int // callers that have not left
}

// place is the item of a decision, and its turn among those of that item.
type place struct {
	item int
	turn int64
}

var batchPool = sync.Pool{New: func() any { return new(batch) }}

// add puts d into an item of its own, or into that of others on its key which it
// follows with the same cost and limit: those are one. It reports whether it made
// an item.
func (b *batch) add(d *decision, names *lua.Namer) bool {
	d.state, d.batch = flying, b
	b.all = append(b.all, d)
	args, n, count := &d.s.args, int64(d.n), max(1, d.count)
	if i := b.joins(d); i >= 0 {
		it := &b.items[i]
		b.of = append(b.of, place{i, it.Count})
		it.Count += count
		return false
	}
	if b.last == nil {
		b.last = make(map[string]int, batchSize)
	}
	b.last[d.id] = len(b.items)
	b.of = append(b.of, place{len(b.items), 0})
	b.items = append(b.items, lua.Item{Keys: names.KeysOf(args.Kind, d.id), Params: *args, Cost: n, Count: count})
	return true
}

// joins is the item that d can be a part of, or -1.
func (b *batch) joins(d *decision) int {
	i, ok := b.last[d.id]
	if !ok || d.n == 0 || d.s.args.Kind == algo.LeakyBucketShaping {
		return -1
	}
	if it := &b.items[i]; it.Cost != int64(d.n) || it.Params.Params != d.s.args.Params {
		return -1
	}
	return i
}

// answer gives d its part of what Redis decided on its item.
func (b *batch) answer(d *decision, at place) {
	it := &b.items[at.item]
	if it.Broken {
		d.err, d.class = it.BrokenError(), breaker.ClassBug
		return
	}
	d.err, d.class, d.out = nil, breaker.ClassOK, b.out[at.item]
	d.at, d.first = it.At, at.turn*it.Cost+1
	if d.named {
		d.member = b.member(at.item)
	}
	switch {
	case it.Count == 1:
	case at.turn < it.Admitted:
		// Those after it took what it saw remaining.
		d.out.Allowed, d.out.RetryAfter = true, 0
		d.out.Remaining += (it.Admitted - at.turn - b.admitted(d, at)) * it.Cost
	default:
		d.out.Allowed = false
	}
}

// admitted is how many of those that d stands for were admitted.
func (b *batch) admitted(d *decision, at place) int64 {
	it := &b.items[at.item]
	if it.Broken {
		return 0
	}
	return min(max(0, it.Admitted-at.turn), max(1, d.count))
}

// fill gives the lease of d what was admitted beyond its caller's own, or all of
// it when the caller has left. What it returns is to be given back.
func (b *batch) fill(d *decision, at place, names *lua.Namer) (lua.Taken, bool) {
	it, out, admitted := &b.items[at.item], b.out[at.item], b.admitted(d, at)
	if it.Broken {
		return lua.Taken{}, false
	}
	out.Remaining += max(0, it.Admitted-at.turn-admitted) * it.Cost
	remaining, resetAt := max(0, out.Remaining-it.Params.Keep), b.sent.Add(duration(out.ResetAfter))
	if out.RetryAfter > 0 {
		d.lease.askAt.Store(b.sent.Add(duration(out.RetryAfter)).UnixNano())
	}
	total := admitted * it.Cost
	if d.state == answered && !d.ahead {
		admitted--
	}
	units := admitted * it.Cost
	if units <= 0 {
		d.lease.arrive(nil, remaining, resetAt)
		return lua.Taken{}, false
	}
	g := &grant{
		until: b.sent.Add(min(d.s.leaseAge, duration(it.Params.UntilBorder(out)))),
		total: units, at: it.At, first: at.turn*it.Cost + total - units + 1,
	}
	if it.Params.Kind == algo.SlidingWindowLog {
		g.member = b.member(at.item)
	}
	g.left.Store(units)
	if old := d.lease.arrive(g, remaining, resetAt); old != nil {
		return d.lease.unspent(old, names)
	}
	return lua.Taken{}, false
}

// member names what an item has put into a log.
func (b *batch) member(item int) string {
	if len(b.apart) > 0 {
		return lua.Member(b.apart[item], 0)
	}
	return lua.Member(string(b.ticket.nonce), item)
}

func (b *batch) free() {
	clear(b.all)
	clear(b.items)
	clear(b.last)
	clear(b.apart)
	b.all, b.items, b.of, b.out, b.apart = b.all[:0], b.items[:0], b.of[:0], b.out[:0], b.apart[:0]
	b.permit, b.q = breaker.Permit{}, nil
	batchPool.Put(b)
}
