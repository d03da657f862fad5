package sampled

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/random"
)

const (
	tableCells = 4096
	// always is the threshold of a key of which everything is admitted.
	always = math.MaxUint64
)

// sample is one key that is tracked.
type sample struct {
	key, id string

	// Written at every decision.
	asked atomic.Int64
	left  atomic.Int64 // of what this process may admit in this interval
	_     [48]byte

	// Written once per interval.
	threshold atomic.Uint64 // what a random number must be below
	salt      atomic.Uint64 // of the random numbers
	local     atomic.Bool
	demand    demand
	plan      plan // of the last report, of a process that has sent one
	recent    recent
	carry     carry
	idle      int

	// denied is the largest cost that was denied because units were missing.
	denied atomic.Int64
}

// sampleTable finds samples without a lock: those that were found last by one load.
type sampleTable struct {
	seed  maphash.Seed
	max   int64
	count atomic.Int64
	cells [tableCells]atomic.Pointer[sample]
	byKey sync.Map // string → *sample
}

// find returns the sample of a key; nil when it is not tracked.
func (t *sampleTable) find(key string) (*sample, uint64) {
	h := maphash.String(t.seed, key)
	if k := t.cells[h%tableCells].Load(); k != nil && k.key == key {
		return k, h
	}
	v, ok := t.byKey.Load(key)
	if !ok {
		return nil, h
	}
	t.remember(v.(*sample), h)
	return v.(*sample), h
}

// remember lets find return k by one load, unless k was dropped since it was found.
func (t *sampleTable) remember(k *sample, h uint64) {
	cell := &t.cells[h%tableCells]
	cell.Store(k)
	if now, _ := t.byKey.Load(k.key); now != k {
		cell.CompareAndSwap(k, nil)
	}
}

// add tracks a key, unless there are too many. made is false when it was there.
func (t *sampleTable) add(key string, start func(*sample)) (k *sample, made bool) {
	if t.count.Add(1) > t.max {
		t.count.Add(-1)
		return nil, false
	}
	k = &sample{key: key, id: lua.EncodeID(key)}
	k.salt.Store(random.Uint64())
	start(k)
	v, there := t.byKey.LoadOrStore(key, k)
	if there {
		t.count.Add(-1)
	}
	return v.(*sample), !there
}

func (t *sampleTable) drop(k *sample) {
	t.byKey.Delete(k.key)
	t.cells[maphash.String(t.seed, k.key)%tableCells].CompareAndSwap(k, nil)
	t.count.Add(-1)
}

// replaced reports that the key of k, which was dropped, is tracked again.
func (t *sampleTable) replaced(k *sample) bool {
	_, ok := t.byKey.Load(k.key)
	return ok
}

func (t *sampleTable) all() []*sample {
	out := make([]*sample, 0, t.count.Load())
	t.byKey.Range(func(_, k any) bool {
		out = append(out, k.(*sample))
		return true
	})
	return out
}

// again begins an interval without a report: with the plan of the last one.
func (k *sample) again(own, limit, share float64) {
	if k.plan.most == 0 {
		k.begin(alone(own, limit, share), true)
		return
	}
	if part := k.plan; k.local.Load() {
		part.own = own
		k.begin(part, true)
	} else {
		k.begin(part.expect(own), false)
	}
}

// begin begins an interval.
func (k *sample) begin(part plan, local bool) {
	k.plan = part
	// A cost that is within the limit must fit at some time.
	part.most = max(part.most, float64(k.denied.Load()))
	// Decisions may take from it meanwhile.
	left := k.left.Load()
	units, p := k.carry.begin(left, part)
	k.left.Add(units - left)
	k.local.Store(local)
	k.admit(p)
}

// admit sets the probability.
func (k *sample) admit(p float64) {
	t := uint64(always)
	if p < 1-1e-15 {
		t = uint64(p * (1 << 63) * 2)
	}
	k.threshold.Store(t)
	k.salt.Add(1 << 40) // more than what is asked for in an interval
}

// draw returns a random number for a decision, by what was asked for in this interval until then.
func (k *sample) draw(asked int64) uint64 { return random.Of(k.salt.Load() + uint64(asked)) }
