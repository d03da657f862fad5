package calendar

import (
	"testing"
	"time"
)

// TestNumbersAndDates: the first date of a window has its number, also before 1970, and so have all
// dates before that of the next.
func TestNumbersAndDates(t *testing.T) {
	for _, u := range []Unit{Day, Week, Month, Year} {
		for n := int64(-3000); n < 3000; n++ {
			first, next := u.first(n), u.first(n+1)
			if !first.Before(next) {
				t.Fatalf("%v %d begins at %v, the next one at %v", u, n, first, next)
			}
			for _, at := range []time.Time{first, next.AddDate(0, 0, -1)} {
				if got := u.numberOf(at.Date()); got != n {
					t.Fatalf("%v: %v is in window %d, want %d", u, at, got, n)
				}
			}
		}
	}
	for _, c := range []struct {
		u    Unit
		n    int64
		want string
	}{{Day, 0, "1970-01-01"}, {Week, 0, "1969-12-29"}, {Month, 1970 * 12, "1970-01-01"}, {Month, 1972*12 + 1, "1972-02-01"}, {Year, 1969, "1969-01-01"}} {
		if got := c.u.first(c.n).Format(time.DateOnly); got != c.want {
			t.Errorf("%v %d begins on %s, want %s", c.u, c.n, got, c.want)
		}
	}
	if (Year + 1).Valid() || Unit(0).Valid() || !Year.Valid() {
		t.Error("what is valid")
	}
}
