package retry

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// scopes are the families that have several quotas for one caller, each of them with a
// name for a quota: see [ParseScopes]. of appends the names of those that a response is
// about. wait returns the name of the one that a wait is about: source is the header of a
// quota that is used up, or "".
var scopes = [...]struct {
	of   func(names []string, h http.Header) []string
	wait func(status int, h http.Header, source string) string
}{
	{anthropicScopes, anthropicWait},
	{discordScopes, discordWait},
	{githubScopes, githubWait},
	{openAIScopes, openAIWait},
	{shopifyScopes, shopifyWait},
}

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
	for _, s := range scopes {
		names = s.of(names, h)
	}
	slices.Sort(names)
	return names[:min(len(names), maxScopes)]
}

// namesScopes reports whether there is any header that may name a quota. It must be cheap:
// it sees every header there is.
func namesScopes(h http.Header) bool {
	for name := range h {
		if len(name) > len("Ratelimit") && (strings.Contains(name, "Ratelimit") || name == shopifyCalls) {
			return true
		}
	}
	return false
}

// scopeOfWait returns the name of the quota that a wait is about; "" is the caller's whole.
func scopeOfWait(status int, h http.Header, source string) string {
	for _, s := range scopes {
		if name := s.wait(status, h, source); name != "" {
			return name
		}
	}
	return ""
}

// scopeName makes a name of what a server says, or "" of what can't be one.
func scopeName(family, value string) string {
	if value == "" || len(value) > 64 {
		return ""
	}
	for _, c := range []byte(value) {
		if c <= ' ' || c >= 0x7f {
			return ""
		}
	}
	return family + "/" + strings.ToLower(value)
}

// addScope appends a name that is not "".
func addScope(names []string, name string) []string {
	if name == "" {
		return names
	}
	return append(names, name)
}

// Anthropic counts requests, input tokens and output tokens separately.
func anthropicScopes(names []string, h http.Header) []string {
	for name := range h {
		names = addScope(names, anthropicScope(name, "-Remaining"))
	}
	return names
}

func anthropicWait(_ int, h http.Header, source string) string {
	what, ok := strings.CutSuffix(source, "-Reset")
	if !ok || h[what+"-Remaining"] == nil {
		return ""
	}
	return anthropicScope(source, "-Reset")
}

func anthropicScope(name, suffix string) string {
	if what, ok := strings.CutPrefix(name, "Anthropic-Ratelimit-"); ok {
		if what, ok = strings.CutSuffix(what, suffix); ok {
			return scopeName("anthropic", what)
		}
	}
	return ""
}

// Discord has a quota for each bucket of routes, and one for all, of which it says so.
func discordScopes(names []string, h http.Header) []string {
	return addScope(names, scopeName("discord", first(h, "X-Ratelimit-Bucket")))
}

func discordWait(status int, h http.Header, source string) string {
	global := strings.EqualFold(first(h, "X-Ratelimit-Global"), "true") ||
		strings.EqualFold(first(h, "X-Ratelimit-Scope"), "global")
	if global || source == "" && status != http.StatusTooManyRequests {
		return ""
	}
	return scopeName("discord", first(h, "X-Ratelimit-Bucket"))
}

// GitHub has a quota for each of its resources: core, search, code_search, graphql and more.
// A wait that is not the end of such a quota, as after a secondary limit, is for all of them.
func githubScopes(names []string, h http.Header) []string {
	return addScope(names, scopeName("github", first(h, "X-Ratelimit-Resource")))
}

func githubWait(_ int, h http.Header, source string) string {
	if source == "" {
		return ""
	}
	return scopeName("github", first(h, "X-Ratelimit-Resource"))
}

// OpenAI, and those who took over its headers (Azure, Groq, Mistral and others), count
// requests and tokens separately: what uses no tokens need not wait for them.
func openAIScopes(names []string, h http.Header) []string {
	for name := range h {
		if suffix, ok := strings.CutPrefix(name, "X-Ratelimit-Remaining-"); ok {
			names = addScope(names, openAIScope(suffix))
		}
	}
	return names
}

func openAIWait(_ int, h http.Header, source string) string {
	suffix, ok := strings.CutPrefix(source, "X-Ratelimit-Reset-")
	if !ok || h["X-Ratelimit-Remaining-"+suffix] == nil {
		return ""
	}
	return openAIScope(suffix)
}

func openAIScope(suffix string) string {
	if !strings.Contains(suffix, "Requests") && !strings.Contains(suffix, "Tokens") {
		return "" // such as -Minute of Kong: a quota of all requests
	}
	return scopeName("openai", suffix)
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

func shopifyScopes(names []string, h http.Header) []string {
	if _, _, ok := shopifyQuota(h); ok {
		return append(names, shopifyScope)
	}
	return names
}

func shopifyWait(status int, h http.Header, _ string) string {
	if q, _, ok := shopifyQuota(h); ok && (q.Remaining == 0 || status == http.StatusTooManyRequests) {
		return shopifyScope
	}
	return ""
}
