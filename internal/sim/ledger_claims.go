package sim

import (
	"math"
	"time"
)

// equalShare is the default of limiter.WithEqualShare.
const equalShare = 0.5

// granting is what Redis grants of a limit: rate units a second. Grants are remembered for
// length seconds on average, most units at most, of which a burst is the part bursts.
type granting struct{ rate, length, most, bursts float64 }

// claims is what the processes that decide alone claim of a key. docs/guarantees.md derives
// what that adds up to.
type claims struct {
	of map[int]float64 // by process
	// all are the processes that claim all because they may know of no other.
	all map[int]bool
	at  time.Duration // of the last change
	// extra is how much of the limit, of the most that is remembered of grants, Redis has
	// granted while some processes were alone and others were not. It is forgotten while
	// none is alone.
	extra float64
	now   granting // of the limit that holds
}

// alone notes that a process has decided within its claim. It may know of no other process.
func (c *claims) alone(at time.Duration, r granting, process int, claim float64, knowsNone bool) {
	if c.of == nil {
		c.of, c.all = map[int]float64{}, map[int]bool{}
	}
	c.all[process] = claim == 1 && knowsNone
	if len(c.of) == 0 || c.now != r {
		c.pass(at, r)
	}
	c.of[process] = claim
}

// granted notes that Redis has granted units to a process.
func (c *claims) granted(at time.Duration, r granting, process int) {
	c.pass(at, r)
	delete(c.of, process)
}

// pass lets the time until a grant pass.
func (c *claims) pass(at time.Duration, r granting) {
	if c.now != r {
		// Some processes claim by what they were granted of the limit before, and others by
		// what they were granted in the second in which it changed.
		if c.now != (granting{}) {
			c.extra += r.bursts + r.rate/r.most
		}
		c.now = r
	}
	d := (at - c.at).Seconds()
	if c.at = at; len(c.of) == 0 {
		c.extra *= math.Exp(-d / r.length)
		return
	}
	c.extra += min(d*r.rate/r.most, r.bursts) // a limit grants no more than a burst at once
}

// sum is what the claims add up to, and what they may, when each process has at most a share
// of what is shared equally. One that may know of no other may claim all.
func (c *claims) sum(share float64) (sum, most float64) {
	most = (1 - equalShare) * (1 + c.extra)
	for process, claim := range c.of {
		sum += claim
		if c.all[process] {
			most++
			continue
		}
		most += equalShare * share
	}
	return sum, most
}
