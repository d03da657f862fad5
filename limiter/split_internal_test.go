package limiter

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

// TestPartsAreInDifferentSlots: for every key, since CRC-16 is linear: whether
// two slots differ depends only on where their names do.
func TestPartsAreInDifferentSlots(t *testing.T) {
	for _, key := range []string{"a", "customer:42", "{x}"} {
		seen := map[int]int{}
		for i := range lua.MaxParts {
			slot := redislink.Slot(lua.EncodeID(lua.PartKey(key, i)))
			if j, ok := seen[slot]; ok {
				t.Errorf("the parts %d and %d of %q are in slot %d", j, i, key, slot)
			}
			seen[slot] = i
		}
	}
}

// TestLeasesAreOfBothSides: critical calls and others are charged under one burst, whichever limit leaves room for a lease.
func TestLeasesAreOfBothSides(t *testing.T) {
	leased := map[bool]int{}
	for burst := 2; burst < 60; burst++ {
		s, err := newSpec(GCRA(PerSecond(10), burst), tuning{lease: 5, leaseAge: time.Second, headroom: 0.5})
		if err != nil {
			t.Fatal(err)
		}
		leased[s.leased]++
		if s.leased != s.critical.leased || s.args.Cap != s.critical.args.Cap {
			t.Errorf("a burst of %d: leased %v and %v, under %d and %d", burst, s.leased, s.critical.leased, s.args.Cap, s.critical.args.Cap)
		}
	}
	if leased[true] == 0 || leased[false] == 0 {
		t.Error(leased)
	}
}
