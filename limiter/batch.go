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

func (b *batch) add(d *decision) {
	d.state, d.batch = flying, b
	b.all = append(b.all, d)
}

// arrange puts the decisions into items: those on one key that follow one
// another with the same cost and limit are one.
func (b *batch) arrange(names *lua.Namer) {
	if len(b.all) > 1 && b.last == nil {
		b.last = make(map[string]int, batchSize)
	}
	for _, d := range b.all {
		args, n, count := d.s.args, int64(d.n), max(1, d.count)
		if len(b.all) > 1 {
			if i, ok := b.last[d.id]; ok && n > 0 && args.Kind != algo.LeakyBucketShaping {
				if it := &b.items[i]; it.Cost == n && it.Params.Params == args.Params {
					b.of = append(b.of, place{i, it.Count})
					it.Count += count
					continue
				}
			}
			b.last[d.id] = len(b.items)
		}
		b.of = append(b.of, place{len(b.items), 0})
		b.items = append(b.items, lua.Item{Keys: names.KeysOf(args.Kind, d.id), Params: args, Cost: n, Count: count})
	}
}

// answer gives d its part of what Redis decided on its item.
func (b *batch) answer(d *decision, at place) {
	it := &b.items[at.item]
	if it.Broken {
		d.err, d.class = it.BrokenError(), breaker.ClassBug
		return
	}
	d.err, d.class, d.out = nil, breaker.ClassOK, b.out[at.item]
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
	d.lease.note(out.Remaining, b.sent.Add(duration(out.ResetAfter)))
	if out.RetryAfter > 0 {
		d.lease.askAt.Store(b.sent.Add(duration(out.RetryAfter)).UnixNano())
	}
	total := admitted * it.Cost
	if d.state == answered && !d.ahead {
		admitted--
	}
	units := admitted * it.Cost
	if units <= 0 {
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
	if old := d.lease.put(g); old != nil {
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
