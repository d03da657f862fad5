//go:build !race && !386

package sim

import (
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"
)

// TestSameSeedSameTrace: a seed can be replayed. Not with the race detector, with which the
// scheduler of Go draws the order of what happens at one time; and not with clusters, whose
// client keeps its nodes in a map and asks them in the order of that. It needs a processor of
// its own, because the scheduler also interrupts what has not run for 10 ms of real time: so
// not beside other packages, as on 386.
func TestSameSeedSameTrace(t *testing.T) {
	seeds := 10
	if testing.Short() {
		seeds = 2
	}
	if wish := wanted(t); wish.runs > 0 {
		repeat(t, wish.seed, wish.runs)
		return
	}
	for seed, done := uint64(100), 0; done < seeds; seed++ {
		p := Draw(seed)
		if p.Shape.isCluster() {
			continue
		}
		done++
		p.Life = min(p.Life, 90*time.Second)
		first, second := undisturbed(t, p), undisturbed(t, p)
		if first.Hash == second.Hash {
			continue
		}
		for i := range first.Trace {
			if i >= len(second.Trace) || first.Trace[i] != second.Trace[i] {
				t.Errorf("seed %d: line %d of the trace differs:\n%s\n%s", p.Seed, i, first.Trace[i], second.Trace[min(i, len(second.Trace)-1)])
				break
			}
		}
	}
}

// repeat runs one fleet after the other, from a seed on, so many times in all, ten times each, and prints
// how many runs had the most frequent trace of their fleet.
func repeat(t *testing.T, seed uint64, runs int) {
	same, done := 0, 0
	for ; done < runs; seed++ {
		p := Draw(seed)
		if p.Shape.isCluster() {
			continue
		}
		p.Life = min(p.Life, 90*time.Second)
		seen := map[uint64]int{}
		for range min(10, runs-done) {
			seen[undisturbed(t, p).Hash]++
			done++
		}
		most := slices.Max(slices.Collect(maps.Values(seen)))
		if same += most; len(seen) > 1 {
			fmt.Printf("seed %d (%v): %d traces\n", p.Seed, p.Shape, len(seen))
		}
	}
	fmt.Printf("%d of %d runs had the trace that is most frequent of their seed\n", same, done)
}

// undisturbed runs a plan without the garbage collector, whose workers and assists also change
// the order in which goroutines run.
func undisturbed(t *testing.T, p Plan) Report {
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	return Run(t, p, true)
}
