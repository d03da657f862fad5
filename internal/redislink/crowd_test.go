package redislink_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/sim"
)

// TestManyLeaveTogether: of thousands of callers who came one after the other, and wait for a server that
// does not answer, none leaves much after its time, and they do so in few groups: for each group all
// who wait are checked. Of some hundreds none leaves after its time at all.
func TestManyLeaveTogether(t *testing.T) {
	for _, c := range []struct {
		callers int
		late    time.Duration
	}{
		{callers: 500},
		{callers: 5000, late: 500 * time.Microsecond},
	} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			l, a := process(t, r, "a", nil), limitOf(t, algo.GCRA, 100)
			if _, class, err := ask(t.Context(), l, a, "before", 1); err != nil {
				t.Fatal(class, err)
			}
			r.Set(func(h *sim.Health) { h.Frozen = true })
			var mu sync.Mutex
			groups := map[time.Time]int{}
			var wg sync.WaitGroup
			for i := range c.callers {
				wg.Go(func() {
					began := time.Now()
					if _, _, err := ask(t.Context(), l, a, fmt.Sprint(i), 1); err == nil {
						t.Error("a server that is frozen answered")
					}
					if late := time.Since(began) - l.Budget; late > c.late {
						t.Errorf("of %d one left %v after its time", c.callers, late)
					}
					mu.Lock()
					defer mu.Unlock()
					groups[time.Now()]++
				})
				time.Sleep(time.Microsecond)
			}
			wg.Wait()
			// For each group all are checked who had not left.
			checked, waiting := 0, c.callers
			for _, at := range slices.SortedFunc(maps.Keys(groups), time.Time.Compare) {
				checked += waiting
				waiting -= groups[at]
			}
			t.Logf("%d callers left in %d groups, for which %d were checked", c.callers, len(groups), checked)
			if checked > 1_000_000 {
				t.Errorf("%d callers left in %d groups, for which %d were checked", c.callers, len(groups), checked)
			}
		})
	}
}
