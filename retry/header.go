package retry

import (
	"math"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"
)

// Hint is what a server says about when to come back.
type Hint struct {
	// Wait is for how long to stay away, from when the response came; 0 is now.
	// It may be very long: the caller decides what is too long.
	Wait time.Duration
	// Remaining is what is left of the quota until then; -1 if it is not said.
	Remaining int64
	// Source is the header that says so, in canonical form.
	Source string
}

// millisHeaders name a wait in milliseconds, finer than Retry-After can. The
// second is Azure's.
var millisHeaders = [...]string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"}

// ParseRetryAfter returns the wait that a response asks for in Retry-After (RFC
// 9110 section 10.2.3: seconds, or a date in any of the three HTTP formats) or,
// with precedence, in Retry-After-Ms. A date is taken relative to the
// response's own Date, so that clocks need not agree; see [ParseQuota] for now.
// A date that has passed is a wait of 0. Of several values the first counts.
// What is not in such a form, is negative, or does not fit a time.Duration is
// no wait: ok is false. Header names must be in canonical form, as net/http
// makes them.
func ParseRetryAfter(h http.Header, now time.Time) (hint Hint, ok bool) {
	for _, name := range millisHeaders {
		if d, ok := delta(first(h, name), time.Millisecond); ok {
			return Hint{d, -1, name}, true
		}
	}
	value := first(h, "Retry-After")
	if value == "" {
		return Hint{}, false
	}
	d, ok := delta(value, time.Second)
	if !ok {
		var t time.Time
		if t, ok = httpDate(value); ok {
			d = until(t, clock(h, now))
		}
	}
	if !ok {
		return Hint{}, false
	}
	return Hint{d, -1, "Retry-After"}, true
}

// first returns the first value of a header, without the space around it.
func first(h http.Header, name string) string {
	if vs := h[name]; len(vs) > 0 {
		return textproto.TrimString(vs[0])
	}
	return ""
}

// delta parses a whole number of units: digits only.
func delta(s string, unit time.Duration) (time.Duration, bool) {
	if !digits(s) {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > int64(math.MaxInt64/unit) {
		return 0, false
	}
	return time.Duration(n) * unit, true
}

func digits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

// httpDate parses the three forms of RFC 9110 section 5.6.7. net/http takes a
// two-digit year from 69 on for one of the last century; the RFC, for one that
// is at most 50 years ahead. No response of this century means the difference.
func httpDate(s string) (time.Time, bool) {
	t, err := http.ParseTime(s)
	return t, err == nil
}

// maxSkew is by how much a response's Date may differ from our clock and still
// be the measure of its other dates. A clock that is further off is broken, and
// its other dates may come from another one.
const maxSkew = 24 * time.Hour

// clock returns the time by which a response's dates are measured: its own
// Date, unless it came from a cache or is far off, then now.
func clock(h http.Header, now time.Time) time.Time {
	if now.IsZero() {
		now = time.Now()
	}
	if len(h["Age"]) > 0 {
		return now
	}
	date, ok := httpDate(first(h, "Date"))
	if !ok || date.Sub(now).Abs() > maxSkew {
		return now
	}
	return date
}

// until returns the time from now to t, at least 0. Both may be any time.
func until(t, now time.Time) time.Duration {
	return max(0, t.Sub(now)) // Sub saturates
}

// fraction parses a decimal number of units, rounded up to a nanosecond. Some
// quota headers have them; strconv alone would take signs, exponents and names.
func fraction(s string, unit time.Duration) (time.Duration, bool) {
	whole, part, dotted := strings.Cut(s, ".")
	if !dotted {
		return delta(s, unit)
	}
	if !digits(whole) || !digits(part) {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, false
	}
	if f = math.Ceil(f * float64(unit)); f >= math.MaxInt64 {
		return 0, false
	}
	return time.Duration(f), true
}
