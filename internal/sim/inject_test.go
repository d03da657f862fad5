package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// TestNetworkFaultsConcernProcessesThatJoin: a process that starts in a fault of all meets it, too, and
// Redis decides for it when that is over.
func TestNetworkFaultsConcernProcessesThatJoin(t *testing.T) {
	for _, kind := range []FaultKind{Refused, BlackHole, RepliesLost, Far, Narrow} {
		p := Plan{
			Seed: 1, Processes: 2, Callers: 2, Keys: 1, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerSecond(1000), 500)}},
			Life: 100 * time.Second, Think: 100 * time.Millisecond, Joins: []time.Duration{35 * time.Second},
			Faults: []Fault{{Kind: kind, At: 30 * time.Second, For: 20 * time.Second, By: time.Second}},
		}
		rep := Run(t, p, true)
		for _, v := range rep.Violations {
			t.Errorf("%v: %v", kind, v)
		}
		in, after := 0, 0
		for _, line := range rep.Trace {
			var at float64
			if _, err := fmt.Sscan(line, &at); err != nil {
				t.Fatal(line)
			}
			switch {
			case !strings.Contains(line, "process 2: sim0") || !strings.Contains(line, "by redis"):
			case at < 50:
				in++
			default:
				after++
			}
		}
		if in > 0 || after < 100 {
			t.Errorf("%v: Redis decides for a process that joins in it %d times, and %d times after it", kind, in, after)
		}
	}
}

// TestFaultsThatMeet: a fault lasts as long as it says, whichever others end meanwhile.
func TestFaultsThatMeet(t *testing.T) {
	for _, c := range [][2]FaultKind{
		{Refused, ScriptsForgotten}, {Refused, Reset}, {Refused, Refused}, {BlackHole, BlackHole}, {BlackHole, Paused}, {RepliesLost, RepliesLost},
		{Frozen, Frozen}, {Rejecting, Rejecting}, {RejectingWrites, RejectingWrites}, {Restarted, RestartedEmpty},
	} {
		p := Plan{
			Seed: 1, Processes: 2, Callers: 2, Keys: 1, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerSecond(1000), 500)}},
			Life: 100 * time.Second, Think: 100 * time.Millisecond,
			Faults: []Fault{
				{Kind: c[0], At: 30 * time.Second, For: 30 * time.Second, On: -1, Text: rejections[0]},
				{Kind: c[1], At: 35 * time.Second, For: time.Millisecond, On: -1, Text: rejections[1]},
			},
		}
		rep := Run(t, p, true)
		in, after := 0, 0
		for _, line := range rep.Trace {
			var at float64
			if _, err := fmt.Sscan(line, &at); err != nil {
				t.Fatal(line)
			}
			switch {
			case !strings.Contains(line, ": sim0") || !strings.Contains(line, "by redis"):
			case at > 36 && at < 60:
				in++
			case at > 80:
				after++
			}
		}
		if in > 0 || after < 100 {
			t.Errorf("%v with %v within it: Redis decides %d times in the rest of it, and %d times after it", c[0], c[1], in, after)
		}
	}
}
