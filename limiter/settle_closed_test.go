package limiter_test

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/limiter"
)

// TestSettleAfterClose: a closed limiter takes nothing back and charges nothing, with Redis
// or without.
func TestSettleAfterClose(t *testing.T) {
	for _, cost := range []int{0, 3, 5} {
		lim, err := limiter.NewLocal(limiter.FixedWindow(limiter.PerHour(10)))
		must(t, err)
		r, err := lim.Reserve(t.Context(), "k", limiter.Cost(4))
		must(t, err)
		must(t, lim.Close())
		if err := r.Settle(t.Context(), cost); !errors.Is(err, limiter.ErrClosed) {
			t.Errorf("settled at %d: %v, want ErrClosed", cost, err)
		}
	}
}
