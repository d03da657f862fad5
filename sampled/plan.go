package sampled

import "math"

// demand is what a process knew of a key an interval ago, in units per interval.
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

// next makes the plan, from what this process was asked for in the last interval and
// what the whole fleet reported.
//
// A fleet that asks for more than the limit gets limit/fleet of it, each process in
// proportion to what it is asked for. While it asks for less, each may admit what it
// was asked for and its part of the rest, so that together they stay within the limit
// when all of them are asked for more at once.
func (d *demand) next(own, fleet, limit float64, processes int) plan {
	fleet = max(fleet, own)
	all := fleet
	if d.known && own > d.own+noise(d.own)+2 {
		// A step up. The others may have seen it too and not have reported it yet.
		all = max(all, d.fleet*own/max(1, d.own))
	}
	d.own, d.fleet, d.known = own, fleet, true
	part := plan{own: own, quota: own + (limit-all)/float64(max(1, processes))}
	if all > limit {
		part.quota = limit * own / all
	}
	part.most = part.quota + noise(part.quota) + 1
	return part
}

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
	return units, min(1, max(0, have)/max(part.own, 1e-9))
}

// noise is by how much a random count around mean is rarely above it: two standard
// deviations of a Poisson distribution.
func noise(mean float64) float64 { return 2 * math.Sqrt(max(0, mean)) }
