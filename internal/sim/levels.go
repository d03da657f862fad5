package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// levels is what Redis has charged of keys, by its clock, except those of shaping, whose places are in the future. It is
// computed from the units alone, so a mistake in internal/algo is not made here too.
type levels struct {
	of     map[string]*level // by the key in Redis
	unsure bool              // a clock has stepped or drifts
}

// level is what is used of a key.
type level struct {
	p      algo.Params // of the last request
	unsure bool        // less is used than the state may hold
	born   int64       // when the first units were charged since Redis had nothing of it, 0 is not known
	at     int64
	left   float64     // in a bucket
	rate   float64     // at which that drains, in units per microsecond
	cells  []algo.Cell // of a log
	// Of a fixed window or a counter: the window that ends then, and the one before.
	end, cur, prev int64
}

const unitsExact = 1e-6

// charge notes what a key is charged now, and returns what is wrong with it.
func (f *levels) charge(c charge, r *rule, now int64) (wrong string) {
	l := f.find(c, r, now)
	if l == nil {
		return ""
	}
	if c.kind == returns {
		return l.giveBack(c, r, now)
	}
	if l.born == 0 && !l.unsure {
		l.born = c.at
	}
	switch l.p.Kind {
	case algo.SlidingWindowLog:
		i, _ := slices.BinarySearchFunc(l.cells, c.at+1, func(c algo.Cell, at int64) int { return cmp.Compare(c.T, at) })
		l.cells = slices.Insert(l.cells, i, algo.Cell{T: c.at, V: c.units})
	case algo.FixedWindow:
		l.cur += c.units
	case algo.SlidingWindowCounter:
		if c.at < l.end-l.p.Den {
			l.prev += c.units
		} else {
			l.cur += c.units
		}
	default:
		if l.left += float64(c.units); c.units > 0 { // a debt for which there is no room changes nothing
			l.rate = float64(c.p.Num) / float64(c.p.Den)
		}
	}
	if used := l.used(now); c.kind == decisions && used > float64(l.p.Cap)+unitsExact {
		return fmt.Sprintf("%.3f units are used, the limit is %d", used, l.p.Cap)
	}
	return ""
}

// deny returns what is wrong with the denial of units now.
func (f *levels) deny(c charge, r *rule, now int64) (wrong string) {
	l := f.find(c, r, now)
	if l == nil || l.unsure {
		return ""
	}
	used := l.used(now)
	if used+float64(c.units) > float64(l.p.Cap)-unitsExact {
		return ""
	}
	return fmt.Sprintf("%d units are denied, and %.3f are used; the limit is %d", c.units, used, l.p.Cap)
}

// find is the level of a key as it is now.
func (f *levels) find(c charge, r *rule, now int64) *level {
	if c.p.Kind == algo.LeakyBucketShaping {
		return nil
	}
	l := f.of[c.key]
	if l == nil {
		l = &level{p: c.p, unsure: f.unsure, at: now}
		f.of[c.key] = l
	}
	l.pass(c.p, r, now)
	return l
}

// pass lets the time pass until a request by p.
func (l *level) pass(p algo.Params, r *rule, now int64) {
	if l.p.Kind.Windowed() && l.p.Den != p.Den { // counts of windows of another length are not those of these
		*l = level{unsure: true, end: l.end}
	} else if !p.Kind.Windowed() && (p.Cap != l.p.Cap || p.Num != l.p.Num || p.Den != l.p.Den) {
		l.unsure = true
	}
	if now < l.at { // by the clock of the server that has the slot now, and what had drained is not known
		*l = level{unsure: true}
	}
	l.p = p
	d := float64(now - l.at)
	l.at = now
	switch p.Kind {
	case algo.FixedWindow:
		if end := r.window(now); end != l.end {
			l.end, l.cur = end, 0
		}
	case algo.SlidingWindowLog:
		l.cells = slices.DeleteFunc(l.cells, func(c algo.Cell) bool { return c.T <= now-p.Den })
	case algo.SlidingWindowCounter:
		switch end := now - now%p.Den + p.Den; {
		case end == l.end+p.Den:
			l.end, l.cur, l.prev = end, 0, l.cur
		case end > l.end:
			l.end, l.cur, l.prev = end, 0, 0
		}
	default:
		// A limit that charges nothing changes the rate only to a faster one.
		l.rate = max(l.rate, float64(p.Num)/float64(p.Den))
		l.left = max(0, l.left-l.rate*d)
	}
}

// used is what is used at least.
func (l *level) used(now int64) (units float64) {
	switch l.p.Kind {
	case algo.FixedWindow:
		return float64(l.cur)
	case algo.SlidingWindowLog:
		for _, c := range l.cells {
			units += float64(c.V)
		}
	case algo.SlidingWindowCounter:
		return float64(l.cur) + float64(l.prev)*float64(min(l.p.Den, l.end-now))/float64(l.p.Den)
	default:
		return l.left
	}
	return units
}

// giveBack notes units that were charged at c.at.
func (l *level) giveBack(c charge, r *rule, now int64) (wrong string) {
	n := -c.units
	if l.born > c.at { // they belong to a state that is gone
		if n > 0 {
			wrong = fmt.Sprintf("%d units of %d are given back, and the key began at %d", n, c.at, l.born)
		}
		return wrong
	}
	var has int64
	switch l.p.Kind {
	case algo.FixedWindow:
		if has = min(n, l.cur); r.window(c.at) != l.end {
			has = 0
		}
		l.cur -= has
	case algo.SlidingWindowLog:
		for i := len(l.cells) - 1; i >= 0 && has < n; i-- {
			if cell := &l.cells[i]; cell.T == c.at || c.any {
				out := min(n-has, cell.V)
				cell.V -= out
				has += out
			}
		}
	case algo.SlidingWindowCounter:
		of := &l.cur
		if c.at < l.end-l.p.Den {
			of = &l.prev
		}
		if has = min(n, *of); c.at < l.end-2*l.p.Den {
			has = 0
		}
		*of -= has
	default: // what has not drained since
		back := min(float64(c.n), float64(c.of)-l.rate*float64(max(0, now-c.at)))
		l.left = max(0, l.left-max(0, back))
		has = int64(max(0, back) + unitsExact)
	}
	if has < n && !l.unsure {
		wrong = fmt.Sprintf("%d units of %d are given back, and %d were charged then", n, c.at, has)
	}
	return wrong
}

// lost notes that a key is gone.
func (f *levels) lost(key string) {
	if l := f.of[key]; l != nil {
		*l = level{p: l.p, at: l.at, unsure: f.unsure}
	}
}

// restored notes that an older state of a key is there again.
func (f *levels) restored(key string) {
	if l := f.of[key]; l != nil {
		*l = level{p: l.p, at: l.at, unsure: true}
	}
}

// stepped notes that a clock has.
func (f *levels) stepped() {
	clear(f.of)
	f.unsure = true
}
