// Package calendar has the days, weeks, months and years of a time zone as windows, one after
// the other without a gap: for limits such as 10,000 requests a month, by [limiter.Calendar].
//
// A window begins at the first moment whose local date is in it or later. So a day begins at
// midnight or, where clocks jump over midnight, when they have jumped. It has 23 or 25 hours when
// clocks change; a date that a zone has skipped has no window. Weeks begin on Monday (ISO 8601).
// Dates are those of the Gregorian calendar, and zones those of the time zone database that Go uses:
// processes that share a limit should have the same version of it.
//
// [limiter.Calendar]: https://pkg.go.dev/github.com/holdfast-go/holdfast/limiter#Calendar
package calendar

import (
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/enum"
)

// Unit is how long a window is. The zero value is not a unit. Its methods are safe for concurrent
// use.
type Unit uint8

// The units.
const (
	Day Unit = iota + 1
	Week
	Month
	Year
)

var names = [...]string{"", "day", "week", "month", "year"}

// Valid reports whether u is one of the units.
func (u Unit) Valid() bool { return u >= Day && u <= Year }

// String returns the name of the unit in lower case.
func (u Unit) String() string { return enum.Name(names[:], u, "calendar unit") }

// MarshalText returns the name of the unit, for JSON and logs.
func (u Unit) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText reads the name of a unit. The error matches limiter.ErrInvalidConfig.
func (u *Unit) UnmarshalText(text []byte) error {
	for unit := Day; unit <= Year; unit++ {
		if names[unit] == string(text) {
			*u = unit
			return nil
		}
	}
	return configerr.In("calendar", configerr.New("calendar unit", strconv.Quote(string(text)), "must be day, week, month or year"))
}

// Window returns the window in which t is, in the location of t: it includes start, and not end.
// Of no unit it is empty.
func (u Unit) Window(t time.Time) (start, end time.Time) {
	if !u.Valid() {
		return t, t
	}
	n := u.Number(t)
	return u.Start(n, t.Location()), u.Start(n+1, t.Location())
}

// Number returns the number of the window in which t is, in the location of t. Windows that
// follow each other have numbers that follow each other; some windows are empty.
func (u Unit) Number(t time.Time) int64 {
	n := u.numberOf(t.Date())
	// Clocks may have been set back over a border: then its window has begun already.
	for !u.Start(n+1, t.Location()).After(t) {
		n++
	}
	return n
}

// Start returns when the window with a number begins, in a location.
func (u Unit) Start(number int64, loc *time.Location) time.Time {
	return begin(u.first(number), loc)
}

// days is the number of days from 1970-01-01, which was a Thursday, to a date.
func days(year int, month time.Month, day int) int64 {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix() / secondsOfDay
}

const secondsOfDay = 24 * 60 * 60

// numberOf is the number of the window that has a date, counted from 1970; of years from 0.
func (u Unit) numberOf(year int, month time.Month, day int) int64 {
	switch u {
	case Week:
		return floor(days(year, month, day)+3, 7)
	case Month:
		return int64(year)*12 + int64(month) - 1
	case Year:
		return int64(year)
	}
	return days(year, month, day)
}

// first is the first date of a window, as midnight in UTC.
func (u Unit) first(number int64) time.Time {
	switch u {
	case Week:
		return time.Unix((number*7-3)*secondsOfDay, 0).UTC()
	case Month:
		return time.Date(int(floor(number, 12)), time.January+time.Month(number-12*floor(number, 12)), 1, 0, 0, 0, 0, time.UTC)
	case Year:
		return time.Date(int(number), time.January, 1, 0, 0, 0, 0, time.UTC)
	}
	return time.Unix(number*secondsOfDay, 0).UTC()
}

// begin returns the first moment at which clocks in loc show the date of midnight, or a later one.
func begin(midnight time.Time, loc *time.Location) time.Time {
	// No zone is as far as this from UTC.
	at := midnight.Add(-26 * time.Hour).In(loc)
	for {
		_, offset := at.Zone()
		from, until := at.ZoneBounds()
		if !until.IsZero() && !until.After(at) { // after the table of the zone, a year has 365 days for it
			until = at.Add(24 * time.Hour)
		}
		shown := midnight.Add(-time.Duration(offset) * time.Second) // when these clocks show midnight
		if shown.Before(from) {
			shown = from // they were set forward over it
		}
		if until.IsZero() || shown.Before(until) {
			return shown.In(loc)
		}
		at = until
	}
}

// floor is a/b, rounded down.
func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
