package inprocess

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/internal/algo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	sec = int64(1_000_000)
	t0  = 1_760_000_000 * sec
)

func mustParams(t testing.TB, l algo.Limit) algo.Params {
	t.Helper()
	p, err := l.Params()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// partOf is what a share of a limit is.
func partOf(t testing.TB, l algo.Limit, share float64) algo.Params {
	t.Helper()
	p := mustParams(t, l)
	return p.Scale(share)
}

// storeAt returns a store whose clock is *now.
func storeAt(t testing.TB, maxKeys int, now *int64) *Store {
	t.Helper()
	return newStore(maxKeys, func() int64 { return atomic.LoadInt64(now) })
}

// TestStoreAgreesWithStep: what the store decides is what the step functions
// decide, in every field; x/time/rate counts in floating point, so the token
// bucket's times may be a microsecond off.
func TestStoreAgreesWithStep(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		kind := rapid.SampledFrom(algo.Kinds[:]).Draw(rt, "kind")
		p := mustParams(t, algo.Limit{
			Kind: kind, N: rapid.Int64Range(1, 20).Draw(rt, "n"),
			Per: rapid.Int64Range(1000, sec).Draw(rt, "per"), Burst: rapid.Int64Range(1, 20).Draw(rt, "burst"),
		})
		p.Keep = rapid.Int64Range(0, p.Cap-1).Draw(rt, "keep")
		now := t0
		s := storeAt(t, 10, &now)
		var ref algo.State
		for range rapid.IntRange(1, 40).Draw(rt, "requests") {
			if rapid.IntRange(0, 9).Draw(rt, "block") == 0 {
				d := rapid.Int64Range(1, p.Den).Draw(rt, "block for")
				if got, want := s.Block("k", p, d), algo.Block(&ref, now, d); got != want {
					rt.Fatalf("blocked for %d, want %d", got, want)
				}
			}
			n := rapid.Int64Range(0, p.Cap-p.Keep).Draw(rt, "cost")
			tokens := ref
			got, want := s.Decide("k", p, n), algo.Decide(p, &ref, now, n)
			if got != want {
				if kind != algo.TokenBucket {
					rt.Fatalf("cost %d at +%d: store %+v, step %+v", n, now-t0, got, want)
				}
				if got.Allowed != want.Allowed {
					// Only within 1 µs of the boundary.
					d := algo.Step(p, &tokens, now+1, n)
					if !d.Allowed {
						rt.Fatalf("cost %d at +%d: store %+v, step %+v", n, now-t0, got, want)
					}
					return
				}
				if abs(got.RetryAfter-want.RetryAfter) > 1 || abs(got.ResetAfter-want.ResetAfter) > 1 || abs(got.Remaining-want.Remaining) > 1 {
					rt.Fatalf("cost %d at +%d: store %+v, step %+v", n, now-t0, got, want)
				}
			}
			now += rapid.Int64Range(0, p.Den/p.Num).Draw(rt, "pause")
		}
	})
}

func abs(x int64) int64 { return max(x, -x) }

func TestRetryAfterIsExactForTheTokenBucket(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := algo.Limit{
			Kind: algo.TokenBucket, N: rapid.Int64Range(1, 1_000_000).Draw(rt, "n"),
			Per: rapid.Int64Range(1, 3600*sec).Draw(rt, "per"), Burst: rapid.Int64Range(1, 1_000_000).Draw(rt, "burst"),
		}
		p, err := l.Params()
		if err != nil {
			return
		}
		now := t0
		s := storeAt(t, 10, &now)
		s.Decide("k", p, p.Cap)
		now += rapid.Int64Range(0, sec).Draw(rt, "pause")
		n := rapid.Int64Range(1, p.Cap).Draw(rt, "cost")
		if d := s.Decide("k", p, n); !d.Allowed {
			now += d.RetryAfter
			if d := s.Decide("k", p, n); !d.Allowed {
				rt.Fatalf("%+v: still denied after exactly its retry-after: %+v", p, d)
			}
		}
	})
}

// TestNeverMoreKeysThanTheCap, nor fewer where there are so many in use.
func TestNeverMoreKeysThanTheCap(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 1, Per: sec, Burst: 1})
	for _, limit := range []int{1, 7, 64, 100, 1000} {
		now := t0
		s := storeAt(t, limit, &now)
		for i := range 10 * limit {
			s.Decide(fmt.Sprint("k", i), p, 1)
		}
		if got := s.Len(); got != limit {
			t.Errorf("cap %d: %d keys", limit, got)
		}
	}
}

// TestFloodDoesNotForgetHotKeys: under a flood of unique keys at 100 times the
// cap, a key that is at its limit is never forgotten, so never admitted anew.
func TestFloodDoesNotForgetHotKeys(t *testing.T) {
	const keys = 640
	hourly := mustParams(t, algo.Limit{Kind: algo.FixedWindow, N: 5, Per: 3600 * sec})
	now := t0
	s := storeAt(t, keys, &now)
	admitted := 0
	for i := range 100 * keys {
		if i%50 == 0 {
			if s.Decide("hot", hourly, 1).Allowed {
				admitted++
			}
		}
		s.Decide(fmt.Sprint("flood", i), hourly, 1)
		now += 10
	}
	if admitted != 5 {
		t.Errorf("the hot key was admitted %d times, its limit is 5", admitted)
	}
}

// TestIdleKeysMakeRoom: a key whose state equals never-used is forgotten before
// any other, so that keys in use come and go within the cap.
func TestIdleKeysMakeRoom(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 1, Per: sec, Burst: 3})
	now := t0
	s := storeAt(t, 1, &now)
	s.Decide("a", p, 3)
	now += 3*sec - 1
	if s.Decide("b", p, 1); s.get(algo.GCRA, "b") != nil {
		t.Error("a key that is not idle yet was forgotten")
	}
	now++
	if s.Decide("b", p, 1); s.get(algo.GCRA, "b") == nil {
		t.Error("an idle key kept its place")
	}
}

// TestOverflowIsNeitherOpenNorClosed: keys beyond the cap share one limit.
func TestOverflowIsNeitherOpenNorClosed(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.TokenBucket, N: 1, Per: sec, Burst: 5})
	now := t0
	s := storeAt(t, 1, &now)
	s.Decide("first", p, 1)
	admitted := 0
	for i := range 1000 {
		if s.Decide(fmt.Sprint("k", i), p, 1).Allowed {
			admitted++
		}
	}
	if admitted != 5 {
		t.Errorf("%d of 1000 overflowing keys admitted, want the one shared burst of 5", admitted)
	}
}

func TestCostAboveTheShareIsDenied(t *testing.T) {
	for _, kind := range algo.Kinds {
		p := partOf(t, algo.Limit{Kind: kind, N: 10, Per: sec, Burst: 10}, 0.25)
		now := t0
		d := storeAt(t, 1, &now).Decide("k", p, 5)
		if d.Allowed || d.RetryAfter < 1 || d.Remaining != 2 {
			t.Errorf("%v: a cost of 5 at a share of 2 gave %+v", kind, d)
		}
	}
}

func TestPeekMakesNoKey(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 10, Per: sec, Burst: 10})
	now := t0
	s := storeAt(t, 1, &now)
	if d := s.Decide("k", p, 0); !d.Allowed || d.Remaining != 10 || s.Len() != 0 {
		t.Errorf("peek gave %+v and %d keys", d, s.Len())
	}
	s.Decide("full", p, 10)
	s.Decide("overflow", p, 4)
	if d := s.Decide("other", p, 0); d.Remaining != 6 {
		t.Errorf("peek into the shared state gave %+v, want 6 remaining", d)
	}
}

func TestBlockAndReset(t *testing.T) {
	for _, kind := range algo.Kinds {
		p := mustParams(t, algo.Limit{Kind: kind, N: 10, Per: sec, Burst: 10})
		p.Keep = 2
		now := t0
		s := storeAt(t, 10, &now)
		s.Decide("k", p, 5)
		if left := s.Block("k", p, 2*sec); left != 2*sec {
			t.Errorf("%v: blocked for %d", kind, left)
		}
		if left := s.Block("k", p, sec); left != 2*sec {
			t.Errorf("%v: a shorter block left %d", kind, left)
		}
		s.Charge("k", p, 1, nil) // what was used elsewhere counts all the same
		for n := range int64(9) {
			if d, want := s.Decide("k", p, n), (algo.Decision{RetryAfter: 2 * sec, ResetAfter: 2 * sec}); d != want || s.Peek("k", p, n) != want {
				t.Errorf("%v: a cost of %d while blocked: %+v", kind, n, d)
			}
		}
		// A cost that never fits waits for as long as it would take to produce.
		if d := s.Decide("k", p, 100); d.Allowed || d.Remaining != 0 || d.RetryAfter != 10*sec+sec/5 || d.ResetAfter != d.RetryAfter {
			t.Errorf("%v: a cost of 100 while blocked: %+v", kind, d)
		}
		s.Observe("k", p, algo.Decision{Allowed: true, Remaining: 9, ResetAfter: 5 * sec}, 1, 0)
		if s.Decide("k", p, 1).Allowed {
			t.Errorf("%v: not blocked any more by what Redis said before", kind)
		}
		if !s.Decide("other", p, 1).Allowed {
			t.Errorf("%v: a block stopped another key", kind)
		}
		now += 2 * sec
		if !s.Decide("k", p, 8).Allowed {
			t.Errorf("%v: still denied after the block", kind)
		}
		s.Block("k", p, sec)
		s.Reset("k")
		if d := s.Decide("k", p, 8); !d.Allowed {
			t.Errorf("%v: after a reset: %+v", kind, d)
		}
	}
}

// TestBlockIsOfAnAlgorithm: a block is a part of the state that it blocks.
func TestBlockIsOfAnAlgorithm(t *testing.T) {
	now := t0
	s := storeAt(t, 10, &now)
	s.Block("k", mustParams(t, algo.Limit{Kind: algo.GCRA, N: 10, Per: sec, Burst: 10}), sec)
	for _, kind := range algo.Kinds {
		p := mustParams(t, algo.Limit{Kind: kind, N: 10, Per: sec, Burst: 10})
		if d := s.Decide("k", p, 1); d.Allowed == (kind == algo.GCRA) {
			t.Errorf("%v: %+v", kind, d)
		}
	}
}

func TestNoAllocationOnAKnownKey(t *testing.T) {
	now := t0
	s := storeAt(t, 100, &now)
	for _, kind := range algo.Kinds {
		p := mustParams(t, algo.Limit{Kind: kind, N: 10, Per: sec, Burst: 10})
		s.Decide("k", p, 1)
		if kind == algo.SlidingWindowLog {
			s.Decide("k", p, p.Cap-1) // from here on it denies
		}
		if got := testing.AllocsPerRun(200, func() { s.Decide("k", p, 1) }); got != 0 {
			t.Errorf("%v: %v allocations", kind, got)
		}
	}
}

func TestMemoryPerKey(t *testing.T) {
	const keys = 50_000
	p := mustParams(t, algo.Limit{Kind: algo.TokenBucket, N: 1, Per: sec, Burst: 1})
	ids := make([]string, keys)
	for i := range ids {
		ids[i] = fmt.Sprint("customer:", i)
	}
	s := NewStore(keys)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, id := range ids {
		s.Decide(id, p, 1)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	per := float64(after.HeapAlloc-before.HeapAlloc) / float64(s.Len())
	t.Logf("%.0f bytes per key", per)
	if per > 200 {
		t.Errorf("%.0f bytes per key", per)
	}
	runtime.KeepAlive(ids)
}

func TestConcurrentCallersGetTheLimitOnce(t *testing.T) {
	for _, kind := range algo.Kinds {
		p := mustParams(t, algo.Limit{Kind: kind, N: 100, Per: sec, Burst: 100})
		now := t0
		s := storeAt(t, 100, &now)
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				for range 20 {
					if s.Decide("k", p, 1).Allowed {
						admitted.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if admitted.Load() != 100 {
			t.Errorf("%v: %d of 1000 admitted, want 100", kind, admitted.Load())
		}
	}
}

// TestKeysComeAndGo: over many times its idle time, a store has no more keys than its cap
// by any count, and keys of every moment have places of their own.
func TestKeysComeAndGo(t *testing.T) {
	const limit = 4
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 1, Per: sec, Burst: 1})
	now := t0
	s := storeAt(t, limit, &now)
	sh := &s.stripes[0]
	for round := range 50 {
		for i := range limit {
			id := fmt.Sprint(round, "-", i)
			if d := s.Decide(id, p, 1); !d.Allowed || s.get(algo.GCRA, id) == nil {
				t.Fatalf("round %d, key %d has no place: %+v", round, i, d)
			}
		}
		if n := len(sh.keys); n > limit || s.Len() != n {
			t.Fatalf("round %d: %d keys in the map, %d in the heap", round, n, s.Len())
		}
		now += sec
	}
}

// TestWhichKeyMakesRoom: the one that is idle, wherever it stands, and not one that was used
// again.
func TestWhichKeyMakesRoom(t *testing.T) {
	p := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 1, Per: sec, Burst: 10})
	now := t0
	s := storeAt(t, 4, &now)
	for i, cost := range []int64{1, 9, 2, 8} { // as many seconds until they are idle
		s.Decide(string(rune('a'+i)), p, cost)
	}
	s.Decide("a", p, 5) // 6 s
	has := func() (ids string) {
		for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
			if s.get(algo.GCRA, id) != nil {
				ids += id
			}
		}
		return ids
	}
	for _, step := range []struct {
		at        int64
		add, want string
	}{{2*sec - 1, "e", "abcd"}, {2 * sec, "e", "abde"}, {5 * sec, "f", "abdf"}} {
		now = t0 + step.at
		s.Decide(step.add, p, 10)
		if got := has(); got != step.want {
			t.Errorf("after %d µs: %s, want %s", step.at, got, step.want)
		}
		if step.add == "e" && step.want == "abde" {
			s.get(algo.GCRA, "e").idleAt = now // as one that was reset
		}
	}
}

// TestPeekIsWhatDecideSays, also where units are kept back or the key is blocked, and
// changes nothing.
func TestPeekIsWhatDecideSays(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := mustParams(t, algo.Limit{Kind: rapid.SampledFrom(algo.Kinds[:]).Draw(rt, "kind"), N: 10, Per: sec, Burst: 10})
		p.Keep = rapid.Int64Range(0, 4).Draw(rt, "keep")
		now := t0
		looked, not := storeAt(t, 4, &now), storeAt(t, 4, &now)
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			if rapid.IntRange(0, 9).Draw(rt, "block") == 0 {
				looked.Block("k", p, sec/20)
				not.Block("k", p, sec/20)
			}
			n := rapid.Int64Range(0, 10).Draw(rt, "cost")
			peek, got, want := looked.Peek("k", p, n), looked.Decide("k", p, n), not.Decide("k", p, n)
			if got != want {
				rt.Fatalf("a peek changed %+v to %+v", want, got)
			}
			if peek.Allowed != want.Allowed || !peek.Allowed && peek.RetryAfter != want.RetryAfter {
				rt.Fatalf("a cost of %d with %d kept: peek %+v, decided %+v", n, p.Keep, peek, want)
			}
			now += rapid.Int64Range(0, sec/10).Draw(rt, "pause")
		}
	})
}

// TestRefundForgivesADebt: what was given back is not charged to Redis afterwards.
func TestRefundForgivesADebt(t *testing.T) {
	for _, kind := range algo.Kinds {
		if kind == algo.LeakyBucketShaping {
			continue // takes nothing back
		}
		p := mustParams(t, algo.Limit{Kind: kind, N: 10, Per: 3600 * sec, Burst: 10})
		now := t0
		s := storeAt(t, 4, &now)
		if d := s.Take("k", &p, 7, &p, nil); !d.Allowed {
			t.Fatalf("%v: %+v", kind, d)
		}
		s.Refund("k", p, 3, 3)
		of := s.Debtors()
		if len(of) != 1 {
			t.Fatalf("%v: %d debts", kind, len(of))
		}
		if d, ok := s.TakeDebt(of[0]); !ok || units(d) != 4 {
			t.Errorf("%v: %d units are owed, want 4", kind, units(d))
		}
	}
}

// get returns the entry of an id, nil without.
func (s *Store) get(kind algo.Kind, id string) *entry {
	st, h, _ := s.lock(id)
	defer st.mu.Unlock()
	return st.get(kind, id, h)
}

// TestKeysOfOneHash: keys whose hashes are the same are still different keys.
func TestKeysOfOneHash(t *testing.T) {
	const h = 42
	ids := []string{"a", "b", "c"}
	for first := range ids {
		st := &NewStore(100).stripes[0]
		for _, id := range ids {
			st.add(algo.GCRA, id, h, 1)
		}
		st.get(algo.GCRA, ids[first], h).clear()
		here := map[string]bool{"a": true, "b": true, "c": true}
		for i := range ids {
			for _, id := range ids {
				if e := st.get(algo.GCRA, id, h); (e != nil) != here[id] || e != nil && e.id != id {
					t.Fatalf("%s: %+v, of those left %v", id, e, here)
				}
			}
			gone := ids[(first+i)%len(ids)]
			st.unlink(st.get(algo.GCRA, gone, h), hashOf(algo.GCRA, h))
			here[gone] = false
		}
		if len(st.keys) > 0 {
			t.Errorf("left: %v", st.keys)
		}
	}
}

// TestSizeOfAKey: with its places in the map and the heap, a key takes less than 200 bytes.
func TestSizeOfAKey(t *testing.T) {
	if n := unsafe.Sizeof(entry{}) + max(unsafe.Sizeof(bucket{}), unsafe.Sizeof(algo.State{})); n > 160 {
		t.Errorf("%d bytes", n)
	}
}

// TestKeysOfASlowerLimitMakeRoom when what a faster one had used has drained, not when the slower one would have drained it.
func TestKeysOfASlowerLimitMakeRoom(t *testing.T) {
	fast := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 1000, Per: sec, Burst: 1000})
	slow := mustParams(t, algo.Limit{Kind: algo.GCRA, N: 10, Per: 86400 * sec, Burst: 10})
	now := t0
	s := storeAt(t, 10, &now)
	for i := range 10 {
		id := fmt.Sprint("k", i)
		s.Decide(id, fast, 1000)
		s.Decide(id, slow, 1)
	}
	now += 2 * 86400 * sec
	for i := range 10 {
		if id := fmt.Sprint("new", i); !s.Decide(id, slow, 10).Allowed {
			t.Errorf("%s has no place", id)
		}
	}
}
