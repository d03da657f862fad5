package algo

import (
	"strconv"
	"sync/atomic"
)

// Calendar is windows of several lengths, one after the other. They have numbers, in their
// order; some may be empty. It is safe for concurrent use. Two limits with one Calendar have the same windows.
type Calendar struct {
	// Number returns the number of the window in which a time is, and Start when a window
	// begins.
	Number func(now int64) int64
	Start  func(number int64) int64
	// Least is a length below that of all windows which are not empty.
	Least int64

	last atomic.Pointer[span]
}

// Shortest are lengths in µs below those of all days, weeks, months and years since 1990, of which the
// shortest is a day of 17 hours in Vostok. A week has two days, and a month or a year one, in which clocks
// may change or which their zone may have skipped.
var Shortest = [...]int64{16 * hour, 5 * 24 * hour, 26 * 24 * hour, 363 * 24 * hour}

const hour = 60 * 60 * 1_000_000

// span is one window, and a list of it and of those beside it by where they begin and end.
type span struct {
	number, start, end int64
	list               string
}

// at returns the window in which a time is.
func (c *Calendar) at(now int64) *span {
	if s := c.last.Load(); s != nil && s.start <= now && now < s.end {
		return s
	}
	s := c.span(now)
	before, after := c.span(s.start-1), c.span(s.end)
	for i, border := range [...]int64{before.start, s.start, s.end, after.end} {
		if i > 0 {
			s.list += ":"
		}
		s.list += strconv.FormatInt(border, 10)
	}
	c.last.Store(s)
	return s
}

func (c *Calendar) span(now int64) *span {
	n := c.Number(now)
	return &span{number: n, start: c.Start(n), end: c.Start(n + 1)}
}

// List is for a script that knows no calendar: where the window before that of now begins, and
// where this one, the next one and the one after that do.
func (c *Calendar) List(now int64) string { return c.at(now).list }

// Bounds returns when the window in which now is begins and ends.
func (p *Params) Bounds(now int64) (start, end int64) {
	if p.Calendar != nil {
		s := p.Calendar.at(now)
		return s.start, s.end
	}
	start = now - now%p.Den
	return start, start + p.Den
}

// number is that of the window in which now is.
func (p *Params) number(now int64) int64 {
	if p.Calendar != nil {
		return p.Calendar.at(now).number
	}
	return now / p.Den
}

// farAhead is more windows than a limit is made for.
const farAhead = 1000

// until is the time from now, in the window from, to the begin of another one.
func (p *Params) until(number, now, from int64) int64 {
	switch {
	case p.Calendar == nil:
		return number*p.Den - now
	case number-from > farAhead:
		return farAhead * p.Den
	}
	return p.Calendar.Start(number) - now
}
