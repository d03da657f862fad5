package retry_test

import (
	"math/big"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/retry"
)

// now is when the responses of these tests come. Their servers' clocks are an
// hour behind.
var (
	now       = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	theirs    = now.Add(-time.Hour)
	theirDate = theirs.Format(http.TimeFormat)
)

func header(pairs ...string) http.Header {
	h := make(http.Header)
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

const (
	none    = time.Duration(-1)
	longest = time.Duration(1<<63 - 1)
)

func TestParseRetryAfter(t *testing.T) {
	in30 := theirs.Add(30 * time.Second)
	for name, c := range map[string]struct {
		h    http.Header
		want time.Duration
	}{
		"seconds":                     {header("Retry-After", "120"), 2 * time.Minute},
		"zero":                        {header("Retry-After", "0"), 0},
		"space around":                {header("Retry-After", " \t7 "), 7 * time.Second},
		"leading zeros":               {header("Retry-After", "007"), 7 * time.Second},
		"the longest":                 {header("Retry-After", "9223372036"), 9223372036 * time.Second},
		"one more":                    {header("Retry-After", "9223372037"), longest},
		"overflows with its decimals": {header("Retry-After", "9223372036.9"), longest},
		"overflows when multiplied":   {header("Retry-After", "9223372036854775807"), longest},
		"overflows when parsed":       {header("Retry-After", "99999999999999999999999"), longest},
		"negative":                    {header("Retry-After", "-1"), none},
		"negative fraction":           {header("Retry-After", "-1.5"), none},
		"negative, too large":         {header("Retry-After", "-99999999999999999999999"), none},
		"plus":                        {header("Retry-After", "+1"), none},
		"fraction of 0":               {header("Retry-After", "2.0"), 2 * time.Second},
		"fraction":                    {header("Retry-After", "1.5"), 1500 * time.Millisecond},
		"fraction is exact":           {header("Retry-After", "1.1"), 1100 * time.Millisecond},
		"fraction is rounded up":      {header("Retry-After", "0.0000000001"), 1},
		"fraction of many zeros":      {header("Retry-After", "1.50000000000000"), 1500 * time.Millisecond},
		"nothing after the dot":       {header("Retry-After", "1."), none},
		"nothing before the dot":      {header("Retry-After", ".5"), none},
		"two dots":                    {header("Retry-After", "1.5.0"), none},
		"comma":                       {header("Retry-After", "1,5"), none},
		"exponent":                    {header("Retry-After", "1e3"), none},
		"words":                       {header("Retry-After", "soon"), none},
		"other digits":                {header("Retry-After", "٣"), none},
		"empty":                       {header("Retry-After", ""), none},
		"missing":                     {header(), none},
		"first of several":            {header("Retry-After", "3", "Retry-After", "9"), 3 * time.Second},
		"a list is garbage":           {header("Retry-After", "3, 9"), none},
		"IMF date":                    {header("Retry-After", in30.Format(http.TimeFormat), "Date", theirDate), 30 * time.Second},
		"RFC 850 date":                {header("Retry-After", in30.Format("Monday, 02-Jan-06 15:04:05 GMT"), "Date", theirDate), 30 * time.Second},
		"asctime date":                {header("Retry-After", in30.Format(time.ANSIC), "Date", theirDate), 30 * time.Second},
		"date that has passed":        {header("Retry-After", theirs.Add(-time.Minute).Format(http.TimeFormat), "Date", theirDate), 0},
		"date, no Date":               {header("Retry-After", now.Add(time.Minute).Format(http.TimeFormat)), time.Minute},
		"date, Date is garbage":       {header("Retry-After", now.Add(time.Minute).Format(http.TimeFormat), "Date", "today"), time.Minute},
		"date, Date is far off":       {header("Retry-After", now.Add(time.Minute).Format(http.TimeFormat), "Date", "Thu, 01 Jan 1970 00:00:00 GMT"), time.Minute},
		"date, from a cache":          {header("Retry-After", now.Add(time.Minute).Format(http.TimeFormat), "Date", theirDate, "Age", "3600"), time.Minute},
		"date, Age in list form":      {header("Retry-After", in30.Format(http.TimeFormat), "Date", theirDate, "Age", "10, 20"), 20 * time.Second},
		"date, Age is 0":              {header("Retry-After", in30.Format(http.TimeFormat), "Date", theirDate, "Age", "0"), 30 * time.Second},
		"date, Age is garbage":        {header("Retry-After", in30.Format(http.TimeFormat), "Date", theirDate, "Age", "old"), 30 * time.Second},
		"date, very far":              {header("Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"), longest},
		"date with another zone":      {header("Retry-After", "Wed, 01 Jul 2026 12:00:00 CET"), none},
		"milliseconds":                {header("Retry-After-Ms", "1500"), 1500 * time.Millisecond},
		"milliseconds of Azure":       {header("x-ms-retry-after-ms", "20"), 20 * time.Millisecond},
		"milliseconds first":          {header("Retry-After", "2", "Retry-After-Ms", "1500"), 1500 * time.Millisecond},
		"milliseconds are garbage":    {header("Retry-After", "2", "Retry-After-Ms", "-5"), 2 * time.Second},
		"milliseconds, fraction":      {header("Retry-After-Ms", "50.5"), 50500 * time.Microsecond},
		"milliseconds, rounded up":    {header("Retry-After-Ms", "0.0000001"), 1},
		"milliseconds that overflow":  {header("Retry-After", "2", "Retry-After-Ms", "9223372036855"), longest},
		"a quota is not a wait":       {header("X-RateLimit-Reset", "5"), none},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := retry.ParseRetryAfter(c.h, now)
			want(t, got, ok, c.want)
		})
	}
}

func want(t *testing.T, got retry.Hint, ok bool, want time.Duration) {
	t.Helper()
	switch {
	case want == none && ok:
		t.Errorf("%v from %q, want nothing", got.Wait, got.Source)
	case want == none:
	case !ok:
		t.Errorf("nothing, want %v", want)
	case got.Wait != want:
		t.Errorf("%v from %q, want %v", got.Wait, got.Source, want)
	}
}

func TestParseQuota(t *testing.T) {
	epoch := func(d time.Duration) string { return itoa(theirs.Add(d).Unix()) }
	for name, c := range map[string]struct {
		h         http.Header
		format    retry.ResetFormat
		want      time.Duration
		remaining int64
		source    string
	}{
		"delta":                  {h: header("X-RateLimit-Reset", "30", "X-RateLimit-Remaining", "0"), want: 30 * time.Second},
		"fraction of a second":   {h: header("X-RateLimit-Reset", "0.25"), want: 250 * time.Millisecond, remaining: -1},
		"epoch":                  {h: header("X-RateLimit-Reset", epoch(30*time.Second), "X-RateLimit-Remaining", "12", "Date", theirDate), want: 30 * time.Second, remaining: 12},
		"epoch in milliseconds":  {h: header("X-RateLimit-Reset", epoch(30*time.Second)+"250", "Date", theirDate), want: 30250 * time.Millisecond, remaining: -1},
		"epoch that has passed":  {h: header("X-RateLimit-Reset", epoch(-30*time.Second), "Date", theirDate), want: 0, remaining: -1},
		"the first epoch":        {h: header("X-RateLimit-Reset", "1000000000"), want: 0, remaining: -1},
		"the first, in ms":       {h: header("X-RateLimit-Reset", "1000000000000"), want: 0, remaining: -1},
		"no duration":            {h: header("X-RateLimit-Reset", "0m0s"), want: 0, remaining: -1},
		"remaining is huge":      {h: header("X-RateLimit-Reset", "3", "X-RateLimit-Remaining", "1e300"), want: 3 * time.Second, remaining: 1 << 53},
		"two that end together":  {h: header("X-RateLimit-Reset-A", "5", "X-RateLimit-Remaining-A", "0", "X-RateLimit-Reset-B", "5", "X-RateLimit-Remaining-B", "0"), want: 5 * time.Second, source: "X-Ratelimit-Reset-A"},
		"a bucket of Shopify":    {h: header("X-Shopify-Shop-Api-Call-Limit", "10/40"), want: 500 * time.Millisecond, remaining: 30},
		"neither":                {h: header("X-RateLimit-Reset", "99999999999"), want: none},
		"overflow":               {h: header("X-RateLimit-Reset", "99999999999999999999"), want: none},
		"negative":               {h: header("X-RateLimit-Reset", "-5"), want: none},
		"negative duration":      {h: header("X-RateLimit-Reset", "-5s"), want: none},
		"not a number":           {h: header("X-RateLimit-Reset", "NaN", "X-RateLimit-Remaining", "0"), want: none},
		"a name":                 {h: header("X-RateLimit-Reset", "never"), want: none},
		"duration":               {h: header("X-RateLimit-Reset-Requests", "6m0s", "X-RateLimit-Remaining-Requests", "0"), want: 6 * time.Minute},
		"RFC 3339":               {h: header("Anthropic-RateLimit-Requests-Reset", "2026-07-01T11:00:30Z", "Anthropic-RateLimit-Requests-Remaining", "0", "Date", theirDate), want: 30 * time.Second},
		"HTTP date":              {h: header("X-Rate-Limit-Reset", theirs.Add(time.Minute).Format(http.TimeFormat), "Date", theirDate), want: time.Minute, remaining: -1},
		"older names":            {h: header("RateLimit-Reset", "9", "RateLimit-Remaining", "1"), want: 9 * time.Second, remaining: 1},
		"after":                  {h: header("X-RateLimit-Reset", epoch(time.Hour), "X-RateLimit-Reset-After", "1.5", "X-RateLimit-Remaining", "0"), want: 1500 * time.Millisecond, source: "X-Ratelimit-Reset-After"},
		"after is garbage":       {h: header("X-RateLimit-Reset", "3", "X-RateLimit-Reset-After", "x"), want: 3 * time.Second, remaining: -1},
		"after, too large":       {h: header("X-RateLimit-Reset-After", "99999999999999999999", "X-RateLimit-Remaining", "0"), want: longest},
		"delta, too large":       {h: header("X-RateLimit-Reset", "99999999999999999999"), format: retry.ResetDelta, want: longest, remaining: -1},
		"epoch, too large":       {h: header("X-RateLimit-Reset", "99999999999999999999"), format: retry.ResetEpoch, want: none},
		"declared delta":         {h: header("X-RateLimit-Reset", "2000000000"), format: retry.ResetDelta, want: 2000000000 * time.Second, remaining: -1},
		"declared epoch":         {h: header("X-RateLimit-Reset", "60"), format: retry.ResetEpoch, want: 0, remaining: -1},
		"declared milliseconds":  {h: header("X-RateLimit-Reset", epoch(time.Second)+"000", "Date", theirDate), format: retry.ResetEpochMillis, want: time.Second, remaining: -1},
		"remaining is garbage":   {h: header("X-RateLimit-Reset", "3", "X-RateLimit-Remaining", "some"), want: 3 * time.Second, remaining: -1},
		"remaining is negative":  {h: header("X-RateLimit-Reset", "3", "X-RateLimit-Remaining", "-1"), want: 3 * time.Second, remaining: -1},
		"remaining is a decimal": {h: header("X-RateLimit-Reset", "3", "X-RateLimit-Remaining", "593.5"), want: 3 * time.Second, remaining: 593},
		"remaining alone":        {h: header("X-RateLimit-Remaining", "0"), want: none},
		"the one with nothing left": {
			h:    header("X-RateLimit-Reset-Requests", "1s", "X-RateLimit-Remaining-Requests", "9", "X-RateLimit-Reset-Tokens", "20s", "X-RateLimit-Remaining-Tokens", "0"),
			want: 20 * time.Second, source: "X-Ratelimit-Reset-Tokens",
		},
		"the last of those with nothing left": {
			h:    header("X-RateLimit-Reset-Requests", "1s", "X-RateLimit-Remaining-Requests", "0", "X-RateLimit-Reset-Tokens", "20s", "X-RateLimit-Remaining-Tokens", "0"),
			want: 20 * time.Second,
		},
		"the first of those with something left": {
			h:    header("X-RateLimit-Reset-Requests", "1s", "X-RateLimit-Remaining-Requests", "3", "X-RateLimit-Reset-Tokens", "20s", "X-RateLimit-Remaining-Tokens", "5"),
			want: time.Second, remaining: 3,
		},
		"from a cache":        {h: header("X-RateLimit-Reset", "600", "X-RateLimit-Remaining", "0", "Age", "300"), want: none},
		"from a cache, epoch": {h: header("X-RateLimit-Reset", epoch(time.Hour), "X-RateLimit-Remaining", "0", "Date", theirDate, "Age", "300"), want: none},
		"from a cache, after": {h: header("X-RateLimit-Reset-After", "600", "X-RateLimit-Remaining", "0", "Age", "1"), want: none},
		"from a cache, older": {h: header("RateLimit-Reset", "600", "RateLimit-Remaining", "0", "Age", "99999999999999999999"), want: none},
		"through a cache":     {h: header("X-RateLimit-Reset", "600", "X-RateLimit-Remaining", "0", "Age", "0"), want: 10 * time.Minute},
		"Age is garbage":      {h: header("X-RateLimit-Reset", "600", "X-RateLimit-Remaining", "0", "Age", "old"), want: 10 * time.Minute},
		"unrelated":           {h: header("X-Reset", "5", "Rate", "5", "X-RateLimit-Limit", "5"), want: none},

		"draft":                    {h: header("RateLimit", `"default";r=50;t=30`), want: 30 * time.Second, remaining: 50, source: "Ratelimit"},
		"draft, several":           {h: header("RateLimit", `"burst";r=5;t=1, "daily";r=0;t=600`), want: 10 * time.Minute},
		"draft, two lines":         {h: header("RateLimit", `"burst";r=0;t=1`, "RateLimit", `"daily";r=0;t=600`), want: 10 * time.Minute},
		"draft, no reset":          {h: header("RateLimit", `"default";r=0`), want: none},
		"draft, malformed":         {h: header("RateLimit", `"default;r=0;t=5`), want: none},
		"draft, one is malformed":  {h: header("RateLimit", `"a";r=0;t=5, "b`), want: none},
		"draft, negative":          {h: header("RateLimit", `"a";r=0;t=-5`), want: none},
		"draft, decimal":           {h: header("RateLimit", `"a";r=0;t=5.5`), want: none},
		"draft, the longest":       {h: header("RateLimit", `"a";r=0;t=999999999999999`), want: 9223372036 * time.Second},
		"draft, from a cache":      {h: header("RateLimit", `"a";r=0;t=5`, "Age", "1"), want: none},
		"draft, Age is 0":          {h: header("RateLimit", `"a";r=0;t=5`, "Age", "0"), want: 5 * time.Second},
		"draft, bytes":             {h: header("RateLimit", `"a";r=0;t=5`, "RateLimit-Policy", `"a";q=9;qu="content-bytes"`), want: none},
		"draft, another is bytes":  {h: header("RateLimit", `"a";r=0;t=5`, "RateLimit-Policy", `"b";q=9;qu="content-bytes"`), want: 5 * time.Second},
		"draft, requests":          {h: header("RateLimit", `"a";r=0;t=5`, "RateLimit-Policy", `"a";q=9;qu="requests"`), want: 5 * time.Second},
		"draft, policy malformed":  {h: header("RateLimit", `"a";r=0;t=5`, "RateLimit-Policy", `"`), want: 5 * time.Second},
		"draft, names are bytes":   {h: header("RateLimit", `:YQ==:;r=0;t=5`, "RateLimit-Policy", `:YQ==:;q=9`), want: 5 * time.Second},
		"draft, names are lists":   {h: header("RateLimit", `("a" "b");r=0;t=5`), want: none},
		"older draft":              {h: header("RateLimit", `limit=100, remaining=0, reset=5`), want: 5 * time.Second},
		"older draft, no reset":    {h: header("RateLimit", `limit=100, remaining=0`), want: none},
		"older draft, not numbers": {h: header("RateLimit", `limit=100, remaining=?0, reset=5`), want: none},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := retry.ParseQuota(c.h, now, c.format)
			want(t, got, ok, c.want)
			if ok && got.Remaining != c.remaining {
				t.Errorf("remaining %d, want %d", got.Remaining, c.remaining)
			}
			if ok && c.source != "" && got.Source != c.source {
				t.Errorf("source %q, want %q", got.Source, c.source)
			}
		})
	}
}

// TestParsersUseThePresent: a zero now is the present.
// TestClockOfTheServer measures its dates, as long as it is within a day of ours.
func TestClockOfTheServer(t *testing.T) {
	for off, want := range map[time.Duration]time.Duration{
		0:                           time.Minute,
		23 * time.Hour:              time.Minute,
		24 * time.Hour:              time.Minute,
		24*time.Hour + time.Second:  24*time.Hour + time.Second + time.Minute,
		36 * time.Hour:              36*time.Hour + time.Minute,
		-24 * time.Hour:             time.Minute,
		-24*time.Hour - time.Second: 0,
		-36 * time.Hour:             0,
	} {
		theirs := now.Add(off)
		h := header("Date", theirs.Format(http.TimeFormat), "Retry-After", theirs.Add(time.Minute).Format(http.TimeFormat))
		if hint, ok := retry.ParseRetryAfter(h, now); !ok || hint.Wait != want {
			t.Errorf("a clock that is off by %v: %v, %v, want %v", off, hint.Wait, ok, want)
		}
	}
}

func TestParsersUseThePresent(t *testing.T) {
	date := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	for name, got := range map[string]retry.Hint{
		"Retry-After": first(retry.ParseRetryAfter(header("Retry-After", date), time.Time{})),
		"quota":       first(retry.ParseQuota(header("X-RateLimit-Reset", date), time.Time{}, retry.ResetGuess)),
	} {
		if got.Wait < 59*time.Minute || got.Wait > time.Hour {
			t.Errorf("%s: %v, want an hour", name, got.Wait)
		}
	}
}

func first(h retry.Hint, _ bool) retry.Hint { return h }

// FuzzHeaders: whatever servers send, a wait is never negative, what is garbage
// is nothing, a number is what exact arithmetic says, a response from a cache has
// no quota, and the same headers always mean the same.
func FuzzHeaders(f *testing.F) {
	for _, s := range []string{"", "0", "120", "-1", "2.0", "50.5", "0.0000000001", "9223372036.854775808", "9223372036854775807", "6m0s", "1760000000", "1760000000123", "1e300", "Inf", "0x1p-2", `"a";r=0;t=9`, "remaining=0, reset=5", "Wed, 01 Jul 2026 12:00:00 GMT", "2026-07-01T12:00:00+14:00", ":YQ==:;r=0;t=1"} {
		f.Add(s, "0", theirDate, "", uint8(0))
		f.Add("7", s, s, s, uint8(1))
	}
	number := regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
	f.Fuzz(func(t *testing.T, a, b, date, age string, format uint8) {
		h := header("Date", date, "Age", age, "Retry-After", a, "Retry-After-Ms", b,
			"RateLimit", a, "RateLimit-Policy", b, "RateLimit-Reset", b, "RateLimit-Remaining", a,
			"X-RateLimit-Reset", a, "X-RateLimit-Remaining", b, "X-RateLimit-Reset-After", b,
			"X-RateLimit-Reset-Requests", b, "X-RateLimit-Remaining-Requests", a)
		check := func(got retry.Hint, ok bool) {
			t.Helper()
			if ok && (got.Wait < 0 || got.Remaining < -1 || len(h[got.Source]) == 0) || !ok && got != (retry.Hint{}) {
				t.Errorf("%+v, %v", got, ok)
			}
		}
		ra, ok := retry.ParseRetryAfter(h, now)
		check(ra, ok)
		for name, unit := range map[string]time.Duration{"Retry-After": time.Second, "Retry-After-Ms": time.Millisecond} {
			value := strings.Trim(h[name][0], " \t")
			if !number.MatchString(value) || len(value) > 1000 {
				continue
			}
			if got, ok := retry.ParseRetryAfter(http.Header{name: {value}}, now); !ok || got.Wait != exactly(value, unit) {
				t.Errorf("%s: %s: %v, want %v", name, value, got.Wait, exactly(value, unit))
			}
		}
		q, ok := retry.ParseQuota(h, now, retry.ResetFormat(format))
		check(q, ok)
		if old, isNumber := new(big.Int).SetString(age, 10); ok && isNumber && old.Sign() > 0 && number.MatchString(age) {
			t.Errorf("%+v from a cache", q)
		}
		for range 5 {
			if again, _ := retry.ParseQuota(h, now, retry.ResetFormat(format)); again != q {
				t.Fatalf("%+v, then %+v", q, again)
			}
		}
	})
}

// exactly is a decimal number of units, rounded up to a nanosecond, at most the
// longest.
func exactly(s string, unit time.Duration) time.Duration {
	r, _ := new(big.Rat).SetString(s)
	r.Mul(r, big.NewRat(int64(unit), 1))
	ns, rest := new(big.Int).DivMod(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		ns.Add(ns, big.NewInt(1))
	}
	if !ns.IsInt64() {
		return longest
	}
	return time.Duration(ns.Int64())
}

// TestParsersAllocateNothing: every response passes through them.
func TestParsersAllocateNothing(t *testing.T) {
	h := header("Content-Type", "application/json", "Date", theirDate, "Content-Length", "12", "X-Request-Id", "1", "Etag", "1")
	if n := testing.AllocsPerRun(100, func() {
		retry.ParseRetryAfter(h, now)
		retry.ParseQuota(h, now, retry.ResetGuess)
		retry.ParseAnswer(503, h, now, retry.ResetGuess)
	}); n != 0 {
		t.Errorf("%v allocations for a response without such headers", n)
	}
}
