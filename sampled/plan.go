package sampled

import "math"

// mostRecent is how many intervals a count is averaged over, at most.
const mostRecent = 10

// demand is what a process knew of a key when it planned last, in units per interval.
type demand struct {
	own, fleet float64
	known      bool
}

// plan is what a process may admit of a key in the next interval.
type plan struct {
	own   float64 // what it expects to be asked for
	quota float64 // how much of the limit is its own
	most  float64 // and the most that it admits, since what is asked for varies
}

// next makes the plan, from what this process is asked for in an interval, as it counted in some of
// them (which matters from the second plan on), and what the whole fleet reported.
//
// A fleet that asks for more than the limit gets limit/fleet of it, each process in
// proportion to what it is asked for. While it asks for less, each may admit what it
// was asked for and its part of the rest, so that together they stay within the limit
// when all of them are asked for more at once.
func (d *demand) next(own, intervals, fleet, limit float64, processes int) plan {
	all := max(fleet, own)
	if d.known && own > d.own+(1.5*noise(d.own*intervals)+2)/intervals {
		// A step up. The others may have seen it too and not have reported it yet.
		all = max(all, d.fleet*own/max(1/intervals, d.own))
	}
	d.own, d.fleet, d.known = own, all, true
	part := plan{own: own, quota: own + (limit-all)/float64(max(1, processes))}
	if all > limit {
		part.quota = limit * own / all
	}
	return part.expect(own)
}

// expect is the plan for another number that it expects to be asked for. What a process does not expect
// it does not save: in a step up, all of the fleet would use that at once.
func (p plan) expect(own float64) plan {
	p.own = own
	p.most = min(p.quota+noise(p.quota)+1, max(p.quota, own+1.25*noise(own)+1))
	return p
}

// recent is what a key was asked for in the last intervals, as far back as it was about the same.
type recent struct {
	units, intervals float64
}

// add counts an interval.
func (r *recent) add(units float64) {
	if mean := r.mean(); r.intervals > 0 && math.Abs(units-mean) > above(mean) {
		*r = recent{}
	} else if r.intervals == mostRecent {
		*r = recent{r.units - mean, mostRecent - 1}
	}
	r.units, r.intervals = r.units+units, r.intervals+1
}

// mean is of one interval.
func (r *recent) mean() float64 { return r.units / max(1, r.intervals) }

// alone is the plan of a process that knows only its share of the limit.
func alone(own, limit, share float64) plan {
	quota := limit * share
	return plan{own: own, quota: quota, most: quota + 1}
}

// first is what a process may admit of a key before it has a plan: its share, but no
// less than a unit.
func first(limit, share float64) float64 { return max(1, limit*share) }

// carry is the part of a unit that an interval left to the next one.
type carry float64

// begin begins an interval: it returns how many units may be admitted in it, and with
// which probability each. What the last one left of its quota is not lost, up to most:
// that is how quotas below one unit are ever admitted.
func (c *carry) begin(left int64, part plan) (units int64, p float64) {
	have := min(float64(*c)+float64(left)+part.quota, max(part.most, 1), math.MaxInt32)
	units = int64(math.Floor(have + 1e-9))
	*c = carry(have - float64(units))
	// A little more than that: what is more than have is denied, and what is less would be lost.
	return units, min(1, (max(0, have)+noise(have)/2)/max(part.own, 1e-9))
}

// above is by how much a count differs from a mean in a step.
func above(mean float64) float64 { return noise(mean) + 2 }

// noise is by how much a random count around mean is rarely above it: two standard
// deviations of a Poisson distribution.
func noise(mean float64) float64 { return 2 * math.Sqrt(max(0, mean)) }
