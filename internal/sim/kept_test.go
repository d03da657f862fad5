//go:build !race

package sim

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/calendar"
	"github.com/holdfast-go/holdfast/limiter"
)

// again is a fault so many times, so far apart.
func again(f Fault, n int, apart time.Duration) (all []Fault) {
	for range n {
		all = append(all, f)
		f.At += apart
	}
	return all
}

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
		// The last processes ask once in hours, and the first use what there is.
		"a host that says its quota": {
			Seed: 1, Processes: 6, Callers: 2, Keys: 1, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerSecond(10), 10)}},
			Life: 24 * time.Hour, Think: 5 * time.Second, Traffic: Traffic{Ranks: 4}, Host: Host{Limit: 1, Window: 20 * time.Second, Says: true},
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
		"what a reservation did not use is spent from the lease again": {
			Seed: 20469, Processes: 1, Callers: 1, Keys: 1,
			Limits: []Limit{{Limit: limiter.LeakyBucket(limiter.Per(3155, 219519*time.Millisecond), 65), Lease: 12, Age: 1234 * time.Millisecond}},
			Life:   5 * time.Minute, Think: 28910362,
		},
		"other processes hold all units in leases": {
			Seed: 20680, Processes: 5, Callers: 1, Keys: 1,
			Limits: []Limit{{Limit: limiter.SlidingWindowLog(limiter.Per(126, 1042*time.Millisecond)), Lease: 88, Age: 10 * time.Second}},
			Life:   time.Minute, Think: 28320394, Faults: []Fault{{Kind: Restarted, At: 24537473961, For: 15399676226}},
		},
		"a limit becomes lower than what a log holds": {
			Seed: 60013, Processes: 3, Callers: 2, Keys: 1, Limits: []Limit{{Limit: limiter.SlidingWindowLog(limiter.PerMinute(900))}},
			Life: time.Minute, Think: 50 * time.Millisecond, Looks: 0.5,
			Changes: []Change{{At: 40 * time.Second, To: limiter.SlidingWindowLog(limiter.PerMinute(300))}},
		},
		"connections end while answers are on their way": {
			Seed: 1, Processes: 3, Callers: 4, Keys: 2, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerSecond(5000), 1000)}},
			Life: 40 * time.Second, Think: 30 * time.Millisecond,
			Faults: []Fault{{Kind: Far, At: 9 * time.Second, For: 11 * time.Second, By: 4 * time.Millisecond}, {Kind: Reset, At: 10 * time.Second, For: 9 * time.Second}},
		},
		"processes stand still": {
			Seed: 1, Processes: 4, Callers: 3, Keys: 2, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerSecond(20), 30), Lease: 4, Age: time.Second}},
			Permits: []Permits{{3, 2 * time.Second}}, Life: 2 * time.Minute, Think: 50 * time.Millisecond,
			Faults: []Fault{{Kind: Paused, At: 30 * time.Second, For: 20 * time.Second, Of: []int{0, 2}, On: -1}},
		},
		"more keys than a limiter remembers": {
			Seed: 1, Processes: 4, Callers: 3, Keys: 6, Limits: []Limit{{Limit: limiter.TokenBucket(limiter.PerSecond(20), 10)}},
			Life: 2 * time.Minute, Think: 50 * time.Millisecond, Options: options{LocalKeys: 2},
			Faults: []Fault{{Kind: BlackHole, At: 30 * time.Second, For: 30 * time.Second}},
		},
		"parts below a unit, and more keys than a limiter remembers": {
			Seed: 1, Processes: 8, Callers: 2, Keys: 3, Limits: []Limit{{Limit: limiter.FixedWindow(limiter.PerSecond(2))}},
			Life: 2 * time.Minute, Think: 50 * time.Millisecond, Options: options{LocalKeys: 2},
			Faults: []Fault{{Kind: BlackHole, At: 30 * time.Second, For: time.Minute}},
		},
		"a sampled limiter forgets a key that is not asked for in ten of its short intervals": DrawShort(500307),
		"a refund of a split key has one budget": {
			Seed: 1, Processes: 2, Callers: 2, Keys: 1, Limits: []Limit{{Limit: limiter.TokenBucket(limiter.PerSecond(20), 9), Parts: 3}},
			Life: time.Minute, Think: 200 * time.Millisecond, Varied: 0.5,
			Faults: []Fault{{Kind: Far, At: 20 * time.Second, For: 20 * time.Second, By: 12 * time.Millisecond}},
		},
		"a ring loses one of its servers": {
			Seed: 1, Shape: Ring, Processes: 3, Callers: 4, Keys: 9, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerSecond(200), 100)}, {Limit: limiter.FixedWindow(limiter.PerSecond(500))}},
			Permits: []Permits{{3, 2 * time.Second}}, Life: 2 * time.Minute, Think: 20 * time.Millisecond,
			Faults: []Fault{{Kind: BlackHole, At: 30 * time.Second, For: 40 * time.Second, On: 1}},
		},
		"a host asks for pauses": {
			Seed: 1, Processes: 4, Callers: 4, Keys: 1, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerSecond(20), 10)}},
			Life: 3 * time.Minute, Think: 100 * time.Millisecond, Host: Host{Limit: 40, Window: 10 * time.Second, Fails: 0.1},
			Faults: []Fault{{Kind: BlackHole, At: 2 * time.Minute, For: 20 * time.Second}},
		},
		"a host asks for a pause while turns are yet to come": {
			Seed: 1, Processes: 2, Callers: 8, Keys: 1, Limits: []Limit{{Limit: limiter.LeakyBucketShaping(limiter.PerSecond(10), 40)}},
			Life: 3 * time.Minute, Think: 100 * time.Millisecond, Host: Host{Limit: 30, Window: 10 * time.Second},
		},
		"the burst of a slow limit is granted just before Redis is lost": {
			Seed: 1, Processes: 4, Callers: 2, Keys: 1, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerMinute(6), 60)}},
			Life: time.Minute, Think: 50 * time.Millisecond,
			Faults: []Fault{{Kind: Refused, At: 12 * time.Second, For: 20 * time.Second}},
		},
		"a limit becomes lower just before Redis is lost": {
			Seed: 1, Processes: 4, Callers: 2, Keys: 1, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerMinute(900), 90)}},
			Life: time.Minute, Think: 50 * time.Millisecond,
			Changes: []Change{{At: 20 * time.Second, To: limiter.GCRA(limiter.PerMinute(90), 9)}},
			Faults:  []Fault{{Kind: Refused, At: 24 * time.Second, For: 20 * time.Second}},
		},
		"a limit becomes higher, which not all processes know at once": {
			Seed: 1, Processes: 4, Callers: 4, Keys: 1, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerMinute(60), 4)}},
			Life: time.Minute, Think: 100 * time.Millisecond,
			Changes: []Change{{At: 20 * time.Second, To: limiter.GCRA(limiter.PerMinute(60), 40)}, {At: 40 * time.Second, To: limiter.GCRA(limiter.PerMinute(120), 80)}},
		},
		"a day ends while the clock of Redis is more than a day behind": {
			Seed: 382, Processes: 7, Callers: 1, Keys: 2, Limits: []Limit{{Limit: limiter.Calendar(1339, calendar.Day, zone("Australia/Lord_Howe")), Unit: calendar.Day, Zone: "Australia/Lord_Howe"}},
			Begins: 33468*time.Hour + 46*time.Minute + 43071866241, Life: 25*time.Minute + 33618036*time.Microsecond, Think: 1789221042, Idle: 1789221042, Looks: 0.48532672677632405,
			Faults:  []Fault{{Kind: ClockSteps, At: 15258654529, For: 104791919, By: -29*time.Hour - 37*time.Minute - 26171758*time.Microsecond}},
			Permits: []Permits{{6, 1183014823}}, Host: Host{Limit: 5, Window: 30 * time.Second, Fails: 0.09488820934920929},
		},
		"Redis loses its state again and again, and is lost": {
			Seed: 1, Processes: 8, Callers: 2, Keys: 1, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerSecond(100), 1)}},
			Life: time.Minute, Think: 100 * time.Millisecond, Options: options{NoDenials: true},
			Faults: append(again(Fault{Kind: Flushed, At: 25 * time.Second}, 12, 200*time.Millisecond), Fault{Kind: Refused, At: 27500 * time.Millisecond, For: 10 * time.Second}),
		},
		"the parts of a split key": {
			Seed: 1, Processes: 2, Callers: 2, Keys: 1, Limits: []Limit{{Limit: limiter.FixedWindow(limiter.PerSecond(9)), Parts: 3}},
			Life: time.Minute, Think: 50 * time.Millisecond,
		},
		"answers come too late for some callers of a split key": {
			Seed: 1, Processes: 8, Callers: 2, Keys: 1, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerSecond(1000), 40), Parts: 4}},
			Life: 100 * time.Second, Think: 100 * time.Millisecond,
			Faults: []Fault{{Kind: Far, At: 25 * time.Second, For: time.Minute, By: 7 * time.Millisecond}},
		},
		"many callers of a cluster of one server": {
			Seed: 1, Shape: OneShard, Processes: 2, Callers: 16, Keys: 4, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerSecond(100), 50)}},
			Life: time.Minute, Think: 30 * time.Millisecond,
			Faults: []Fault{{Kind: Sluggish, At: 20 * time.Second, For: 2 * time.Second, By: time.Millisecond}},
		},
		"a process is cut off for longer than the others count it": {
			Seed: 1, Processes: 4, Callers: 2, Keys: 1, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerHour(60), 60)}},
			Life: 3 * time.Minute, Think: 200 * time.Millisecond, Options: options{NoDenials: true},
			Faults: []Fault{
				{Kind: BlackHole, At: 25 * time.Second, For: 2 * time.Minute, Of: []int{3}},
				{Kind: Refused, At: 100 * time.Second, For: 20 * time.Second},
			},
		},
		"callers that ask every few minutes": {
			Seed: 1, Processes: 6, Callers: 1, Keys: 1, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerHour(60), 30)}},
			Life: 3 * time.Hour, Think: 150 * time.Second, Options: options{NoDenials: true},
			Faults: []Fault{{Kind: Refused, At: time.Hour, For: time.Hour}},
		},
		"callers leave when a host asks for a pause": {
			Seed: 1, Processes: 4, Callers: 1, Keys: 1, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerSecond(20), 10)}},
			Life: 10 * time.Minute, Think: 160 * time.Millisecond, Host: Host{Limit: 5, Window: 5 * time.Second},
		},
		"most callers leave before an answer": {
			Seed: 1, Processes: 2, Callers: 8, Keys: 2, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerSecond(100), 50)}},
			Life: 2 * time.Minute, Think: 50 * time.Millisecond, Hasty: 0.9,
		},
		"callers leave, and their client ends their calls": {
			Seed: 1, Processes: 3, Callers: 1, Keys: 1, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerMinute(240), 1)}},
			Life: 5 * time.Minute, Think: 100 * time.Millisecond, Hasty: 0.9, Options: options{Deadlines: true},
		},
		"callers with little time, of keys that are asked for rarely": {
			Seed: 1, Processes: 4, Callers: 2, Keys: 4, Limits: []Limit{{Limit: limiter.SlidingWindowLog(limiter.Per(1, 600*time.Millisecond))}},
			Life: 4 * time.Minute, Think: 200 * time.Millisecond, Hasty: 0.8,
			Faults: []Fault{{Kind: Refused, At: 150 * time.Second, For: 20 * time.Second}},
		},
		"most callers wait": {
			Seed: 1, Processes: 3, Callers: 8, Keys: 1, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerSecond(8), 10)}, {Limit: limiter.FixedWindow(limiter.PerSecond(8))}},
			Life: 2 * time.Minute, Think: 100 * time.Millisecond, Waits: 0.9,
			Faults: []Fault{{Kind: Refused, At: 40 * time.Second, For: 10 * time.Second}},
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
