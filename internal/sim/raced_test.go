package sim

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// TestRacedFleet lets fleets with one of each part live for a short time, also with the race
// detector. Longer lives, in TestKept and TestSimulate, have the same code and no more
// goroutines, and run without it.
func TestRacedFleet(t *testing.T) {
	for _, shape := range []Shape{Single, Cluster} {
		p := Plan{
			Seed: 1, Shape: shape, Processes: 3, Callers: 3, Keys: 2,
			Limits: []Limit{
				{Limit: limiter.TokenBucket(limiter.PerSecond(20), 10), Lease: 3, Age: 100 * time.Millisecond},
				{Limit: limiter.FixedWindow(limiter.PerSecond(40)), Parts: 2},
				{Limit: limiter.GCRA(limiter.PerSecond(20), 10)},
			},
			Permits: []Permits{{3, 2 * time.Second}}, Host: Host{Limit: 20, Window: 5 * time.Second, Fails: 0.1},
			Life: 40 * time.Second, Think: 200 * time.Millisecond, Looks: 0.2,
			Faults: []Fault{
				{Kind: Restarted, At: 10 * time.Second, For: 3 * time.Second, On: -1},
				{Kind: Far, At: 16 * time.Second, For: 3 * time.Second, By: 60 * time.Millisecond, On: -1},
				{Kind: ScriptsForgotten, At: 20 * time.Second, On: -1},
			},
			Joins:   []time.Duration{12 * time.Second},
			Leaves:  []Leave{{At: 18 * time.Second}, {At: 19 * time.Second, Process: 1, Crash: true}},
			Changes: []Change{{At: 14 * time.Second, Of: 2, To: limiter.GCRA(limiter.PerSecond(30), 10)}},
		}
		for _, v := range Run(t, p, false).Violations {
			t.Errorf("%v: %v", shape, v)
		}
	}
}
