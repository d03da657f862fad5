package limiter

import (
	"path"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/calendar"
	"github.com/holdfast-go/holdfast/internal/algo"
)

// Calendar admits n units in each day, week, month or year of a time zone: a FixedWindow whose
// windows begin where those of the calendar do, as package calendar says. RetryAfter and ResetAfter
// are exact, also where a day has 23 hours.
//
// Redis decides by its own clock in which window a request is. A process whose clock is more than a
// window away decides its first request in its claim, and then knows the difference.
//
// The zone must be one of the time zone database, such as time.LoadLocation returns, or time.UTC;
// only its name counts. A location of time.FixedZone, and time.Local, are not valid, because other processes may
// mean another one by the name.
func Calendar(n int, unit calendar.Unit, zone *time.Location) Limit {
	return Limit{kind: algo.FixedWindow, rate: Rate{n, means[unit%calendar.Unit(len(means))]}, cal: calOf(unit, zone)}
}

// means are how long the units are on average: 4,800 months of the Gregorian calendar have 146,097 days.
var means = [...]time.Duration{
	calendar.Day: 24 * time.Hour, calendar.Week: 7 * 24 * time.Hour,
	calendar.Month: 2_629_746 * time.Second, calendar.Year: 12 * 2_629_746 * time.Second,
}

// cal is a unit in a time zone. It is the same one for equal limits, so that they can be compared.
type cal struct {
	unit    calendar.Unit
	zone    string
	windows *algo.Calendar
	err     error // why it is not valid
}

// cals has those that are valid, by unit and zone: as many as there are zones in the database, at most.
var cals sync.Map

type calKey struct {
	unit calendar.Unit
	zone string
}

func calOf(unit calendar.Unit, zone *time.Location) *cal {
	if zone == nil {
		return &cal{unit: unit, zone: "nil", err: invalid("time zone", "nil", "must not be nil")}
	}
	key := calKey{unit, zone.String()}
	if known, ok := cals.Load(key); ok {
		return known.(*cal)
	}
	c := &cal{unit: unit, zone: key.zone}
	loc, err := time.LoadLocation(key.zone)
	switch {
	case !unit.Valid():
		c.err = invalid("calendar unit", uint8(unit), "must be calendar.Day, Week, Month or Year")
	case key.zone == "Local" || key.zone == "localtime" || key.zone == "":
		c.err = invalid("time zone", key.zone, "must have a name that is the same everywhere, such as Europe/Berlin")
	case path.Clean(key.zone) != key.zone: // a zone would have names without end
		c.err = invalid("time zone", key.zone, "must be written as in the time zone database, such as Europe/Berlin")
	case err != nil:
		c.err = invalid("time zone", key.zone, "must be in the time zone database: %v", err)
	default:
		c.windows = &algo.Calendar{
			Number: func(now int64) int64 { return unit.Number(time.UnixMicro(now).In(loc)) },
			Start:  func(number int64) int64 { return unit.Start(number, loc).UnixMicro() },
			Least:  algo.Shortest[unit-calendar.Day],
		}
		known, _ := cals.LoadOrStore(key, c)
		return known.(*cal)
	}
	return c
}
