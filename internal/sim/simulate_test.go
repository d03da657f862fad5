//go:build !race

package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSimulate runs one fleet after the other for as long as SIM says, by default 6 fleets
// and a simulated day at least, from the seed SEED, and stops at the first that breaks a promise. Its last line is what
// make simulate prints.
func TestSimulate(t *testing.T) {
	seed, length := wanted(t)
	sum, shaped := Report{Faults: map[string]int{}, Redirects: map[string]int{}}, map[string]int{}
	began, shown, worlds, fleets := time.Now(), time.Now(), 0, time.Duration(0)
	more := func() bool {
		switch {
		case worlds == 0:
			return true
		case t.Failed() || testing.Short():
			return false
		case length > 0:
			return time.Since(began) < length
		}
		return worlds < 6 || fleets < 24*time.Hour
	}
	for more() {
		plan := Draw(seed)
		seed++
		rep := Run(t, plan, false)
		worlds++
		fleets += plan.Life
		sum.Decisions += rep.Decisions
		sum.Checks += rep.Checks
		shaped[plan.Shape.String()]++
		for k, n := range rep.Faults {
			sum.Faults[k] += n
		}
		for k, n := range rep.Redirects {
			sum.Redirects[k] += n
		}
		if len(rep.Violations) > 0 {
			t.Errorf("seed %d: %v", plan.Seed, rep.Violations[0])
			explain(t, rep)
		}
		if time.Since(shown) > 10*time.Second {
			shown = time.Now()
			fmt.Printf("%d fleets, %.1f fleet-hours, %d decisions\n", worlds, fleets.Hours(), sum.Decisions)
		}
	}
	took := time.Since(began)
	fmt.Printf("%d fleets from seed %d to %d, %.1f fleet-hours, %d decisions, %d checks in %v (%.2g s per fleet-hour)\nfleets: %s\nfaults: %s\nredirects: %s\n",
		worlds, seed-uint64(worlds), seed-1, fleets.Hours(), sum.Decisions, sum.Checks, took.Round(time.Second), took.Seconds()/fleets.Hours(), counted(shaped), counted(sum.Faults), counted(sum.Redirects))
}

// counted lists counts by name.
func counted(counts map[string]int) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%s %d", k, counts[k]))
	}
	return strings.Join(all, ", ")
}
