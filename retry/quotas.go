package retry

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// MaxQuotas bounds how many quotas of one response count.
const MaxQuotas = 4

// maxLimit bounds what is understood as a limit. RFC 9651 allows for no larger number.
const maxLimit = 1e15

// Quota is one quota of requests, as a response says it.
type Quota struct {
	// Name tells the quotas of a response apart: the name of a policy of the IETF draft, with
	// its partition key, or the headers' common part. It is not for display.
	Name string
	// Scope names what the quota is for, of those in [ParseScopes]; "" is all requests
	// of the caller.
	Scope string
	// Limit is how many requests fit into a window, at least 1; 0 if that is not said.
	Limit int64
	// Remaining is how many are left; -1 if that is not said.
	Remaining int64
	// Reset is the time until the quota is reset; -1 if that is not said.
	Reset time.Duration
	// Window is the length of the window; 0 if that is not said.
	Window time.Duration
}

// ParseQuotas returns the quotas of requests that a response says, at most [MaxQuotas], with
// their limits. It knows the headers of [ParseQuota] and, beside them, those that differ from
// them by Limit, Kong's -Second, -Minute, -Hour and -Day, the q, w and pk of RateLimit-Policy,
// and the ;w= of the older drafts. Quotas of tokens, bytes and the like are left out, and so is
// what says no limit and nothing that remains. now and format are those of ParseQuota; a
// response from a cache says nothing. Header names must be in canonical form.
func ParseQuotas(h http.Header, now time.Time, format ResetFormat) []Quota {
	if age(h) > 0 {
		return nil
	}
	var all []Quota
	for name := range h {
		if !strings.Contains(name, "Ratelimit") && !strings.Contains(name, "Rate-Limit") || strings.Contains(name, "Token") {
			continue
		}
		if i := strings.LastIndex(name, "Limit"); i > strings.Index(name, "imit") {
			all = addQuota(all, pairQuota(h, name[:i], name[i+len("Limit"):], now, format))
		} else if i := strings.LastIndex(name, "Remaining"); i >= 0 {
			all = addQuota(all, pairQuota(h, name[:i], name[i+len("Remaining"):], now, format))
		}
	}
	all = structuredQuotas(all, h)
	if hint, size, ok := shopifyQuota(h); ok {
		all = addQuota(all, Quota{Name: shopifyCalls, Scope: shopifyScope, Limit: size, Remaining: hint.Remaining, Reset: -1, Window: shopifyEmpties})
	}
	return all
}

// addQuota adds q, unless it says nothing or its name is there. Of too many, those count whose
// names are first, so that the order of headers in a map does not matter.
func addQuota(all []Quota, q Quota) []Quota {
	if q.Limit == 0 && q.Remaining < 0 {
		return all
	}
	i, there := slices.BinarySearchFunc(all, q.Name, func(q Quota, name string) int { return strings.Compare(q.Name, name) })
	if there {
		return all
	}
	all = slices.Insert(all, i, q)
	return all[:min(len(all), MaxQuotas)]
}

// pairQuota reads the headers that differ in Limit, Remaining and Reset between a prefix and a
// suffix.
func pairQuota(h http.Header, prefix, suffix string, now time.Time, format ResetFormat) Quota {
	q := Quota{Name: prefix + suffix, Remaining: -1, Reset: -1}
	q.Limit, q.Window = limitOf(first(h, prefix+"Limit"+suffix))
	if v := first(h, prefix+"Remaining"+suffix); v != "" {
		q.Remaining = remaining(v)
	}
	if q.Window == 0 {
		q.Window = windows[suffix]
	}
	reset := prefix + "Reset" + suffix
	if hint, ok := pair(h, reset, now, format); ok {
		q.Reset = hint.Wait
	} else if hint, ok := pair(h, reset+"-After", now, format); ok {
		q.Reset = hint.Wait
	}
	q.Scope = scopeOfWait(http.StatusTooManyRequests, h, reset)
	return q
}

// limitOf parses a limit, and the window where an older draft adds it: 100, 100;w=60.
func limitOf(s string) (limit int64, window time.Duration) {
	value, policies, _ := strings.Cut(s, ",")
	n := remaining(strings.TrimSpace(value))
	if n < 1 || n >= maxLimit {
		return 0, 0
	}
	for policy := range strings.SplitSeq(policies, ",") {
		quota, params, _ := strings.Cut(strings.TrimSpace(policy), ";")
		if w, ok := strings.CutPrefix(strings.TrimSpace(params), "w="); ok && remaining(quota) == n && digits(w) {
			window, _ = decimal(w, time.Second)
		}
	}
	return n, window
}

// windows are those that Kong names at the end of its headers.
var windows = map[string]time.Duration{"-Second": time.Second, "-Minute": time.Minute, "-Hour": time.Hour, "-Day": 24 * time.Hour}

// structuredQuotas reads RateLimit-Policy and RateLimit.
func structuredQuotas(all []Quota, h http.Header) []Quota {
	policies, _ := members(h, "Ratelimit-Policy") // nothing, if it is malformed
	said, _ := members(h, "Ratelimit")
	left, limit, old := older(field(h, "Ratelimit"))
	for _, member := range policies {
		item, ok := member.(httpsfv.Item)
		if !ok {
			continue
		}
		q := policyQuota(item, said)
		if old && q.Limit > 0 && item.Value == limit { // a policy of an older draft has its limit in place of a name
			q.Remaining, q.Reset = left.Remaining, left.Wait
		}
		all = addQuota(all, q)
	}
	if len(policies) > 0 || h["Ratelimit"] == nil {
		return all
	}
	if hint, limit, ok := structured(h); ok {
		all = addQuota(all, Quota{Name: hint.Source, Limit: limit, Remaining: hint.Remaining, Reset: hint.Wait})
	}
	return all
}

// policyQuota reads a policy, and what the RateLimit field said of it.
func policyQuota(policy httpsfv.Item, said httpsfv.List) Quota {
	q := Quota{Remaining: -1, Reset: -1}
	name, named := policy.Value.(string)
	limit, has := number(policy.Params, "q")
	if !named { // of an older draft: 100;w=60
		limit, has = policy.Value.(int64)
	}
	if unit, is := policy.Params.Get("qu"); is && unit != "requests" || !has || limit < 1 || len(name) > 64 {
		return q
	}
	if w, ok := number(policy.Params, "w"); ok {
		q.Window = seconds(w)
	}
	q.Limit, q.Name = limit, "policy "+name
	partition, _ := policy.Params.Get("pk")
	for _, member := range said {
		item, _ := member.(httpsfv.Item)
		if of, is := item.Value.(string); !is || of != name {
			continue
		}
		if r, ok := number(item.Params, "r"); ok {
			q.Remaining = r
		}
		if t, ok := number(item.Params, "t"); ok {
			q.Reset = seconds(t)
		}
		if pk, ok := item.Params.Get("pk"); ok {
			partition = pk
		}
	}
	if pk, ok := partition.([]byte); ok && len(pk) <= 64 {
		q.Name += " " + string(pk)
	}
	return q
}
