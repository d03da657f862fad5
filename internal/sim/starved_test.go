//go:build !race

package sim

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// TestNoProcessIsStarved: of up to eight processes that wait for one key, none gets more than
// twice of what another gets, although Redis is nearer to one; and the limit is used. Not
// with the race detector, with which the scheduler of Go draws who asks first. Each algorithm is tried with each
// number of processes, and there with one of three seeds; with HOLDFAST_LONG=1 with all of them.
func TestNoProcessIsStarved(t *testing.T) {
	long(t)
	const life = 10 * time.Second
	for i, limit := range []limiter.Limit{
		limiter.GCRA(limiter.PerSecond(100), 10), limiter.TokenBucket(limiter.PerSecond(100), 10), limiter.FixedWindow(limiter.PerSecond(100)),
		limiter.SlidingWindowLog(limiter.PerSecond(100)), limiter.SlidingWindowCounter(limiter.PerSecond(100)), limiter.LeakyBucketShaping(limiter.PerSecond(100), 10),
	} {
		for j, processes := range []int{2, 4, 8} {
			t.Run(limit.String()+"/"+strconv.Itoa(processes), func(t *testing.T) {
				for seed := range uint64(3) {
					if !whole() && seed != uint64(i+j)%3 {
						continue
					}
					standing(t, seed, processes, limit, func(i int) time.Duration { return time.Duration(i) * 100 * time.Microsecond }, func(t *testing.T, l *lines) {
						got, slowest := l.wait(t, 50, life)
						t.Logf("%v admitted, slowest %v, decisions %v", got, slowest, l.decisions)
						if least, most := slices.Min(got), slices.Max(got); most > 2*least {
							t.Errorf("from %d to %d were admitted of each process", least, most)
						}
						if all := sum(got); all < 950 {
							t.Errorf("%d were admitted, of 1000", all)
						}
					})
				}
			})
		}
	}
}

// TestLargerCostsAreNotStarved: a process whose callers wait for two units at a time gets at least half of
// what one gets whose callers wait for one.
func TestLargerCostsAreNotStarved(t *testing.T) {
	for _, burst := range []int{10, 100} {
		standing(t, 1, 2, limiter.GCRA(limiter.PerSecond(100), burst), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			units := make([]int, 2)
			for i, cost := range []int{2, 1} {
				for range burst / 5 {
					wg.Go(func() {
						for {
							if _, err := l.limiters[i].Wait(ctx, "k", limiter.Cost(cost)); err != nil {
								return
							}
							l.mu.Lock()
							units[i] += cost
							l.mu.Unlock()
						}
					})
				}
			}
			time.Sleep(20 * time.Second)
			cancel()
			wg.Wait()
			if units[0]*2 < units[1] || sum(units) < 1900 {
				t.Errorf("burst %d: %v units in 20 s, at a cost of 2 and 1", burst, units)
			}
		})
	}
}
