package sim

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// TestAnsweredCallersLeaveTogether: callers who were answered by one call and ask again leave with
// the next. With three calls in flight a third of all who ask share each, and not a fourth.
func TestAnsweredCallersLeaveTogether(t *testing.T) {
	const callers, rounds = 12, 100
	standing(t, 1, 1, limiter.GCRA(limiter.PerSecond(100_000), 100_000), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
		sent := func() int {
			l.srv.mu.Lock()
			defer l.srv.mu.Unlock()
			return l.srv.commands
		}
		before := sent()
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for range rounds {
					if res, err := l.limiters[0].Allow(t.Context(), fmt.Sprint("k", i)); err != nil || res.Source != limiter.SourceRedis {
						t.Errorf("%+v, %v", res, err)
					}
				}
			})
		}
		wg.Wait()
		// A third of the callers each, a little more for the first and the last round.
		if n := sent() - before; n > rounds*3*11/10 {
			t.Errorf("%d calls for %d decisions", n, callers*rounds)
		}
	})
}
