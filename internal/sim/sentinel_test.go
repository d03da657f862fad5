//go:build !race

package sim

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// TestSentinelsAreAsked: the client of go-redis learns of a failover from sentinels, of which some reject connections, some
// still say the old master, and some publish nothing, so that the worlds which have them hold what they seem to.
func TestSentinelsAreAsked(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(3) {
		rep := Run(t, Plan{
			Seed: seed, Shape: Sentinel, Processes: 4, Callers: 4, Keys: 4, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerSecond(100), 50)}},
			Life: 4 * time.Minute, Think: 200 * time.Millisecond,
			Faults: []Fault{
				{Kind: FailedOver, At: 20 * time.Second, For: 10 * time.Second, By: 5 * time.Second},
				{Kind: SentinelsReject, At: 60 * time.Second, For: 20 * time.Second},
				{Kind: FailedOver, At: 70 * time.Second, For: 5 * time.Second},
				{Kind: SentinelsReject, At: 2 * time.Minute, For: 20 * time.Second},
				{Kind: Reset, At: 121 * time.Second, For: 10 * time.Second},
			},
		}, false)
		for _, v := range rep.Violations {
			t.Errorf("seed %d: %v", seed, v)
		}
		for word, n := range rep.Redirects {
			seen[word] += n
		}
	}
	t.Log(seen)
	for _, word := range []string{"switch", "switch-lost", "old-master", "sentinel-rejects"} {
		if seen[word] == 0 {
			t.Errorf("no sentinel answered so: %s: %v", word, seen)
		}
	}
}
