package redislink_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/internal/sim"
)

// TestFrozenIsNotOverload: requests that find no turn are overload where the server answers others
// meanwhile, and not where it answers none, whether or not the callers of those have left.
func TestFrozenIsNotOverload(t *testing.T) {
	for name, c := range map[string]struct {
		health     sim.Health
		overloaded bool
	}{
		"frozen": {health: sim.Health{Frozen: true}},
		"slow":   {health: sim.Health{Slow: 500 * time.Microsecond}, overloaded: true},
	} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			l, a := process(t, r, "a", nil), limitOf(t, algo.GCRA, 10_000)
			if o, _, err := ask(t.Context(), l, a, "first", 1); err != nil {
				t.Fatal(err)
			} else {
				l.Free(o)
			}
			r.Set(func(h *sim.Health) { *h = c.health })
			var wg sync.WaitGroup
			for i := range 600 {
				wg.Go(func() {
					ctx := t.Context()
					if i >= 3 { // the first ones wait for the calls in flight
						time.Sleep(time.Millisecond)
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, 5*time.Millisecond)
						defer cancel()
					}
					_, _, _ = ask(ctx, l, a, fmt.Sprint("k", i), 1)
				})
			}
			wg.Wait()
			servers, _ := redislink.Health[uint8](l)
			if n := servers[0].Overloaded; n > 0 != c.overloaded {
				t.Errorf("%s: %d requests count as overload", name, n)
			}
		})
	}
}
