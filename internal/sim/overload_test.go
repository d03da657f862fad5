//go:build !race

package sim

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestTenThousandCallers: of 10,000 callers of as many keys, who ask again as soon as they have
// a decision, Redis decides for 99 % where it can do so within the budget. Where it cannot, it decides
// for as many as it can, the others have a decision within the budget, and Health says that it
// is overloaded, not that it failed. Not with the race detector, which takes many times as long.
func TestTenThousandCallers(t *testing.T) {
	long(t)
	const callers, rounds, budget = 10_000, 5, 50 * time.Millisecond
	const oneCall = 256 // callers may have been sent before it was known how long a call takes
	for _, c := range []struct {
		command time.Duration // of up to 256 keys, for so many callers
		byRedis float64       // at least
		within  bool          // nobody is too many
	}{
		{command: 800 * time.Microsecond, byRedis: 0.99, within: true}, // 320,000 decisions a second, 32 ms for all
		{command: 2 * time.Millisecond, byRedis: 0.5},                  // 128,000, of which 60 % of the callers have one in time
	} {
		t.Run(c.command.String(), func(t *testing.T) {
			standing(t, 1, 1, limiter.GCRA(limiter.PerSecond(100), 100), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
				l.srv.mu.Lock()
				l.srv.health.Slow = c.command - 20*time.Microsecond
				l.srv.mu.Unlock()
				before := l.limiters[0].Health()
				took, sources := make([][]time.Duration, callers), make([]map[limiter.Source]uint64, callers)
				var wg sync.WaitGroup
				for i := range callers {
					sources[i] = map[limiter.Source]uint64{}
					wg.Go(func() {
						for range rounds {
							start := time.Now()
							res, err := l.limiters[0].Allow(t.Context(), fmt.Sprint("user:", i))
							took[i] = append(took[i], time.Since(start))
							if err != nil || !res.Allowed {
								t.Errorf("%+v, %v", res, err)
							}
							sources[i][res.Source]++
						}
					})
				}
				wg.Wait()
				all := map[limiter.Source]uint64{}
				for i := range sources {
					for s, n := range sources[i] {
						all[s] += n
					}
				}
				longest := slices.Max(slices.Concat(took...))
				health := l.limiters[0].Health().Servers[0]
				overloaded := health.Overloaded - before.Servers[0].Overloaded
				t.Logf("%v, longest %v, overloaded %d", all, longest, overloaded)
				if part := float64(all[limiter.SourceRedis]) / (callers * rounds); part < c.byRedis {
					t.Errorf("Redis decided %.1f %%", 100*part)
				}
				if longest > budget {
					t.Errorf("one took %v", longest)
				}
				if local := all[limiter.SourceLocal]; overloaded > local || local-overloaded > oneCall || local == 0 != c.within || health.State != breaker.Closed || health.LastFailure != breaker.ClassOK {
					t.Errorf("%d were decided here, Health says %+v", all[limiter.SourceLocal], health)
				}
			})
		})
	}
}
