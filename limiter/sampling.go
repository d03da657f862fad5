package limiter

import "math"

// demand is what a process knew of a key an interval ago, in units per interval.
type demand struct {
	own, fleet float64
	known      bool
}

// plan is what a process may admit of a key in the next interval.
type plan struct {
	p     float64 // with which probability
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
	part := plan{p: 1, quota: own + (limit-all)/float64(max(1, processes))}
	if all > limit {
		part.p, part.quota = limit/all, limit*own/all
	}
	part.most = part.quota + noise(part.quota) + 1
	return part
}

// alone is the plan of a process that knows only its share of the limit.
func alone(own, limit, share float64) plan {
	quota := limit * share
	part := plan{p: 1, quota: quota, most: max(1, quota)}
	if own > quota {
		part.p = quota / own
	}
	return part
}

// noise is by how much a random count around mean is rarely above it: two standard
// deviations of a Poisson distribution.
func noise(mean float64) float64 { return 2 * math.Sqrt(max(0, mean)) }
