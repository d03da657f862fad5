package calendar_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // for machines without the database

	"github.com/holdfast-go/holdfast/calendar"
	"github.com/holdfast-go/holdfast/limiter"
)

var units = []calendar.Unit{calendar.Day, calendar.Week, calendar.Month, calendar.Year}

func goroot() string {
	out, _ := exec.Command("go", "env", "GOROOT").Output()
	return strings.TrimSpace(string(out))
}

// zones are those of the time zone database.
func zones(t *testing.T) (all []string) {
	t.Helper()
	for _, dir := range []string{"/usr/share/zoneinfo", filepath.Join(goroot(), "lib/time/zoneinfo")} {
		file, err := os.Open(filepath.Join(dir, "tzdata.zi"))
		if err != nil {
			continue
		}
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if f := strings.Fields(lines.Text()); len(f) > 1 && f[0] == "Z" {
				all = append(all, f[1])
			} else if len(f) > 2 && f[0] == "L" {
				all = append(all, f[2])
			}
		}
		break
	}
	all = append(all, "UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "America/Sao_Paulo", "America/Havana", "Pacific/Apia",
		"Pacific/Kwajalein", "Pacific/Kiritimati", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Beirut", "Asia/Tehran", "Antarctica/Troll", "America/Asuncion")
	slices.Sort(all)
	return slices.Compact(all)
}

// same reports whether two dates are in one window.
func same(unit calendar.Unit, a, b time.Time) bool {
	switch unit {
	case calendar.Day:
		return a.Year() == b.Year() && a.YearDay() == b.YearDay()
	case calendar.Week:
		y1, w1 := a.ISOWeek()
		y2, w2 := b.ISOWeek()
		return y1 == y2 && w1 == w2
	case calendar.Month:
		return a.Year() == b.Year() && a.Month() == b.Month()
	}
	return a.Year() == b.Year()
}

// borders are where windows begin, found without arithmetic of dates: by what clocks show in
// steps of an hour, and to the second in the hour in which the date changes. A date
// that was shown before is not new.
func borders(from, until time.Time) (all []time.Time) {
	last := from
	for t := from; t.Before(until); t = t.Add(time.Hour) {
		if !later(last, t.Add(time.Hour)) {
			continue
		}
		at := t
		for _, step := range []time.Duration{time.Minute, time.Second} {
			for !later(last, at.Add(step)) {
				at = at.Add(step)
			}
		}
		last = at.Add(time.Second)
		all = append(all, last)
	}
	return all
}

// later reports whether clocks show a later date at b than at a.
func later(a, b time.Time) bool {
	y1, m1, d1 := a.Date()
	y2, m2, d2 := b.Date()
	return y1 < y2 || y1 == y2 && (m1 < m2 || m1 == m2 && d1 < d2)
}

// TestWindowsOfAllZones: the windows are those that clocks show, without a gap, in every zone. In
// the normal run for two years of some zones, and with HOLDFAST_LONG=1 for 40 years of all.
func TestWindowsOfAllZones(t *testing.T) {
	t.Parallel()
	long := os.Getenv("HOLDFAST_LONG") == "1"
	years := 2
	if long {
		years = 40
	}
	for i, name := range zones(t) {
		if t.Failed() {
			break
		}
		special := strings.Contains("Pacific/Apia America/St_Johns America/Sao_Paulo America/Havana Australia/Lord_Howe", name)
		h := fnv.New32a()
		_, _ = h.Write([]byte(name))
		if !long && !special && i%100 != 0 {
			continue
		}
		loc, err := time.LoadLocation(name)
		if err != nil {
			continue // a newer name
		}
		first := 1990 + int(h.Sum32()%35)
		switch {
		case long:
			first = 1990
		case special:
			first = 2010 // Samoa skips a day in 2011, and Newfoundland changes clocks a minute after midnight
		}
		from, until := time.Date(first, 1, 10, 12, 0, 0, 0, loc), time.Date(first+years, 1, 20, 12, 0, 0, 0, loc)
		days := borders(from, until)
		for _, unit := range units {
			var want []time.Time
			for i, at := range days[1:] {
				if !same(unit, days[i], at) {
					want = append(want, at)
				}
			}
			check(t, unit, name, want)
		}
	}
}

// TestYearsBeyondTheTable: the ends of years for which a zone has a rule and no table. Of those Go says where the bounds of
// the zone are with 365 days for each year: on the last day of a leap year the next one has passed.
func TestYearsBeyondTheTable(t *testing.T) {
	t.Parallel()
	for _, name := range zones(t) {
		loc, err := time.LoadLocation(name)
		if err != nil {
			continue
		}
		for _, year := range []int{2028, 2039, 2040, 2044} { // some systems have no tables at all
			days := borders(time.Date(year, 12, 25, 12, 0, 0, 0, loc), time.Date(year+1, 1, 6, 12, 0, 0, 0, loc))
			check(t, calendar.Day, name, days)
			at := slices.IndexFunc(days, func(day time.Time) bool { return day.Year() > year })
			if _, end := calendar.Year.Window(days[at-1]); !end.Equal(days[at]) {
				t.Errorf("%d in %s ends at %v, want %v", year, name, end, days[at])
			}
		}
		if t.Failed() {
			return
		}
	}
}

// least is what package limiter takes for the shortest windows.
var least = map[calendar.Unit]time.Duration{
	calendar.Day: 16 * time.Hour, calendar.Week: 5 * 24 * time.Hour, calendar.Month: 26 * 24 * time.Hour, calendar.Year: 363 * 24 * time.Hour,
}

// check compares the windows with where they should begin.
func check(t *testing.T, unit calendar.Unit, name string, want []time.Time) {
	t.Helper()
	for i, at := range want[:len(want)-1] {
		next := want[i+1]
		if length := next.Sub(at); length < least[unit] {
			t.Errorf("%v of %v in %s has %v: limiter.Calendar counts on %v", unit, at, name, length, least[unit])
		}
		for _, in := range []time.Time{at, at.Add(30 * time.Minute), at.Add(next.Sub(at) / 3), next.Add(-time.Nanosecond)} {
			if start, end := unit.Window(in); !start.Equal(at) || !end.Equal(next) {
				t.Errorf("%v of %v in %s: %v to %v, want %v to %v", unit, in, name, start, end, at, next)
				return
			}
		}
		if n := unit.Number(at); unit.Number(at.Add(-time.Nanosecond)) >= n || !unit.Start(n, at.Location()).Equal(at) {
			t.Errorf("%v in %s: number %d begins %v, want %v", unit, name, n, unit.Start(n, at.Location()), at)
			return
		}
	}
}

// TestWindows: days that are short, long, skipped, and without a midnight; weeks, months and years.
func TestWindows(t *testing.T) {
	for _, c := range []struct {
		unit           calendar.Unit
		zone, in       string
		start, end     string
		hours, minutes int
	}{
		{calendar.Day, "Europe/Berlin", "2026-03-29T12:00:00", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00", 23, 0},
		{calendar.Day, "Europe/Berlin", "2026-10-25T12:00:00", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00", 25, 0},
		{calendar.Day, "America/Sao_Paulo", "2017-10-15T12:00:00", "2017-10-15T01:00:00-02:00", "2017-10-16T00:00:00-02:00", 23, 0},
		{calendar.Day, "America/Havana", "2026-11-01T12:00:00", "2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00", 25, 0},
		{calendar.Day, "America/St_Johns", "2010-11-07T12:00:00", "2010-11-07T00:00:00-02:30", "2010-11-08T00:00:00-03:30", 25, 0},
		{calendar.Day, "Pacific/Apia", "2011-12-31T12:00:00", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00", 24, 0},
		{calendar.Day, "Pacific/Apia", "2011-12-29T12:00:00", "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00", 24, 0},
		{calendar.Day, "Australia/Lord_Howe", "2026-04-05T12:00:00", "2026-04-05T00:00:00+11:00", "2026-04-06T00:00:00+10:30", 24, 30},
		{calendar.Week, "UTC", "2026-01-01T12:00:00", "2025-12-29T00:00:00Z", "2026-01-05T00:00:00Z", 168, 0},
		{calendar.Month, "Europe/Berlin", "2024-02-29T12:00:00", "2024-02-01T00:00:00+01:00", "2024-03-01T00:00:00+01:00", 29 * 24, 0},
		{calendar.Month, "Europe/Berlin", "2026-03-01T00:00:00", "2026-03-01T00:00:00+01:00", "2026-04-01T00:00:00+02:00", 31*24 - 1, 0},
		{calendar.Year, "America/New_York", "2028-12-31T23:59:59", "2028-01-01T00:00:00-05:00", "2029-01-01T00:00:00-05:00", 366 * 24, 0},
		{calendar.Day, "UTC", "1969-12-31T23:00:00", "1969-12-31T00:00:00Z", "1970-01-01T00:00:00Z", 24, 0},
		{calendar.Month, "UTC", "1969-12-31T23:00:00", "1969-12-01T00:00:00Z", "1970-01-01T00:00:00Z", 31 * 24, 0},
	} {
		loc, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		in, err := time.ParseInLocation("2006-01-02T15:04:05", c.in, loc)
		if err != nil {
			t.Fatal(err)
		}
		start, end := c.unit.Window(in)
		if length := time.Duration(c.hours)*time.Hour + time.Duration(c.minutes)*time.Minute; start.Format(time.RFC3339) != c.start || end.Format(time.RFC3339) != c.end || end.Sub(start) != length {
			t.Errorf("%v of %s in %s: %v to %v, %v", c.unit, c.in, c.zone, start, end, end.Sub(start))
		}
	}
}

func TestUnits(t *testing.T) {
	for _, unit := range units {
		text, err := json.Marshal(unit)
		var back calendar.Unit
		if err != nil || json.Unmarshal(text, &back) != nil || back != unit || !unit.Valid() || string(text) != fmt.Sprintf("%q", unit) {
			t.Errorf("%v is %s, %v, %v", unit, text, back, err)
		}
	}
	for _, text := range []string{"", "Day", "fortnight"} {
		unit := calendar.Month
		if err := unit.UnmarshalText([]byte(text)); !errors.Is(err, limiter.ErrInvalidConfig) || unit != calendar.Month {
			t.Errorf("%q: %v, %v", text, unit, err)
		}
	}
	now := time.Now()
	if start, end := calendar.Unit(0).Window(now); calendar.Unit(9).Valid() || !start.Equal(now) || !end.Equal(now) {
		t.Errorf("%v to %v", start, end)
	}
}

func ExampleUnit_Window() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	start, end := calendar.Day.Window(time.Date(2026, time.March, 29, 12, 0, 0, 0, berlin))
	fmt.Println(start, end.Sub(start))
	// Output: 2026-03-29 00:00:00 +0100 CET 23h0m0s
}
