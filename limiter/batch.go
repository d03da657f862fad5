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
	all    []*decision
	items  []lua.Item
	of     []place // where the decision at the same index stands
	last   map[string]int
	out    []algo.Decision
	ticket ticket
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
		args, n := d.s.args, int64(d.n)
		if len(b.all) > 1 {
			if i, ok := b.last[d.id]; ok && n > 0 && args.Kind != algo.LeakyBucketShaping {
				if it := &b.items[i]; it.Cost == n && it.Params.Params == args.Params {
					b.of = append(b.of, place{i, it.Count})
					it.Count++
					continue
				}
			}
			b.last[d.id] = len(b.items)
		}
		b.of = append(b.of, place{len(b.items), 0})
		b.items = append(b.items, lua.Item{Keys: names.KeysOf(args.Kind, d.id), Params: args, Cost: n, Count: 1})
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
		d.out.Remaining += (it.Admitted - 1 - at.turn) * it.Cost
	default:
		d.out.Allowed = false
	}
}

func (b *batch) free() {
	clear(b.all)
	clear(b.items)
	clear(b.last)
	b.all, b.items, b.of, b.out = b.all[:0], b.items[:0], b.of[:0], b.out[:0]
	b.permit = breaker.Permit{}
	batchPool.Put(b)
}
