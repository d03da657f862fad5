package limiter

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

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
//     token bucket. The case of letters does not matter, and "-" and "_" are as good as a
//     space.
//   - The period is a duration as [time.ParseDuration] reads it, such as 90s or 1h30m, or a
//     unit alone or after a whole number: µs, ms, s, sec, second, m, min, minute, h, hour, d,
//     day, each also with an s at its end.
//   - The burst, which may be called capacity, is n of the rate if it is not given. The
//     algorithms with a window have none.
//
// The limit is valid, or there is an error that matches ErrInvalidConfig and has the text and
// the place in it.
func ParseLimit(text string) (Limit, error) {
	p := parser{text: text}
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
	p := parser{text: string(text)}
	rate := p.rate()
	if p.end(); p.err != nil {
		return p.err
	}
	*r = rate
	return nil
}

// parser reads a text from left to right, until something in it is wrong.
type parser struct {
	text string
	at   int // of the word that is read, in bytes
	err  error
}

// fail notes the first mistake.
func (p *parser) fail(rule string, args ...any) {
	if p.err == nil {
		at := "at its end"
		if rest := p.text[p.at:]; rest != "" {
			at = fmt.Sprintf("at %q", rest)
		}
		p.err = invalid("limit", strconv.Quote(p.text), "%s", at+": "+fmt.Sprintf(rule, args...))
	}
}

// isSpace reports whether c separates words.
func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '-' || c == '_' }

// space moves to the next word.
func (p *parser) space() {
	for p.at < len(p.text) && isSpace(p.text[p.at]) {
		p.at++
	}
}

// word moves over the given word, in small letters, if it is the next one.
func (p *parser) word(w string) bool {
	p.space()
	end := p.at + len(w)
	if end > len(p.text) || !strings.EqualFold(p.text[p.at:end], w) || end < len(p.text) && !isSpace(p.text[end]) {
		return false
	}
	p.at = end
	return true
}

// words moves over all the words of a name, or none.
func (p *parser) words(name string) bool {
	at := p.at
	for w := range strings.FieldsSeq(name) {
		if !p.word(w) {
			p.at = at
			return false
		}
	}
	return true
}

// limit reads all of the text.
func (p *parser) limit() Limit {
	l := Limit{kind: algo.TokenBucket}
	// The longest name of those that fit.
	for best, k := 0, algo.Kind(1); k.Valid(); k++ {
		if name := k.String(); len(name) > best && p.starts(name) {
			best, l.kind = len(name), k
		}
	}
	p.words(l.kind.String())
	l.rate = p.rate()
	if !l.kind.Windowed() {
		l.burst = l.rate.N
		if p.words("burst") || p.words("capacity") {
			l.burst = p.number()
		}
	}
	p.end()
	return l
}

// starts reports whether the words of a name come next.
func (p *parser) starts(name string) bool {
	look := *p
	return look.words(name)
}

// end fails unless all was read.
func (p *parser) end() {
	if p.space(); p.at < len(p.text) {
		p.fail("nothing more may follow")
	}
}

// digits returns the digits that come next.
func (p *parser) digits() string {
	from := p.at
	for p.at < len(p.text) && '0' <= p.text[p.at] && p.text[p.at] <= '9' {
		p.at++
	}
	return p.text[from:p.at]
}

// number reads a whole number. What separates words is a sign where nothing is before it.
func (p *parser) number() int {
	p.space()
	if i := p.at - 1; i >= 0 && (p.text[i] == '-' || p.text[i] == '_') && (i == 0 || isSpace(p.text[i-1])) {
		p.at = i
	}
	from := p.at
	digits := p.digits()
	n, err := strconv.Atoi(digits)
	if err != nil {
		p.at = from
		if digits == "" {
			p.fail("a whole number must follow")
		} else {
			p.fail("the number is too large")
		}
	}
	return n
}

// rate reads n/period.
func (p *parser) rate() Rate {
	n := p.number()
	if p.err == nil && (p.at == len(p.text) || p.text[p.at] != '/') {
		p.fail("must be n/period, as in 100/s")
	}
	if p.err != nil {
		return Rate{}
	}
	p.at++
	from := p.at
	for p.at < len(p.text) && !isSpace(p.text[p.at]) {
		p.at++
	}
	d, ok := period(p.text[from:p.at])
	if !ok {
		p.at = from
		p.fail("must be a period above 0, as s, min, h, day, 90s or 1h30m")
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
	p := parser{text: text}
	n := 1
	if digits := p.digits(); digits != "" {
		var err error
		if n, err = strconv.Atoi(digits); err != nil {
			return 0, false
		}
	}
	name := text[p.at:]
	unit, ok := units[name]
	if !ok {
		unit, ok = units[strings.TrimSuffix(name, "s")]
	}
	return time.Duration(n) * unit, ok && n > 0 && int64(n) <= math.MaxInt64/int64(unit)
}
