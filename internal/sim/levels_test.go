package sim

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// TestDebtWithoutRoomChangesNoRate: what is used of a key drains as the limit lets it that charged it last. A debt of
// another limit for which there is no room charges nothing.
func TestDebtWithoutRoomChangesNoRate(t *testing.T) {
	fast, slow := algo.Params{Kind: algo.GCRA, Cap: 2, Num: 2, Den: 1_000_000}, algo.Params{Kind: algo.GCRA, Cap: 1, Num: 1, Den: 1_000_000}
	for units, wrong := range map[int64]bool{0: false, 1: true} {
		f := levels{of: map[string]*level{}}
		f.charge(charge{key: "k", kind: decisions, p: fast, units: 1}, nil, 0)
		f.charge(charge{key: "k", kind: debts, p: slow, units: units}, nil, 0)
		if got := f.charge(charge{key: "k", kind: decisions, p: slow, units: 1}, nil, 500_000); (got != "") != wrong {
			t.Errorf("after a debt of %d: %q", units, got)
		}
	}
}
