package retry

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxScopes bounds how many quotas of one response count: those that are known have at
// most four.
const maxScopes = 8

// ParseScopes returns the names of the quotas that a response is about, for servers that
// have several for one caller, sorted; nil where there is one for all requests. They
// begin with the family of the server:
//
//   - github/ and the value of X-RateLimit-Resource, such as github/search;
//   - discord/ and the value of X-RateLimit-Bucket;
//   - openai/ and the end of X-RateLimit-Remaining-Requests, -Tokens and the like;
//   - anthropic/ and the middle of Anthropic-RateLimit-Input-Tokens-Remaining and the like;
//   - shopify/rest, where there is X-Shopify-Shop-Api-Call-Limit.
//
// A response from a cache says nothing. See Scope in [Answer].
func ParseScopes(h http.Header) []string {
	if !namesScopes(h) || age(h) > 0 {
		return nil
	}
	var names []string
	add := func(name string) {
		if name != "" {
			names = append(names, name)
		}
	}
	for name := range h {
		add(headerScope(name, "Remaining"))
	}
	add(bucketScope(h))
	add(resourceScope(h))
	if _, _, ok := shopifyQuota(h); ok {
		add(shopifyScope)
	}
	slices.Sort(names)
	return names[:min(len(names), maxScopes)]
}

// namesScopes reports whether there is any header that may name a quota. It must be cheap:
// it sees every header there is.
func namesScopes(h http.Header) bool {
	for name := range h {
		if strings.Contains(name, "Ratelimit") || name == shopifyCalls {
			return true
		}
	}
	return false
}

// scopeOfWait returns the name of the quota that a wait is about; "" is the caller's whole.
// source is the header of a quota that is used up, or "".
func scopeOfWait(status int, h http.Header, source string) string {
	rejected := source != "" || status == http.StatusTooManyRequests
	if name := headerScope(source, "Reset"); name != "" && h[strings.ReplaceAll(source, "Reset", "Remaining")] != nil {
		return name
	}
	if name := bucketScope(h); name != "" && rejected && !ofAllBuckets(h) {
		return name
	}
	// A wait that is not the end of a quota, as after a secondary limit of GitHub, is for all.
	if name := resourceScope(h); name != "" && source != "" {
		return name
	}
	if q, _, ok := shopifyQuota(h); ok && (q.Remaining == 0 || status == http.StatusTooManyRequests) {
		return shopifyScope
	}
	return ""
}

// scopeName makes a name of what a server says, or "" of what can't be one.
func scopeName(family, value string) string {
	if value == "" || len(value) > 64 || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return ""
	}
	return family + "/" + strings.ToLower(value)
}

// headerScope returns the quota of a header that has part, Remaining or Reset, in its name. Two
// families name a quota there: Anthropic counts requests, input tokens and output tokens
// separately; OpenAI, and those who took over its headers (Azure, Groq, Mistral and others),
// requests and tokens: what uses no tokens need not wait for them.
func headerScope(header, part string) string {
	if what, ok := strings.CutPrefix(header, "Anthropic-Ratelimit-"); ok {
		if what, ok = strings.CutSuffix(what, "-"+part); ok {
			return scopeName("anthropic", what)
		}
	}
	// Others end in -Minute, as those of Kong: a quota of all requests.
	what, ok := strings.CutPrefix(header, "X-Ratelimit-"+part+"-")
	if !ok || !strings.Contains(what, "Requests") && !strings.Contains(what, "Tokens") {
		return ""
	}
	return scopeName("openai", what)
}

// bucketScope returns the quota of Discord, which has one for each bucket of routes.
func bucketScope(h http.Header) string { return scopeName("discord", first(h, "X-Ratelimit-Bucket")) }

// ofAllBuckets reports whether Discord says that a wait is for all of them.
func ofAllBuckets(h http.Header) bool {
	return strings.EqualFold(first(h, "X-Ratelimit-Global"), "true") || strings.EqualFold(first(h, "X-Ratelimit-Scope"), "global")
}

// resourceScope returns the quota of GitHub, which has one for each of its resources: core,
// search, code_search, graphql and more.
func resourceScope(h http.Header) string {
	return scopeName("github", first(h, "X-Ratelimit-Resource"))
}

const (
	// shopifyCalls is the level of a leaky bucket and its size, such as 39/40, for the REST
	// API of one shop.
	shopifyCalls = "X-Shopify-Shop-Api-Call-Limit"
	// shopifyEmpties is how long the bucket takes to empty, whatever its size is.
	shopifyEmpties = 20 * time.Second

	shopifyScope = "shopify/rest"
)

// shopifyQuota reads the bucket and its size. The wait is the time in which it leaks one call.
func shopifyQuota(h http.Header) (hint Hint, size int64, ok bool) {
	used, of, ok := strings.Cut(first(h, shopifyCalls), "/")
	if !ok || !digits(used) || !digits(of) {
		return Hint{}, 0, false
	}
	size, err := strconv.ParseInt(of, 10, 32)
	u, err2 := strconv.ParseInt(used, 10, 32)
	if err != nil || err2 != nil || size == 0 {
		return Hint{}, 0, false
	}
	return Hint{shopifyEmpties / time.Duration(size), max(0, size-u), shopifyCalls}, size, true
}
