//go:build !race

package topk

import (
	"fmt"
	"strings"
	"testing"
)

// TestFloodStaysBounded: a million keys of a kilobyte are kept as a few short ones.
func TestFloodStaysBounded(t *testing.T) {
	s := New[int](100, 128)
	tail := strings.Repeat("x", 1000)
	n := 1_000_000
	if testing.Short() {
		n = 50_000
	}
	for i := range n {
		key := fmt.Sprint(i, tail)
		s.Add(hashOf(key), key, 1)
	}
	items, _ := s.Items()
	if len(items) != 100 || s.chained() != 100 || cap(s.kept) > 200 {
		t.Errorf("%d are kept, %d in chains, in a heap of %d", len(items), s.chained(), cap(s.kept))
	}
	for _, it := range items {
		if len(it.Key) > 128 {
			t.Fatalf("a key of %d bytes is kept", len(it.Key))
		}
	}
}

// TestAllocations: none for a key that is kept, also a long one.
func TestAllocations(t *testing.T) {
	s := New[int](10, 128)
	for _, key := range []string{"k", strings.Repeat("k", 1000)} {
		h := hashOf(key)
		s.Add(h, key, 1)
		if n := testing.AllocsPerRun(500, func() { s.Add(h, key, 1) }); n != 0 {
			t.Errorf("%v allocations for a key of %d bytes", n, len(key))
		}
	}
}
