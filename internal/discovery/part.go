package discovery

import (
	"math"
	"time"
)

const (
	// What was cut comes back by these parts of it for each window, at least a minute; less where
	// it is less than one request for each window.
	recovery = 0.3
	calm     = time.Minute
	// A cut is to a tenth less, and by up to half where a window admits few requests; one that
	// follows soon is deeper. What was sent before a cut, or within settle after it, shows the
	// same excess.
	cutTo     = 0.9
	cutOne    = 0.4 // less, of a part that is one request for each window
	cutAgain  = 0.75
	cutLeast  = 0.5
	soon      = 4 // windows
	settle    = time.Second
	leastPart = 1e-5
	// rarest is the longest time between requests of a process that does not know who else
	// sends: it would learn too late that others have left.
	rarest = 3 * time.Minute
	// A part grows while this part of the limit stays unused, by at most growth at once. In short
	// windows, the most load of some responses counts, seen for a while.
	unused  = 0.05
	growth  = 3
	samples = 8
	watch   = 5 * time.Second
)

// part is the part of a limit that this process, or this fleet, takes, because others whom
// it does not know take the rest. The zero value is all of it.
//
// Processes without Redis cannot count each other, but a server that says what remains counts
// for them: that others take nine tenths shows before the limit is reached, or by its end. A
// process then takes the part that it had. Afterwards it behaves as TCP does, to which a lost
// packet says as little: less after each rejection, a little more with time. The load that
// servers say makes that quicker.
type part struct {
	of    float64 // at since; 0 is all
	since time.Time
	cut   time.Time // the last time
	used  int64     // of the limit, at since

	// Our requests since then, before the first cut: those that were sent or under way, and
	// those that were answered.
	sent, answered int64
	// The most load that responses said since loadsSince.
	most       float64
	loads      int
	loadsSince time.Time
}

func (p *part) set(of float64, now time.Time, used int64) {
	p.of, p.since, p.used, p.most, p.loads = max(leastPart, of), now, used, 0, 0
}

// at returns the part at a time, at most a bound.
func (p *part) at(now time.Time, limit int64, window time.Duration, bound float64) float64 {
	if p.of == 0 {
		return 1
	}
	// In steps, so that a limit does not change with every call.
	windows := math.Floor(6*float64(now.Sub(p.since))/float64(max(window, calm))) / 6
	return min(bound, p.of*math.Pow(1+recovery*math.Sqrt(min(1, p.of*float64(limit))), windows))
}

// others learns from what was used of a limit, by a response to a request that was sent at
// sent, that others use most of it at the same time, and takes the part that is ours.
func (p *part) others(used, limit int64, window time.Duration, sent, now time.Time) bool {
	p.answered++
	later := sent.After(p.since) // responses overtake each other
	if p.since.IsZero() || later && used < p.used/2 || now.Sub(p.since) > window {
		p.since, p.used, p.sent, p.answered = now, used, p.sent-p.answered, 0
		return false
	}
	all := used - p.used
	if !later || used < limit/2 || p.answered < 4 || all < 2*p.sent {
		return false
	}
	ours := float64(p.answered+p.sent) / 2 // of what is under way, the server has counted some
	p.set(cutTo*ours/float64(all), now, used)
	p.cut = now
	return true
}

// less cuts a part after a rejection. share is what it was, and ours the requests of this
// process that the server admitted in the last window, -1 if that is not known.
func (p *part) less(share, ours float64, limit int64, window time.Duration, now time.Time) {
	of, to := share, cutTo
	switch {
	case ours >= 0 && share == 1: // that others send shows only now
		of = min(of, max(0.5, ours)/float64(limit))
	case now.Sub(p.cut) < soon*max(window, settle):
		to = cutAgain
	}
	if share < 1 {
		to = max(cutLeast, min(to, cutTo-cutOne/(share*float64(limit))))
	}
	of *= to
	if ours >= 0 {
		of = max(of, min(of/to, float64(window)/float64(rarest)/float64(limit)))
	}
	p.set(of, now, limit)
	p.cut = now
}

// more makes a part larger when less is sent than could be, by the load that a response says.
func (p *part) more(share, load float64, used int64, window time.Duration, now time.Time) bool {
	if p.loads == 0 {
		p.most, p.loadsSince = 0, now
	}
	p.most = max(p.most, load)
	p.loads++
	// A reset is said in whole seconds: in short windows, one response says little.
	if p.loads <= int(samples*time.Second/window) || now.Sub(p.loadsSince) < watch-window || now.Sub(p.since) < min(window, watch) {
		return false
	}
	load, p.loads = p.most, 0
	if load > 1-unused {
		return false
	}
	p.set(min(1, share*min(growth, 1/(load+unused/2))), now, used)
	return true
}

// load is what all send of what a limit admits, by what is used and the time until the reset.
func (p *part) load(used, limit int64, window, reset time.Duration, now time.Time) float64 {
	elapsed := min(1, max(float64(settle), float64(window-reset+settle))/float64(window))
	load := (float64(used) + (1-elapsed)*math.Sqrt(float64(used))) / elapsed
	if since := now.Sub(p.since); since < window { // what grew since then has hardly been used
		load += float64(max(0, used-p.used)+1) * float64(window) / float64(since)
	}
	return load / float64(limit)
}

// counter counts within a window that slides. The zero value is ready for use.
type counter struct {
	began    time.Time
	now, was float64
}

func (c *counter) roll(now time.Time, window time.Duration) {
	switch d := now.Sub(c.began); {
	case d >= 2*window:
		c.began, c.now, c.was = now, 0, 0
	case d >= window:
		c.began, c.now, c.was = c.began.Add(window), 0, c.now
	}
}

func (c *counter) add(now time.Time, window time.Duration) {
	c.roll(now, window)
	c.now++
}

// in returns how many there were in the last window.
func (c *counter) in(now time.Time, window time.Duration) float64 {
	c.roll(now, window)
	return c.now + c.was*(1-float64(now.Sub(c.began))/float64(window))
}
