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

// amzRetryAfter is a wait in milliseconds.
const amzRetryAfter = "X-Amz-Retry-After"

// millisHeaders name a wait in milliseconds, finer than Retry-After can. The
// second is Azure's, the third that of AWS.
var millisHeaders = [...]string{"Retry-After-Ms", "X-Ms-Retry-After-Ms", amzRetryAfter}

// ParseRetryAfter returns the wait that a response asks for in Retry-After (RFC
// 9110 section 10.2.3: seconds, or a date in any of the three HTTP formats) or,
// with precedence, in Retry-After-Ms, X-Ms-Retry-After-Ms or X-Amz-Retry-After. Some servers send fractions, such as 2.0;
// they are rounded up to a nanosecond. A number that is too large to represent
// is the longest time.Duration, as RFC 9111 section 1.2.2 says of such numbers.
// A date is taken relative to the response's own Date plus its Age, so that
// clocks need not agree; see [ParseQuota] for now. A date that has passed is a
// wait of 0. Of several values the first counts. What is not in such a form, or
// is negative, is no wait: ok is false. Header names must be in canonical form,
// as net/http makes them.
func ParseRetryAfter(h http.Header, now time.Time) (hint Hint, ok bool) {
	for _, name := range millisHeaders {
		if d, ok := decimal(first(h, name), time.Millisecond); ok {
			return Hint{d, -1, name}, true
		}
	}
	value := first(h, "Retry-After")
	if value == "" {
		return Hint{}, false
	}
	d, ok := decimal(value, time.Second)
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

// longest is what stands for a time that is too large to represent.
const longest = time.Duration(math.MaxInt64)

// decimal parses a number of units, at least 0, whole or with a decimal
// fraction, and rounds it up to a nanosecond. One that is too large is longest.
// strconv.ParseFloat would also take signs, exponents and names, and would not
// be exact.
func decimal(s string, unit time.Duration) (d time.Duration, ok bool) {
	whole, part, dotted := strings.Cut(s, ".")
	if !digits(whole) || dotted && !digits(part) {
		return 0, false
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n > int64(longest/unit) {
		return longest, true
	}
	d = time.Duration(n) * unit
	for _, c := range []byte(part) {
		if unit /= 10; unit > 0 {
			d += time.Duration(c-'0') * unit
		} else if c > '0' {
			d++
			break
		}
	}
	if d < 0 {
		return longest, true
	}
	return d, true
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// httpDate parses the three forms of RFC 9110 section 5.6.7. net/http takes a
// two-digit year from 69 on for one of the last century; the RFC, for one that
// is at most 50 years ahead. No response of this century means the difference.
func httpDate(s string) (time.Time, bool) {
	t, err := http.ParseTime(s)
	return t, err == nil
}

// age returns for how long a cache has kept a response; 0 is that it comes from
// its server. Of a list the first member counts, and what is no number is
// ignored (RFC 9111 section 5.1).
func age(h http.Header) time.Duration {
	s, _, _ := strings.Cut(first(h, "Age"), ",")
	if !digits(s) {
		return 0
	}
	d, _ := decimal(s, time.Second)
	return d
}

// maxSkew is by how much a server's clock may differ from ours and still be the
// measure of its dates. A clock that is further off is broken, and the other
// dates may come from another one.
const maxSkew = 24 * time.Hour

// clock returns the time by which a response's dates are measured: what the
// server's clock shows now, by Date and Age, unless that is far off, then ours.
func clock(h http.Header, now time.Time) time.Time {
	if now.IsZero() {
		now = time.Now()
	}
	date, ok := httpDate(first(h, "Date"))
	if date = date.Add(age(h)); !ok || date.Sub(now).Abs() > maxSkew {
		return now
	}
	return date
}

// until returns the time from now to t, at least 0. Both may be any time.
func until(t, now time.Time) time.Duration {
	return max(0, t.Sub(now)) // Sub saturates
}
