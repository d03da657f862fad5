package limiter

import (
	"testing"

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
