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
			Seed: 1, Processes: 4, Callers: 2, Keys: 1, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerMinute(20), 10)}},
			Life: 2 * time.Minute, Think: 100 * time.Millisecond, Looks: 0.6,
			Faults: []Fault{{Kind: RejectingWrites, At: 30 * time.Second, For: 40 * time.Second, Text: writeRejections[0]}},
		},
		"Redis is back for two seconds": {
			Seed: 1, Processes: 8, Callers: 2, Keys: 1, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerSecond(100), 1)}},
			Life: 2 * time.Minute, Think: 30 * time.Millisecond,
			Faults: []Fault{
				{Kind: Refused, At: 30 * time.Second, For: 10 * time.Second},
				{Kind: Refused, At: 42 * time.Second, For: 30 * time.Second},
			},
		},
		"what shaping does not take back is no answer": {
			Seed: 2013, Processes: 6, Callers: 1, Keys: 2, Limits: []Limit{{Limit: limiter.LeakyBucketShaping(limiter.Per(236, 982*time.Millisecond), 753)}},
			Life: 151956013333, Think: 22793402, Options: options{NoDenials: true},
			Faults: []Fault{{Kind: RepliesLost, At: 118252762761, For: 1973349216, Of: []int{5}}},
			Leaves: []Leave{{At: 103981517357}, {At: 92791191738, Process: 2, Crash: true}, {At: 83462488065, Process: 4, Crash: true}},
		},
		"processes that spend from leases are counted": {
			Seed: 2007, Processes: 3, Callers: 2, Keys: 1,
			Limits: []Limit{{Limit: limiter.SlidingWindowCounter(limiter.PerMinute(900)), Lease: 600, Age: 14 * time.Second}},
			Life:   time.Minute, Think: 100 * time.Millisecond,
		},
		"a slow log": {
			Seed: 1, Processes: 3, Callers: 2, Keys: 2, Limits: []Limit{{Limit: limiter.SlidingWindowLog(limiter.PerMinute(200))}},
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
