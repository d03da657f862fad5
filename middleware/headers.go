package middleware

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/holdfast-go/holdfast/limiter"
)

// Headers says which headers responses carry.
type Headers uint8

// The headers.
const (
	// RateLimit is RateLimit and RateLimit-Policy.
	RateLimit Headers = 1 << iota
	// XRateLimit is X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset.
	XRateLimit
	// RetryAfter is Retry-After, on rejections.
	RetryAfter
	// RateLimitDraft6 is RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset, the names
	// of RateLimit until the draft 06 of its specification, which some clients still read.
	RateLimitDraft6

	// DefaultHeaders are sent where WithHeaders says nothing else.
	DefaultHeaders = RateLimit | XRateLimit | RetryAfter
)

// triples are the headers of one limit, in three fields.
var triples = [...]struct {
	which                   Headers
	limit, remaining, reset string
}{
	{XRateLimit, "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
	{RateLimitDraft6, "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"},
}

// policies keeps what of the headers depends on the limit alone.
type policies struct {
	of    sync.Map // policyKey → *policy
	count atomic.Int64
	last  atomic.Pointer[policy]
}

// maxPolicies bounds how many limits are remembered: tiers are few.
const maxPolicies = 1024

type policyKey struct {
	name  string
	limit limiter.Limit
}

// policy is a limit as headers say it.
type policy struct {
	key    policyKey
	line   string // of RateLimit-Policy
	prefix string // of RateLimit: the name
	limit  string // of the triples
	unit   time.Duration
	bucket bool
	// before and after are what surrounds the seconds in the body of a rejection.
	before, after string
}

// get returns the policy of a limit under a name.
func (p *policies) get(name string, limit limiter.Limit) *policy {
	key := policyKey{name, limit}
	if last := p.last.Load(); last != nil && last.key == key {
		return last
	}
	if v, ok := p.of.Load(key); ok {
		pol := v.(*policy)
		p.last.Store(pol)
		return pol
	}
	pol := newPolicy(key)
	if p.count.Add(1) <= maxPolicies {
		p.of.Store(key, pol)
	}
	return pol
}

// announce sets the headers of what is left under the limit name, as which says; parts
// are those of a Multi.
func (p *policies) announce(header http.Header, which Headers, name string, res *limiter.Result, parts []limiter.PartResult) {
	if which&^RetryAfter == 0 {
		return
	}
	// The triples are about one limit; of a Multi, about the part that res is of.
	pol, about := p.get(name, res.Limit), res
	// One piece of memory for all values, and one for the slices of them.
	buf := make([]byte, 0, 128)
	line := pol.line
	var policyEnd, remaining, reset, resetEnd int
	if parts != nil {
		tight := tightest(res, parts)
		about = &tight.Result
		for i := range parts {
			if i > 0 {
				buf = append(buf, ", "...)
			}
			buf = append(buf, p.get(parts[i].Name, parts[i].Limit).line...)
		}
		policyEnd = len(buf)
		for i := range parts {
			if i > 0 {
				buf = append(buf, ", "...)
			}
			of := p.get(parts[i].Name, parts[i].Limit)
			end, r, t := of.append(buf, &parts[i].Result)
			if buf = end; &parts[i] == tight {
				pol, remaining, reset, resetEnd = of, r, t, len(end)
			}
		}
	} else {
		buf, remaining, reset = pol.append(buf, res)
		resetEnd = len(buf)
	}
	all := string(buf)
	if parts != nil {
		line = all[:policyEnd]
	}
	values := [...]string{line, all[policyEnd:], pol.limit, all[remaining : reset-len(resetParam)], all[reset:resetEnd]}
	lines := values[:]
	nested := len(header) > 0 // perhaps: a middleware around this one may have said something
	if which&RateLimit != 0 {
		policy, left := lines[0:1:1], lines[1:2:2]
		if nested { // both are lists
			policy, left = after(header["Ratelimit-Policy"], policy), after(header["Ratelimit"], left)
		}
		header["Ratelimit-Policy"], header["Ratelimit"] = policy, left
	}
	for _, of := range &triples {
		if which&of.which != 0 && (!nested || !res.Allowed || tighter(header[of.remaining], about.Remaining)) {
			header[of.limit], header[of.remaining], header[of.reset] = lines[2:3:3], lines[3:4:4], lines[4:5:5]
		}
	}
}

// maxInteger is the largest integer of structured fields (RFC 9651 section 3.3.1).
const maxInteger = 999_999_999_999_999

func newPolicy(key policyKey) *policy {
	quota := min(int64(key.limit.Burst()), maxInteger)
	p := &policy{key: key, limit: strconv.FormatInt(quota, 10)}
	rate := key.limit.Rate()
	window := rate.Per
	switch key.limit.Algorithm() {
	case "fixed window", "sliding window log", "sliding window counter":
	default:
		// A bucket lets its burst through, and again in the time in which it fills.
		p.bucket = true
		if rate.N > 0 {
			p.unit = time.Duration(float64(rate.Per) / float64(rate.N))
			window = time.Duration(float64(rate.Per) / float64(rate.N) * float64(key.limit.Burst()))
		}
	}
	item := httpsfv.NewItem(key.name)
	p.prefix, _ = httpsfv.Marshal(item) // names are checked, or those of parts
	item.Params.Add("q", quota)
	if window >= time.Second { // a second would be too long by any factor; w is optional
		item.Params.Add("w", wholeSeconds(window))
	}
	p.line, _ = httpsfv.Marshal(httpsfv.List{item})
	p.before, p.after = exceeded(key.name)
	return p
}

// wait returns how long it is until there is more: of a bucket that is empty the next unit,
// else all.
func (p *policy) wait(res *limiter.Result) time.Duration {
	switch {
	case !res.Allowed:
		return res.RetryAfter
	case res.Remaining == 0 && p.bucket:
		return min(p.unit, res.ResetAfter)
	}
	return res.ResetAfter
}

// append adds an item of RateLimit, and returns where its numbers begin.
func (p *policy) append(b []byte, res *limiter.Result) (out []byte, remaining, reset int) {
	b = append(b, p.prefix...)
	b = append(b, ";r="...)
	remaining = len(b)
	b = strconv.AppendInt(b, min(int64(res.Remaining), maxInteger), 10)
	b = append(b, resetParam...)
	reset = len(b)
	return strconv.AppendInt(b, wholeSeconds(p.wait(res)), 10), remaining, reset
}

// rejection returns the body for a request that has to wait for d.
func (p *policy) rejection(d time.Duration) []byte {
	body := make([]byte, 0, len(p.before)+len(p.after)+20)
	body = append(body, p.before...)
	body = strconv.AppendInt(body, atLeastOne(d), 10)
	return append(body, p.after...)
}

// after returns the lines that were there, and this one.
func after(lines, line []string) []string {
	if len(lines) == 0 {
		return line
	}
	return append(lines, line...)
}

// tightest returns the part of a Multi that makes a caller wait longest, or that has least left.
func tightest(res *limiter.Result, parts []limiter.PartResult) *limiter.PartResult {
	tight := &parts[0]
	for i := range parts[1:] {
		part := &parts[i+1]
		if res.Allowed && part.Remaining < tight.Remaining || !res.Allowed && part.RetryAfter > tight.RetryAfter {
			tight = part
		}
	}
	return tight
}

// tighter reports whether less remains than a middleware around this one has said: the
// triples are about one limit.
func tighter(said []string, remaining int) bool {
	if len(said) != 1 {
		return true
	}
	n, err := strconv.Atoi(said[0])
	return err != nil || remaining < n
}

// resetParam is the parameter of RateLimit that says when there is more.
const resetParam = ";t="

// wholeSeconds rounds up.
func wholeSeconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return max(0, s)
}

// atLeastOne is wholeSeconds for Retry-After.
func atLeastOne(d time.Duration) int64 { return max(1, wholeSeconds(d)) }
