package limiter_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/limiter"
)

func TestParseLimit(t *testing.T) {
	for text, want := range map[string]limiter.Limit{
		"100/s":                             limiter.TokenBucket(limiter.PerSecond(100), 100),
		"  5/min ":                          limiter.TokenBucket(limiter.PerMinute(5), 5),
		"1000/h burst 50":                   limiter.TokenBucket(limiter.PerHour(1000), 50),
		"10/90s":                            limiter.TokenBucket(limiter.Per(10, 90*time.Second), 10),
		"10/1h30m":                          limiter.TokenBucket(limiter.Per(10, 90*time.Minute), 10),
		"10/1.5s":                           limiter.TokenBucket(limiter.Per(10, 1500*time.Millisecond), 10),
		"10/day":                            limiter.TokenBucket(limiter.PerHour(10), 10),
		"7/3days burst 1":                   limiter.TokenBucket(limiter.Per(7, 72*time.Hour), 1),
		"1/2minutes":                        limiter.TokenBucket(limiter.Per(1, 2*time.Minute), 1),
		"1/hours":                           limiter.TokenBucket(limiter.PerHour(1), 1),
		"1/secs":                            limiter.TokenBucket(limiter.PerSecond(1), 1),
		"Token Bucket 100/s BURST 200":      limiter.TokenBucket(limiter.PerSecond(100), 200),
		"token-bucket 100/s":                limiter.TokenBucket(limiter.PerSecond(100), 100),
		"token-bucket-100/s":                limiter.TokenBucket(limiter.PerSecond(100), 100),
		"100/s-burst-20":                    limiter.TokenBucket(limiter.PerSecond(100), 20),
		"token_bucket 100/s":                limiter.TokenBucket(limiter.PerSecond(100), 100),
		"fixed window 100/s":                limiter.FixedWindow(limiter.PerSecond(100)),
		"sliding window log 5/min":          limiter.SlidingWindowLog(limiter.PerMinute(5)),
		"sliding window counter 5/m":        limiter.SlidingWindowCounter(limiter.PerMinute(5)),
		"gcra 5/sec burst 2":                limiter.GCRA(limiter.PerSecond(5), 2),
		"GCRA 5/seconds":                    limiter.GCRA(limiter.PerSecond(5), 5),
		"leaky bucket 5/s capacity 9":       limiter.LeakyBucket(limiter.PerSecond(5), 9),
		"leaky bucket shaping 5/s burst 9":  limiter.LeakyBucketShaping(limiter.PerSecond(5), 9),
		"leaky-bucket-shaping\t5/s burst 9": limiter.LeakyBucketShaping(limiter.PerSecond(5), 9),
	} {
		if text == "10/day" {
			want = limiter.TokenBucket(limiter.Per(10, 24*time.Hour), 10)
		}
		if got, err := limiter.ParseLimit(text); err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestParseLimitErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                            `at its end: a whole number must follow`,
		"fast":                        `at "fast": a whole number must follow`,
		"token bucket":                `at its end: a whole number must follow`,
		"sliding window 5/s":          `at "sliding window 5/s": a whole number must follow`,
		"100":                         `at its end: must be n/period`,
		"100 /s":                      `at " /s": must be n/period`,
		"5day Europe/Berlin":          `at "day Europe/Berlin": must be n/period`,
		"x/day Europe/Berlin":         `a whole number must follow`,
		"100/":                        `at its end: must be a period`,
		"100/ Europe/Berlin":          `at " Europe/Berlin": must be a period`,
		"100/fortnight":               `at "fortnight": must be a period`,
		"100/ss":                      `at "ss": must be a period`,
		"100/2week":                   `at "2week": must be a period above 0, as s, min, h, day, 90s or 1h30m, or with a time zone day, week, month or year`,
		"100/months":                  `at its end: a time zone must follow`,
		"100/0s":                      `at "0s": must be a period`,
		"100/-1s":                     `at "-1s": must be a period`,
		"100/300000000days":           `at "300000000days": must be a period`,
		"99999999999999999999/s":      `at "99999999999999999999/s": the number is too large`,
		"100/s burst":                 `at its end: a whole number must follow`,
		"100/s burst x":               `at "x": a whole number must follow`,
		"100/s burst -2":              `at "-2": a whole number must follow`,
		"100/s 200":                   `at "200": nothing more may follow`,
		"fixed window 100/s burst 20": `at "burst 20": nothing more may follow`,
		"0/s":                         `rate is 0`,
		"100/s burst 0":               `burst is 0`,
		"1/400days":                   `period`,
		"1/1ns":                       `period`,
		"sliding window log 20000/s":  `20000`,
	} {
		_, err := limiter.ParseLimit(text)
		if !errors.Is(err, limiter.ErrInvalidConfig) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

// TestLimitsInJSON: limits and rates are read from configuration as text.
func TestLimitsInJSON(t *testing.T) {
	type config struct {
		Limit limiter.Limit
		Rate  limiter.Rate
		None  limiter.Limit
	}
	in := config{Limit: limiter.GCRA(limiter.PerMinute(30), 5), Rate: limiter.PerHour(7)}
	text, err := json.Marshal(in)
	if want := `{"Limit":"gcra 30/1m burst 5","Rate":"7/1h","None":""}`; err != nil || string(text) != want {
		t.Fatalf("%s, %v; want %s", text, err, want)
	}
	var out config
	if err := json.Unmarshal(text, &out); err != nil || out != in {
		t.Errorf("%+v, %v; want %+v", out, err, in)
	}
	if err := out.Limit.UnmarshalText(nil); err != nil || out.Limit != (limiter.Limit{}) {
		t.Errorf("no text is %v, %v", out.Limit, err)
	}
	for _, bad := range []string{`{"Limit":"x"}`, `{"Rate":"x"}`, `{"Rate":"1/s burst 2"}`} {
		before := out
		if err := json.Unmarshal([]byte(bad), &out); err == nil || out != before {
			t.Errorf("%s: %+v, %v", bad, out, err)
		}
	}
}

// TestNamesAsText: what prints as a word is read back from it, and nothing else is.
func TestNamesAsText(t *testing.T) {
	for s := limiter.SourceRedis; s <= limiter.SourceSampled; s++ {
		got := limiter.SourceOpen
		if err := got.UnmarshalText([]byte(s.String())); err != nil || got != s {
			t.Errorf("%v is %v, %v", s, got, err)
		}
	}
	for p := fallback.Local; p.Valid(); p++ {
		got := fallback.Open
		if err := got.UnmarshalText([]byte(p.String())); err != nil || got != p {
			t.Errorf("%v is %v, %v", p, got, err)
		}
	}
	s, p := limiter.SourceCache, fallback.Open
	if err := p.UnmarshalText([]byte("Closed")); err != nil || p != fallback.Closed {
		t.Errorf("%v, %v", p, err)
	}
	if err := s.UnmarshalText([]byte("Redis")); !errors.Is(err, limiter.ErrInvalidConfig) || s != limiter.SourceCache {
		t.Errorf("%v, %v", s, err)
	}
	if err := p.UnmarshalText([]byte("unknown policy 3")); !errors.Is(err, limiter.ErrInvalidConfig) || p != fallback.Closed {
		t.Errorf("%v, %v", p, err)
	}
}

// FuzzParseLimit: what can be parsed is valid, and prints as a text of the same limit.
func FuzzParseLimit(f *testing.F) {
	for _, seed := range []string{"100/s", "token bucket 100/s burst 200", "fixed window 5/90s", "GCRA 1/1h30m", "leaky bucket shaping 7/3days capacity 2", "1/µs"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := limiter.ParseLimit(text)
		if err != nil {
			return
		}
		if err := l.Validate(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if again, err := limiter.ParseLimit(l.String()); err != nil || again != l {
			t.Errorf("%q is %v, which is %v, %v", text, l, again, err)
		}
	})
}

// FuzzLimitText: every valid limit is read back from its text.
func FuzzLimitText(f *testing.F) {
	f.Add(uint8(0), 100, int64(time.Second), 5)
	f.Add(uint8(5), 7, int64(time.Microsecond), 1)
	f.Fuzz(func(t *testing.T, kind uint8, n int, per int64, burst int) {
		rate := limiter.Per(n, time.Duration(per))
		l := []limiter.Limit{
			limiter.FixedWindow(rate), limiter.SlidingWindowLog(rate), limiter.SlidingWindowCounter(rate), limiter.TokenBucket(rate, burst),
			limiter.LeakyBucket(rate, burst), limiter.LeakyBucketShaping(rate, burst), limiter.GCRA(rate, burst),
		}[kind%7]
		if l.Validate() != nil {
			return
		}
		if got, err := limiter.ParseLimit(l.String()); err != nil || got != l {
			t.Errorf("%v is %v, %v", l, got, err)
		}
	})
}

// TestNegativeNumbersAreNoLimits: a sign is not what separates words.
func TestNegativeNumbersAreNoLimits(t *testing.T) {
	for _, text := range []string{"-5/s", "token bucket -5/s", "5/s burst -3", "5/s burst --3", "_5/s"} {
		if l, err := limiter.ParseLimit(text); err == nil {
			t.Errorf("%q is %v", text, l)
		}
	}
	r := limiter.Rate{N: -5, Per: time.Second}
	text, _ := r.MarshalText()
	var back limiter.Rate
	if err := back.UnmarshalText(text); err == nil && back != r {
		t.Errorf("%v became %v", r, back)
	}
}
