package sampled

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/lua"
)

const (
	tableCells   = 4096
	tableStripes = 64
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
	local     atomic.Bool
	demand    demand
	carry     carry
	idle      int

	// denied is the largest cost that was denied because units were missing.
	denied atomic.Int64
}

// sampleTable finds samples without a lock, mostly.
type sampleTable struct {
	seed    maphash.Seed
	max     int64
	count   atomic.Int64
	cells   [tableCells]atomic.Pointer[sample]
	stripes [tableStripes]struct {
		mu    sync.RWMutex
		byKey map[string]*sample
	}
}

// find returns the sample of a key; nil when it is not tracked.
func (t *sampleTable) find(key string) (*sample, uint64) {
	h := maphash.String(t.seed, key)
	cell := &t.cells[h%tableCells]
	if k := cell.Load(); k != nil && k.key == key {
		return k, h
	}
	st := &t.stripes[h%tableStripes]
	st.mu.RLock()
	k := st.byKey[key]
	st.mu.RUnlock()
	if k != nil {
		cell.Store(k)
	}
	return k, h
}

// add tracks a key, unless there are too many. made is false when it was there.
func (t *sampleTable) add(key string, h uint64, start func(*sample)) (k *sample, made bool) {
	st := &t.stripes[h%tableStripes]
	st.mu.Lock()
	defer st.mu.Unlock()
	if k = st.byKey[key]; k != nil {
		return k, false
	}
	if t.count.Add(1) > t.max {
		t.count.Add(-1)
		return nil, false
	}
	k = &sample{key: key, id: lua.EncodeID(key)}
	start(k)
	if st.byKey == nil {
		st.byKey = make(map[string]*sample)
	}
	st.byKey[key] = k
	return k, true
}

func (t *sampleTable) drop(k *sample) {
	h := maphash.String(t.seed, k.key)
	st := &t.stripes[h%tableStripes]
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.byKey, k.key)
	t.cells[h%tableCells].CompareAndSwap(k, nil)
	t.count.Add(-1)
}

func (t *sampleTable) all() []*sample {
	out := make([]*sample, 0, t.count.Load())
	for i := range t.stripes {
		st := &t.stripes[i]
		st.mu.RLock()
		for _, k := range st.byKey {
			out = append(out, k)
		}
		st.mu.RUnlock()
	}
	return out
}

// begin begins an interval.
func (k *sample) begin(part plan, local bool) {
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
}
