//go:build !race

package sim

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// TestSampledFleets: fleets of sampled limiters admit about the limit, whatever part of it they are
// asked for, also when processes come, crash and Redis is away before.
func TestSampledFleets(t *testing.T) {
	for name, p := range map[string]Plan{
		"all ask for three times the limit": {
			Sampled: Sampled{Rate: limiter.PerSecond(40), Interval: time.Second, Keys: 1, TopKeys: 4, LocalKeys: 4},
		},
		"many keys of which few are tracked": {
			Sampled: Sampled{Rate: limiter.PerSecond(4), Interval: 500 * time.Millisecond, Keys: 30, TopKeys: 3, LocalKeys: 8},
		},
		"less than a unit in each interval": {
			Sampled: Sampled{Rate: limiter.PerSecond(1), Interval: 200 * time.Millisecond, Keys: 2, TopKeys: 2, LocalKeys: 1},
		},
		"an outage, and processes that crash": {
			Sampled: Sampled{Rate: limiter.PerSecond(40), Interval: time.Second, Keys: 1, TopKeys: 4, LocalKeys: 4},
			Faults:  []Fault{{Kind: BlackHole, At: 10 * time.Second, For: 10 * time.Second, On: -1}},
			Leaves:  []Leave{{At: 15 * time.Second, Process: 0, Crash: true}, {At: 30 * time.Second, Process: 1, Crash: true}, {At: 31 * time.Second, Process: 2}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p.Seed, p.Processes, p.Callers, p.Keys, p.Think, p.Idle = 1, 8, 6, 1, 100*time.Millisecond, 100*time.Millisecond
			p.Limits, p.Life = []Limit{{Limit: limiter.GCRA(limiter.PerSecond(100), 100)}}, 4*time.Minute
			for _, v := range Run(t, p, false).Violations {
				t.Error(v)
			}
		})
	}
}
