package sim

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// TestKept lets fleets live again in which a promise did not hold once.
func TestKept(t *testing.T) {
	for name, p := range map[string]Plan{
		"reads are answered, writes rejected": {
			Seed: 1, Processes: 4, Callers: 2, Keys: 1, Limits: []limiter.Limit{limiter.GCRA(limiter.PerMinute(20), 10)},
			Life: 2 * time.Minute, Think: 100 * time.Millisecond, Looks: 0.6,
			Faults: []Fault{{Kind: RejectingWrites, At: 30 * time.Second, For: 40 * time.Second, Text: writeRejections[0]}},
		},
		"Redis is back for two seconds": {
			Seed: 1, Processes: 8, Callers: 2, Keys: 1, Limits: []limiter.Limit{limiter.GCRA(limiter.PerSecond(100), 1)},
			Life: 2 * time.Minute, Think: 30 * time.Millisecond,
			Faults: []Fault{
				{Kind: Refused, At: 30 * time.Second, For: 10 * time.Second},
				{Kind: Refused, At: 42 * time.Second, For: 30 * time.Second},
			},
		},
		"a slow log": {
			Seed: 1, Processes: 3, Callers: 2, Keys: 2, Limits: []limiter.Limit{limiter.SlidingWindowLog(limiter.PerMinute(200))},
			Life: 3 * time.Minute, Think: 100 * time.Millisecond,
			Faults: []Fault{
				{Kind: Far, At: 30 * time.Second, For: 20 * time.Second, By: 60 * time.Millisecond},
				{Kind: ClockSteps, At: 40 * time.Second, By: -time.Hour},
				{Kind: RestartedEmpty, At: 45 * time.Second, For: 2 * time.Second},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range Run(t, p, false).Violations {
				t.Error(v)
			}
		})
	}
}
