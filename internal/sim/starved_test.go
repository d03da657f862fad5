//go:build !race

package sim

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// TestNoProcessIsStarved: of up to eight processes that wait for one key, none gets more than
// twice of what another gets, although Redis is nearer to one; and the limit is used. Not
// with the race detector, with which the scheduler of Go draws who asks first.
func TestNoProcessIsStarved(t *testing.T) {
	const life = 10 * time.Second
	for _, limit := range []limiter.Limit{
		limiter.GCRA(limiter.PerSecond(100), 10), limiter.TokenBucket(limiter.PerSecond(100), 10), limiter.FixedWindow(limiter.PerSecond(100)),
		limiter.SlidingWindowLog(limiter.PerSecond(100)), limiter.SlidingWindowCounter(limiter.PerSecond(100)), limiter.LeakyBucketShaping(limiter.PerSecond(100), 10),
	} {
		for _, processes := range []int{2, 4, 8} {
			t.Run(limit.String()+"/"+strconv.Itoa(processes), func(t *testing.T) {
				for seed := range uint64(3) {
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
