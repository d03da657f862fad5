package retry

import (
	"net/http"
	"slices"
	"strings"
)

// dialects are what families of servers say beyond RFC 9110, one file each. A reader sees
// statuses from 400 on, and says Default where nothing is said in its dialect, and Final
// only where the server forbids another attempt. Waits in dialects are read by
// ParseRetryAfter and ParseQuota. Examples of each are in testdata/dialects.
var dialects = [...]struct {
	name string
	read func(status int, h http.Header) Verdict
}{
	{"aws", aws},
	{"cloudflare", cloudflare},
	{"early data", earlyData},
	{"overload", overload},
	{"stainless", stainless},
	{"stripe", stripe},
}

// scopes are the families that have several quotas for one caller, each of them with a
// name for a quota: see [ParseScopes]. of appends the names of those that a response is
// about. wait returns the name of the one that a wait is about: source is the header of a
// quota that is used up, or "".
var scopes = [...]struct {
	name string
	of   func(names []string, h http.Header) []string
	wait func(status int, h http.Header, source string) string
}{
	{"anthropic", anthropicScopes, anthropicWait},
	{"discord", discordScopes, discordWait},
	{"github", githubScopes, githubWait},
	{"openai", openAIScopes, openAIWait},
	{"shopify", shopifyScopes, shopifyWait},
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
