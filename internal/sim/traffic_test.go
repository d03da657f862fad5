package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// TestKeysAreDrawn: evenly, or some more often than others, and other ones later.
func TestKeysAreDrawn(t *testing.T) {
	for _, c := range []struct {
		Traffic
		now           time.Duration
		most          int
		least, atMost int // of 10,000 draws for the key that is drawn most
	}{
		{Traffic{}, time.Hour, 0, 5800, 6100}, // (1 + ln 4) / 4
		{Traffic{Skew: 1}, time.Hour, 0, 2400, 2600},
		{Traffic{Skew: 8}, time.Hour, 0, 8200, 8600}, // its eighth root
		{Traffic{Moves: time.Minute}, 7*time.Minute + time.Second, 3, 5800, 6100},
	} {
		rng, counts := rand.New(rand.NewPCG(1, 1)), [4]int{}
		for range 10_000 {
			counts[c.key(rng, len(counts), c.now)]++
		}
		if n := counts[c.most]; n < c.least || n > c.atMost {
			t.Errorf("%+v: %v, key %d was to be drawn %d to %d times", c.Traffic, counts, c.most, c.least, c.atMost)
		}
	}
}

// TestTrafficIsSpread: over processes by Zipf's law, in bursts, and to the beat.
func TestTrafficIsSpread(t *testing.T) {
	plan := func(of Traffic) Plan {
		return Plan{
			Seed: 1, Processes: 4, Callers: 2, Keys: 1, Limits: []Limit{{Limit: limiter.GCRA(limiter.PerSecond(1000), 500)}},
			Life: 100 * time.Second, Think: 100 * time.Millisecond, Traffic: of,
		}
	}
	// asked returns how many decisions each process made before the end, and how many of them in the busiest tenth of a second
	// of each two seconds on average.
	asked := func(of Traffic) (each [4]int, together float64) {
		rep := Run(t, plan(of), true)
		for _, v := range rep.Violations {
			t.Errorf("%+v: %v", of, v)
		}
		var slots [1000]int
		for _, line := range rep.Trace {
			var at float64
			var process int
			if _, err := fmt.Sscanf(strings.TrimSpace(line), "%f process %d: sim0", &at, &process); err != nil || at >= 100 {
				continue
			}
			each[process]++
			slots[int(at*10)]++
		}
		for i := range 50 {
			most := 0
			for _, n := range slots[20*i : 20*i+20] {
				most = max(most, n)
			}
			together += float64(most) / 50
		}
		return each, together
	}
	usual, alone := asked(Traffic{})
	ranked, _ := asked(Traffic{Ranks: 1})
	burst, row := asked(Traffic{Burst: 10})
	beat, beaten := asked(Traffic{Beat: 2 * time.Second})
	t.Log(usual, alone, ranked, burst, row, beat, beaten)
	if first, last := float64(ranked[0])/float64(usual[0]), float64(ranked[3])/float64(usual[3]); first < 0.9 || first > 1.1 || last < 0.2 || last > 0.3 {
		t.Errorf("the first of four processes asks %.2f times as often as without ranks, and the fourth %.2f times", first, last)
	}
	if row < 1.5*alone || burst[0] < usual[0]*3/4 {
		t.Errorf("bursts: %.1f at once and %d in all, else %.1f and %d", row, burst[0], alone, usual[0])
	}
	if sum := beat[0] + beat[1] + beat[2] + beat[3]; beaten*50 < 0.9*float64(sum) {
		t.Errorf("to the beat: %.1f of %.1f at once", beaten, float64(sum)/50)
	}
}

// TestClocksDrift: a clock that gains 20 ms in a second is 0.2 s ahead after ten.
func TestClocksDrift(t *testing.T) {
	standing(t, 1, 1, limiter.GCRA(limiter.PerSecond(1), 1), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
		began, at := time.Now(), l.srv.clock()
		l.srv.drift(20 * time.Millisecond)
		time.Sleep(5 * time.Second)
		l.srv.drift(-40 * time.Millisecond)
		time.Sleep(time.Second)
		l.srv.drift(20 * time.Millisecond)
		time.Sleep(time.Second)
		if gained := l.srv.clock() - at - time.Since(began).Microseconds(); gained != 80_000 {
			t.Errorf("the clock has gained %d µs, not 80,000", gained)
		}
	})
}
