//go:build !race

package sim

import (
	"testing"
	"time"

	_ "time/tzdata" // for machines without the database

	"github.com/holdfast-go/holdfast/calendar"
	"github.com/holdfast-go/holdfast/limiter"
)

// daily is a limit of a day in Berlin, where the clocks were set forward on 2000-03-26.
func daily(n int) Limit {
	return Limit{Limit: limiter.Calendar(n, calendar.Day, zone("Europe/Berlin")), Unit: calendar.Day, Zone: "Europe/Berlin"}
}

// untilMarch is when the day of 23 hours begins in Berlin.
const untilMarch = (31+29+25)*24*time.Hour - time.Hour

// TestDaysOfACalendar: fleets share limits of days, also where a day ends, where clocks of servers
// are days away from those of the processes, and where only one of several servers has such a clock.
func TestDaysOfACalendar(t *testing.T) {
	calm := Plan{
		Seed: 1, Processes: 4, Callers: 3, Keys: 2, Limits: []Limit{daily(2000), daily(500)},
		Begins: untilMarch - 30*time.Second, Life: 2 * time.Minute, Think: 50 * time.Millisecond, Looks: 0.1,
	}
	for name, change := range map[string]func(*Plan){
		"a day ends":               func(*Plan) {},
		"the day of 23 hours ends": func(p *Plan) { p.Begins += 23 * time.Hour },
		"a day ends in an outage": func(p *Plan) {
			p.Faults = []Fault{{Kind: BlackHole, At: 20 * time.Second, For: 30 * time.Second, On: -1}}
		},
		"the clock of Redis is set by days": func(p *Plan) {
			p.Faults = []Fault{
				{Kind: ClockSteps, At: 20 * time.Second, By: 5 * 24 * time.Hour, On: -1},
				{Kind: ClockSteps, At: 60 * time.Second, By: -9 * 24 * time.Hour, On: -1},
			}
		},
		"one server of a cluster has another day": func(p *Plan) {
			p.Shape, p.Keys = Cluster, 6
			p.Faults = []Fault{{Kind: ClockSteps, At: 20 * time.Second, By: 5 * 24 * time.Hour, On: 1}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := calm
			change(&p)
			for _, v := range Run(t, p, false).Violations {
				t.Error(v)
			}
		})
	}
}

// TestDrawnLimitsAreAccepted: each limit of a plan, and what it changes to, is one that New accepts.
func TestDrawnLimitsAreAccepted(t *testing.T) {
	seeds := []uint64{500170} // a limit of a calendar became lower than a lease of it
	for seed := range uint64(100) {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		p := DrawShort(seed)
		for i, l := range p.Limits {
			limits := []limiter.Limit{l.Limit}
			for _, c := range p.Changes {
				if c.Of == i {
					limits = append(limits, c.To)
				}
			}
			for _, l.Limit = range limits {
				if l.most() == 0 {
					t.Errorf("seed %d: New rejects %v with a lease of %d, %d parts and headroom of %v", seed, l.Limit, l.Lease, l.Parts, l.Headroom)
				}
			}
		}
	}
}
