package topk

import (
	"crypto/sha256"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

var seed = maphash.MakeSeed()

func hashOf(key string) uint64 { return maphash.String(seed, key) }

// check compares a sketch with the true counts, of which N is the sum.
func check(s *Sketch[int], truth map[string]int64) error {
	var n, sum int64
	for _, c := range truth {
		n += c
	}
	items, least := s.Items()
	kept := make(map[string]bool)
	for _, it := range items {
		if kept[it.Key] {
			return fmt.Errorf("%q is kept twice", it.Key)
		}
		kept[it.Key] = true
		sum += it.Count
		if c := truth[it.Key]; c > it.Count || c < it.Count-it.Error {
			return fmt.Errorf("%q was counted %d times, but is said to be within [%d, %d]", it.Key, c, it.Count-it.Error, it.Count)
		}
		if len(truth) <= s.capacity && it.Error != 0 {
			return fmt.Errorf("%q has an error of %d, with room for all keys", it.Key, it.Error)
		}
		if it.Hash != hashOf(it.Key) || s.Find(it.Hash, it.Key) == nil {
			return fmt.Errorf("%q cannot be found", it.Key)
		}
	}
	switch {
	case len(items) != min(s.capacity, len(truth)) || s.Len() != len(items):
		return fmt.Errorf("%d of %d keys are kept, with a capacity of %d", len(items), len(truth), s.capacity)
	case sum != n:
		return fmt.Errorf("the counts add up to %d, want %d", sum, n)
	case least*int64(s.capacity) > n:
		return fmt.Errorf("the least is %d, above %d/%d", least, n, s.capacity)
	}
	for key, c := range truth {
		switch {
		case kept[key]:
		case c > least:
			return fmt.Errorf("%q was counted %d times and is not kept, although the least is %d", key, c, least)
		case c*int64(s.capacity) > n:
			return fmt.Errorf("%q was counted %d of %d times and is not kept", key, c, n)
		case s.Find(hashOf(key), key) != nil:
			return fmt.Errorf("%q is found and not kept", key)
		}
	}
	if chained := s.chained(); chained != len(items) {
		return fmt.Errorf("%d entries are in chains, and %d are kept", chained, len(items))
	}
	return nil
}

func (s *Sketch[V]) chained() (n int) {
	for i := range s.buckets {
		for e := s.buckets[i].Load(); e != nil; e = e.next.Load() {
			n++
		}
	}
	return n
}

// TestGuarantee: what the type promises, for streams of which some turn late to keys
// that were not there before.
func TestGuarantee(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New[int](rapid.IntRange(1, 12).Draw(t, "capacity"), 0)
		keys := rapid.IntRange(1, 40).Draw(t, "keys")
		truth := make(map[string]int64)
		for range rapid.IntRange(0, 300).Draw(t, "adds") {
			// The less of two draws makes some keys more frequent than others.
			k := min(rapid.IntRange(1, keys).Draw(t, "key"), rapid.IntRange(1, keys).Draw(t, "or"))
			n := rapid.Int64Range(1, 5).Draw(t, "n")
			key := fmt.Sprint(k)
			_, least := s.Items()
			isNew := s.Find(hashOf(key), key) == nil
			if e := s.Add(hashOf(key), key, n); isNew && (e.before != least || e.count.Load() != least+n) {
				t.Fatalf("%q takes the place of one with a count of %d, where the least is %d", key, e.before, least)
			}
			truth[key] += n
		}
		if err := check(s, truth); err != nil {
			t.Fatal(err)
		}
	})
}

// TestCollidingHashes: keys are told apart by themselves.
func TestCollidingHashes(t *testing.T) {
	s := New[int](3, 0)
	for i, key := range []string{"a", "b", "c", "a", "d", "a"} {
		s.Add(7, key, int64(i+1))
	}
	if e := s.Find(7, "a"); e == nil || e.count.Load() != 11 {
		t.Errorf("a: %+v, want a count of 11", e)
	}
	if s.Find(7, "b") != nil || s.Find(7, "d") == nil {
		t.Error("d did not take the place of b")
	}
}

// TestConcurrentAdds: nothing that is added is lost, whatever is replaced meanwhile.
func TestConcurrentAdds(t *testing.T) {
	const callers, each = 64, 3000
	s := New[int](16, 0)
	truths := make([]map[string]int64, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			truth := make(map[string]int64)
			for range each {
				key := fmt.Sprint(r.IntN(1 + r.IntN(60)))
				s.Add(hashOf(key), key, 1)
				truth[key]++
			}
			truths[i] = truth
		})
	}
	for range 100 {
		_, least := s.Items()
		if least > callers*each/16 {
			t.Errorf("the least is %d", least)
		}
	}
	wg.Wait()
	all := make(map[string]int64)
	for _, truth := range truths {
		for key, c := range truth {
			all[key] += c
		}
	}
	if err := check(s, all); err != nil {
		t.Error(err)
	}
}

// TestKeys: short ones are kept as they are, in memory of their own, long ones as their
// SHA-256.
func TestKeys(t *testing.T) {
	s := New[int](10, 128)
	whole := strings.Repeat("a", 1<<20)
	for _, key := range []string{whole[:128], whole[:129]} {
		s.Add(hashOf(key), key, 1)
		e := s.Find(hashOf(key), key)
		if e == nil {
			t.Fatalf("a key of %d bytes is not found", len(key))
		}
		if unsafe.StringData(e.key) == unsafe.StringData(whole) {
			t.Errorf("a key of %d bytes keeps a megabyte", len(key))
		}
	}
	// printf 'a%.0s' $(seq 129) | sha256sum
	const want = "sha256:c12cb024a2e5551cca0e08fce8f1c5e314555cc3fef6329ee994a3db752166ae"
	if e := s.Find(hashOf(whole[:129]), whole[:129]); e.key != want {
		t.Errorf("the long key is kept as %q, want %q", e.key, want)
	}
	if s.Find(hashOf(whole[:128]), whole[:128]).key != whole[:128] {
		t.Error("the short key is not kept as it is")
	}
	if s.Find(hashOf(whole[:129]), whole[:128]+"b") != nil {
		t.Error("another long key is found by its hash alone")
	}
}

// TestChainsAreShort: there are at least twice as many chains as keys, and as many as a power of 2.
func TestChainsAreShort(t *testing.T) {
	for capacity, want := range map[int]int{-1: 8, 0: 8, 1: 8, 4: 8, 5: 16, 8: 16, 9: 32, 1000: 2048} {
		if n := len(New[int](capacity, 0).buckets); n != want {
			t.Errorf("%d chains for %d keys, want %d", n, capacity, want)
		}
	}
	s := New[int](8, 0)
	for hash := range uint64(32) {
		s.Add(hash, fmt.Sprint(hash), 1)
	}
	for hash := range uint64(32) {
		if s.bucket(hash) != s.bucket(hash+16) || s.bucket(hash) == s.bucket(hash+1) {
			t.Errorf("the chain of the hash %d", hash)
		}
	}
	if s = New[int](0, 0); s.capacity != 1 {
		t.Errorf("a capacity of %d", s.capacity)
	}
}

// TestKept: what is as long as the longest is kept as it is, and so is all without a longest.
func TestKept(t *testing.T) {
	for _, c := range []struct {
		longest int
		hashed  bool
	}{{0, false}, {1, true}, {9, true}, {10, false}, {-1, false}} {
		if got := Kept("0123456789", c.longest); (got != "0123456789") != c.hashed {
			t.Errorf("longest %d: %q", c.longest, got)
		}
	}
}

// TestDigests are the SHA-256 of the whole key, of any length.
func TestDigests(t *testing.T) {
	for _, n := range []int{1, 2, 255, 256, 257, 511, 512, 513, 1000} {
		key := strings.Repeat("k", n-1) + "!"
		if got, want := Kept(key, 0), key; got != want {
			t.Errorf("%d bytes, kept as they are: %q", n, got)
		}
		d := digest(key)
		if want := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(key))); string(d[:]) != want {
			t.Errorf("%d bytes: %s, want %s", n, d, want)
		}
	}
}

// TestLengthsOfKeys: a key is found, whatever the longest is, and counted once.
func TestLengthsOfKeys(t *testing.T) {
	for _, longest := range []int{0, 1, 2, 70, 71, 72} {
		s := New[int](100, longest)
		for n := 1; n < 80; n++ {
			key := strings.Repeat("k", n)
			e := s.Add(hashOf(key), key, 1)
			if s.Find(hashOf(key), key) != e || s.Add(hashOf(key), key, 1) != e {
				t.Errorf("at most %d bytes: a key of %d is not found", longest, n)
			}
		}
	}
}
