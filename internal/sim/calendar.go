package sim

import (
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/calendar"
	"github.com/holdfast-go/holdfast/internal/algo"
)

// shortest are the lengths of the shortest windows of the zones below.
var shortest = [...]time.Duration{
	calendar.Day: 23 * time.Hour, calendar.Week: 7*24*time.Hour - time.Hour,
	calendar.Month: 28*24*time.Hour - time.Hour, calendar.Year: 365*24*time.Hour - time.Hour,
}

// zones are those of calendars. Clocks change by half an hour on Lord Howe, and at midnight in São Paulo.
var zones = []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Sao_Paulo"}

// loaded are the zones by their names: to load one reads a file, and each charge asks for its zone.
var loaded sync.Map

// zone is the one of a name.
func zone(name string) *time.Location {
	if loc, ok := loaded.Load(name); ok {
		return loc.(*time.Location)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		panic(err)
	}
	loaded.Store(name, loc)
	return loc
}

// began is when the clocks of a bubble begin.
var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// endOf is when the window of a fixed window ends, by a clock: independently of what a client says of
// it. Without a unit it is so long.
func endOf(unit calendar.Unit, name string, long time.Duration, now int64) (end int64) {
	if unit == 0 {
		per := long.Microseconds()
		return now - now%per + per
	}
	_, to := unit.Window(time.UnixMicro(now).In(zone(name)))
	return to.UnixMicro()
}

// borders is how many a client sends: of the window in which it is, the one before and the next one.
const borders = 4

// listed is a calendar of which only some borders are known. Its other windows have the least length.
func listed(at []int64, least int64) *algo.Calendar {
	last := int64(len(at) - 1)
	return &algo.Calendar{
		Least: least,
		Number: func(now int64) int64 {
			switch {
			case now < at[0]:
				return -1 - (at[0]-1-now)/least
			case now >= at[last]:
				return last + (now-at[last])/least
			}
			return int64(slices.IndexFunc(at, func(border int64) bool { return border > now })) - 1
		},
		Start: func(n int64) int64 {
			switch {
			case n < 0:
				return at[0] + n*least
			case n > last:
				return at[last] + (n-last)*least
			}
			return at[n]
		},
	}
}

// elsewhen reports that a client has sent the windows of a calendar for another time.
func elsewhen(p *algo.Params, now int64) bool {
	if p.Calendar == nil {
		return false
	}
	n := p.Calendar.Number(now)
	return n < 0 || n >= borders-1
}
