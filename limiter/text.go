package limiter

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/calendar"
	"github.com/holdfast-go/holdfast/internal/algo"
)

// ParseLimit reads a limit as [Limit.String] prints it, and as people write it:
//
//	[algorithm] n/period [burst n]
//
// as in "token bucket 100/s burst 200", "sliding window log 5/min" or "1000/h".
//
//   - The algorithm is one of "fixed window", "sliding window log", "sliding window counter",
//     "token bucket", "leaky bucket", "leaky bucket shaping" and "gcra"; without one it is a
//     token bucket. The case of letters does not matter, and "-" and "_" may stand for a
//     space.
//   - The period is a duration as [time.ParseDuration] reads it, such as 90s or 1h30m, or a
//     unit alone or after a whole number: µs, ms, s, sec, second, m, min, minute, h, hour, d,
//     day, each also with an s at its end.
//   - A fixed window may follow the calendar of a time zone: then the period is day, week, month
//     or year, and the name of the zone stands behind it, as in "10000/month Europe/Berlin".
//   - The burst, which may be called capacity, is n of the rate if it is not given. The
//     algorithms with a window have none.
//
// The limit is valid, or there is an error that matches ErrInvalidConfig and has the text and
// the place in it.
func ParseLimit(text string) (Limit, error) {
	p := parser{text: text, rest: text}
	l := p.limit()
	if p.err != nil {
		return Limit{}, p.err
	}
	if _, err := l.params(); err != nil {
		rule := strings.TrimPrefix(err.Error(), pkg+": ")
		return Limit{}, invalid("limit", strconv.Quote(text), "%s", rule)
	}
	return l, nil
}

// MarshalText returns what String does, and nothing for the zero value.
func (l Limit) MarshalText() ([]byte, error) {
	if l == (Limit{}) {
		return nil, nil
	}
	return []byte(l.String()), nil
}

// UnmarshalText is ParseLimit; an empty text is the zero value.
func (l *Limit) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*l = Limit{}
		return nil
	}
	parsed, err := ParseLimit(string(text))
	if err == nil {
		*l = parsed
	}
	return err
}

// MarshalText returns what String does.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a rate as [ParseLimit] does. Whether its numbers are possible is said
// by what takes the rate.
func (r *Rate) UnmarshalText(text []byte) error {
	p := parser{text: string(text), rest: string(text)}
	rate := p.rate()
	if p.end(); p.err != nil {
		return p.err
	}
	*r = rate
	return nil
}

// separators are what words are separated by.
const separators = " \t-_"

// parser reads a text from left to right, until something in it is wrong.
type parser struct {
	text, rest string
	err        error
}

// fail notes the first mistake.
func (p *parser) fail(rule string) {
	if p.err == nil {
		at := "at its end"
		if p.rest != "" {
			at = fmt.Sprintf("at %q", p.rest)
		}
		p.err = invalid("limit", strconv.Quote(p.text), "%s: %s", at, rule)
	}
}

// cut returns a word and what follows it.
func cut(s string) (word, rest string) {
	if end := strings.IndexAny(s, separators); end >= 0 {
		return s[:end], s[end:]
	}
	return s, ""
}

// takes moves over all the words of a name, or none.
func (p *parser) takes(name string) bool {
	rest, word := p.rest, ""
	for w := range strings.FieldsSeq(name) {
		if word, rest = cut(strings.TrimLeft(rest, separators)); !strings.EqualFold(word, w) {
			return false
		}
	}
	p.rest = rest
	return true
}

// limit reads all of the text.
func (p *parser) limit() Limit {
	l, longest := Limit{kind: algo.TokenBucket}, *p
	for _, k := range algo.Kinds {
		if named := *p; named.takes(k.String()) && len(named.rest) < len(longest.rest) {
			l.kind, longest = k, named
		}
	}
	if named := longest.rest != p.text; !named || l.kind == algo.FixedWindow {
		if follows := longest; follows.calendar(&l) {
			*p = follows
			return l
		}
	}
	*p = longest
	l.rate = p.rate()
	if !l.kind.Windowed() {
		l.burst = l.rate.N
		if p.takes("burst") || p.takes("capacity") {
			l.burst = p.number()
		}
	}
	p.end()
	return l
}

// calendar reads n/unit and a time zone, if that is what there is, or what is wrong with it.
func (p *parser) calendar(l *Limit) bool {
	n := p.number()
	per, ok := strings.CutPrefix(p.rest, "/")
	word, zone := cut(per)
	var unit calendar.Unit
	if p.err != nil || !ok || unit.UnmarshalText([]byte(strings.TrimSuffix(strings.ToLower(word), "s"))) != nil || !unit.Valid() {
		return false
	}
	first, _ := cut(strings.TrimLeft(zone, separators))
	switch p.rest = strings.TrimSpace(zone); {
	case unit == calendar.Day && (first == "" || strings.EqualFold(first, "burst") || strings.EqualFold(first, "capacity")):
		return false // 24 hours
	case p.rest == "":
		p.fail("a time zone must follow, as in 10000/month Europe/Berlin")
		return true
	}
	loc, err := time.LoadLocation(p.rest)
	if err != nil {
		p.fail("must be a time zone of the database, such as Europe/Berlin")
		return true
	}
	*l = Calendar(n, unit, loc)
	return true
}

// end fails unless all was read.
func (p *parser) end() {
	if p.rest = strings.TrimLeft(p.rest, separators); p.rest != "" {
		p.fail("nothing more may follow")
	}
}

// digits returns the digits at the beginning of s.
func digits(s string) string { return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))] }

// number reads a whole number. What separates words is a sign where no word is before it.
func (p *parser) number() int {
	first := p.rest == p.text
	number := strings.TrimLeft(p.rest, separators)
	space := p.rest[:len(p.rest)-len(number)]
	sign := strings.HasSuffix(space, "-") || strings.HasSuffix(space, "_")
	if p.rest = number; sign && (first || len(space) > 1) {
		p.rest = space[len(space)-1:] + number
	}
	n, err := strconv.Atoi(digits(p.rest))
	switch {
	case err == nil:
		p.rest = p.rest[len(digits(p.rest)):]
	case digits(p.rest) == "":
		p.fail("a whole number must follow")
	default:
		p.fail("the number is too large")
	}
	return n
}

// rate reads n/period.
func (p *parser) rate() Rate {
	n := p.number()
	per, ok := strings.CutPrefix(p.rest, "/")
	if !ok {
		p.fail("must be n/period, as in 100/s")
		return Rate{}
	}
	word, rest := cut(per)
	d, ok := period(word)
	if p.rest = rest; !ok {
		p.rest = per
		p.fail("must be a period above 0, as s, min, h, day, 90s or 1h30m, or with a time zone day, week, month or year")
	}
	return Rate{n, d}
}

// units are those that a period may be said in, without an s at the end.
var units = map[string]time.Duration{
	"ns": 1, "us": time.Microsecond, "µs": time.Microsecond, "ms": time.Millisecond,
	"s": time.Second, "sec": time.Second, "second": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute,
	"h": time.Hour, "hour": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour,
}

// period reads a duration above 0.
func period(text string) (time.Duration, bool) {
	text = strings.ToLower(text)
	if d, err := time.ParseDuration(text); err == nil {
		return d, d > 0
	}
	name, n := strings.TrimLeft(text, "0123456789"), 1
	if name != text {
		var err error
		if n, err = strconv.Atoi(digits(text)); err != nil {
			return 0, false
		}
	}
	unit, ok := units[name]
	if !ok && len(name) > len("s")+2 { // no plural of s or h
		unit, ok = units[strings.TrimSuffix(name, "s")]
	}
	return time.Duration(n) * unit, ok && n > 0 && int64(n) <= math.MaxInt64/int64(unit)
}
