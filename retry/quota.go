package retry

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/holdfast-go/holdfast/internal/enum"
)

// ResetFormat says what the number in a header such as X-RateLimit-Reset means,
// on which servers do not agree.
type ResetFormat uint8

const (
	// ResetGuess takes a number below 10⁹ for seconds from now, below 10¹² for
	// a Unix time in seconds, and from there on for one in milliseconds.
	ResetGuess ResetFormat = iota
	// ResetDelta is seconds from now.
	ResetDelta
	// ResetEpoch is a Unix time in seconds.
	ResetEpoch
	// ResetEpochMillis is a Unix time in milliseconds.
	ResetEpochMillis
)

var resetFormats = [...]string{"guess", "delta", "epoch", "epoch-millis"}

// String returns the format in lower-case words.
func (f ResetFormat) String() string { return enum.Name(resetFormats[:], f, "reset format") }

// MarshalText returns what String does, for JSON and logs.
func (f ResetFormat) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// ParseQuota returns what a response says about the quota of its caller: what
// remains, and how long until it is reset. It knows
//
//   - the RateLimit field of the IETF draft (draft-ietf-httpapi-ratelimit-headers),
//     by name and by its older forms;
//   - every pair of headers whose names contain RateLimit or Rate-Limit and
//     differ only in Remaining and Reset, such as X-RateLimit-Remaining and
//     X-RateLimit-Reset, with a suffix (X-RateLimit-Reset-Requests) or prefix
//     (Anthropic-RateLimit-Requests-Reset) or none;
//   - X-RateLimit-Reset-After, in seconds;
//   - X-Shopify-Shop-Api-Call-Limit, a bucket that empties in 20 s: its reset is when there
//     is room for one more call.
//
// A reset may be a number (see [ResetFormat]), a duration such as 6m0s, an HTTP
// date, or one of RFC 3339; one that has passed is 0. If there are several
// quotas, the one that counts is the one with nothing left whose reset is last,
// else the one whose reset is first. What can't be parsed is as if it were not
// there, and so are RateLimit and RateLimit-Policy above 8 kB and what follows their first
// 32 members. Quotas that RateLimit-Policy says do not count requests are ignored.
//
// A response that a cache has kept, which has an Age above 0, says nothing: its
// quota was that of an earlier request, perhaps of another client's.
//
// now is when the response came; zero is the present. Times are measured by the
// response's Date unless that is more than a day off.
func ParseQuota(h http.Header, now time.Time, format ResetFormat) (hint Hint, ok bool) {
	if age(h) > 0 {
		return Hint{}, false
	}
	for name := range h {
		if !quotaName(name) {
			continue
		}
		var found Hint
		var is bool
		if name == "Ratelimit" {
			found, _, is = structured(h)
		} else {
			found, is = pair(h, name, now, format)
		}
		if is && (!ok || before(found, hint)) {
			hint, ok = found, true
		}
	}
	if found, _, is := shopifyQuota(h); is && (!ok || before(found, hint)) {
		hint, ok = found, true
	}
	return hint, ok
}

// quotaName reports whether the name of a header, in canonical form, may be
// that of a reset. It must be cheap: it sees every header there is.
func quotaName(name string) bool {
	return (strings.Contains(name, "Ratelimit") || strings.Contains(name, "Rate-Limit")) &&
		(name == "Ratelimit" || strings.Contains(name, "Reset"))
}

// before reports whether quota a counts rather than b.
func before(a, b Hint) bool {
	switch none := a.Remaining == 0; {
	case none != (b.Remaining == 0):
		return none
	case a.Wait != b.Wait:
		return none == (a.Wait > b.Wait)
	default:
		return a.Source < b.Source // the order of headers in a map is random
	}
}

// pair reads a quota from the header of its reset, and that of what remains,
// which may be missing.
func pair(h http.Header, reset string, now time.Time, format ResetFormat) (hint Hint, ok bool) {
	value := first(h, reset)
	i := strings.LastIndex(reset, "Reset")
	rest, after := strings.CutPrefix(reset[i+len("Reset"):], "-After")
	if after {
		hint.Wait, ok = decimal(value, time.Second)
	} else if _, better := decimal(first(h, reset+"-After"), time.Second); !better {
		hint.Wait, ok = resetIn(value, h, now, format)
	}
	if !ok {
		return Hint{}, false
	}
	hint.Source = reset
	hint.Remaining = remaining(first(h, reset[:i]+"Remaining"+rest))
	return hint, true
}

// remaining parses what is left of a quota: -1 if it is not a number, or a
// negative one, by which some mean that there is no limit. Less than one is
// nothing.
func remaining(s string) int64 {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f >= 0) {
		return -1
	}
	return int64(min(f, 1<<53))
}

// resetIn parses the time until a reset.
func resetIn(s string, h http.Header, now time.Time, format ResetFormat) (time.Duration, bool) {
	if s == "" || s[0] < '0' || s[0] > '9' {
		t, ok := httpDate(s)
		return until(t, clock(h, now)), ok
	}
	if d, ok := decimal(s, time.Second); ok {
		switch {
		case format == ResetDelta, format == ResetGuess && d < 1e9*time.Second:
			return d, true
		case d < longest && (format == ResetEpoch || format == ResetGuess):
			return until(time.Unix(0, 0).Add(d), clock(h, now)), true
		}
	}
	// As seconds, a time in milliseconds does not fit.
	if d, ok := decimal(s, time.Millisecond); ok && d < longest && (format == ResetEpochMillis || format == ResetGuess && d >= 1e9*time.Second) {
		return until(time.Unix(0, 0).Add(d), clock(h, now)), true
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return until(t, clock(h, now)), true
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0
}

// A server chooses how long its fields are, up to the megabytes that net/http takes, and each
// response is read: of a structured field that is longer than maxField nothing counts, and of
// a list its first members.
const (
	maxField   = 8 << 10
	maxMembers = 32
)

// field returns the values of a structured field.
func field(h http.Header, name string) []string {
	size := 0
	for _, v := range h[name] {
		if size += len(v) + 1; size > maxField {
			return nil
		}
	}
	return h[name]
}

// members parses a structured field that is a list.
func members(h http.Header, name string) (httpsfv.List, error) {
	list, err := httpsfv.UnmarshalList(field(h, name))
	return list[:min(len(list), maxMembers)], err
}

// structured reads the RateLimit field. In the current draft it is a list of
// items, each with what remains in r and the seconds until then in t; in older
// ones a dictionary with remaining and reset, which may also have the limit. A field that is
// not well-formed is ignored as a whole, as RFC 9651 demands.
func structured(h http.Header) (hint Hint, limit int64, ok bool) {
	said, err := members(h, "Ratelimit")
	if err != nil {
		return older(field(h, "Ratelimit"))
	}
	policies, _ := members(h, "Ratelimit-Policy") // nothing, if it is malformed
	for _, member := range said {
		item, is := member.(httpsfv.Item)
		if !is || !countsRequests(policies, item) {
			continue
		}
		r, hasR := number(item.Params, "r")
		t, hasT := number(item.Params, "t")
		if !hasR || !hasT {
			continue
		}
		if found := (Hint{seconds(t), r, "Ratelimit"}); !ok || before(found, hint) {
			hint, ok = found, true
		}
	}
	return hint, 0, ok
}

func older(fields []string) (hint Hint, limit int64, ok bool) {
	dict, err := httpsfv.UnmarshalDictionary(fields)
	if err != nil {
		return Hint{}, 0, false
	}
	var n [3]int64
	for i, key := range [...]string{"limit", "remaining", "reset"} {
		member, _ := dict.Get(key)
		item, _ := member.(httpsfv.Item)
		v, is := item.Value.(int64)
		if key != "limit" && (!is || v < 0) {
			return Hint{}, 0, false
		}
		n[i] = v
	}
	return Hint{seconds(n[2]), n[1], "Ratelimit"}, max(0, n[0]), true
}

// countsRequests reports whether the policy of a RateLimit item counts
// requests: also when it does not say so, as that is the default.
func countsRequests(policies httpsfv.List, item httpsfv.Item) bool {
	for _, member := range policies {
		policy, ok := member.(httpsfv.Item)
		if _, bytes := item.Value.([]byte); !ok || bytes || policy.Value != item.Value {
			continue // a name is a string; bytes can't be compared
		}
		unit, has := policy.Params.Get("qu")
		return !has || unit == "requests"
	}
	return true
}

// number returns a parameter that is a whole number, not negative.
func number(p *httpsfv.Params, key string) (int64, bool) {
	v, _ := p.Get(key)
	n, ok := v.(int64)
	return n, ok && n >= 0
}

// seconds is a duration that saturates. RFC 9651 allows for up to 10¹⁵ − 1.
func seconds(n int64) time.Duration {
	return time.Duration(min(n, int64(math.MaxInt64/time.Second))) * time.Second
}
