package retry_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/retry"
)

// FuzzBody: whatever a body says, the answer is one of three and names no wait below 0, a
// server that forbids another attempt is obeyed, and what is not JSON changes nothing.
func FuzzBody(f *testing.F) {
	for _, s := range []string{
		`{"error":{"code":"insufficient_quota"}}`, `{"message":"secondary rate limit"}`, `{"errors":[{"type":"RATE_LIMITED"}]}`,
		`{"data":null,"errors":[{"extensions":{"code":"THROTTLED","retryAfter":1e300}}]}`,
		`{"errors":[{"message":"Throttled"}],"extensions":{"cost":{"requestedQueryCost":1e300,"throttleStatus":{"currentlyAvailable":-1e300,"restoreRate":1e-300}}}}`,
		`[]`, `null`, `{"errors":{}}`, `{`, "",
	} {
		for _, status := range []int{200, 400, 403, 429, 503} {
			f.Add(status, "/graphql", "application/json", "", s)
		}
		f.Add(429, "/v1", "application/problem+json; charset=utf-8", "false", s)
	}
	f.Fuzz(func(t *testing.T, status int, path, contentType, should, body string) {
		h := http.Header{"Content-Type": {contentType}, "X-Should-Retry": {should}, "X-Github-Request-Id": {"1"}, "X-Shopid": {"1"}}
		all := []retry.Provider{retry.GitHub, retry.Shopify, retry.GraphQL}
		before := retry.ParseAnswer(status, h, now, retry.ResetGuess)
		a := retry.ParseBody(before, status, h, path, []byte(body), all...)
		forbidden := strings.EqualFold(strings.Trim(should, " \t\r\n"), "false")
		switch {
		case a.Verdict < retry.Final || a.Verdict > retry.Rejected, a.Wait < 0, !a.Asked && a.Hint != retry.Hint{}:
			t.Errorf("%+v", a)
		case a != before && (forbidden || !json.Valid([]byte(body)) || !retry.WantsBody(status, h, path, all...)):
			t.Errorf("%q makes %+v of %+v", body, a, before)
		case a != retry.ParseBody(before, status, h, path, []byte(body), all...):
			t.Error("it does not always say the same")
		}
		// Without a provider only a 429 is read, and only for what never ends.
		if a := retry.ParseBody(before, status, h, path, []byte(body)); a != before && (status != 429 || a != retry.Answer{Verdict: retry.Final}) {
			t.Errorf("%d %q makes %+v of %+v", status, body, a, before)
		}
	})
}

// FuzzScopes: the names of quotas are short and printable, few, and the one that a wait is
// about is one of them.
func FuzzScopes(f *testing.F) {
	f.Add(429, "search", "abc", "true", "user", "Requests", "0", "40/40")
	f.Add(200, "core", "", "", "global", "Input-Tokens", "1", "400/400")
	f.Add(403, "a\x00b", strings.Repeat("x", 100), "no", "shared", "", "-1", "1/99999999999999999999")
	f.Fuzz(func(t *testing.T, status int, resource, bucket, global, scope, suffix, left, calls string) {
		h := http.Header{
			"X-Ratelimit-Resource": {resource}, "X-Ratelimit-Bucket": {bucket}, "X-Ratelimit-Global": {global}, "X-Ratelimit-Scope": {scope},
			"X-Ratelimit-Remaining-" + suffix: {left}, "X-Ratelimit-Reset-" + suffix: {"9"},
			"Anthropic-Ratelimit-" + suffix + "-Remaining": {left}, "Anthropic-Ratelimit-" + suffix + "-Reset": {"7"},
			"X-Shopify-Shop-Api-Call-Limit": {calls},
		}
		names := retry.ParseScopes(h)
		if len(names) > 8 || !slices.IsSorted(names) {
			t.Errorf("%q", names)
		}
		for _, n := range names {
			if len(n) > 80 || strings.ContainsFunc(n, func(r rune) bool { return r <= ' ' || r >= 0x7f }) || !strings.Contains(n, "/") {
				t.Errorf("the name %q", n)
			}
		}
		a := retry.ParseAnswer(status, h, now, retry.ResetGuess)
		if a.Scope != "" && (!a.Asked || !slices.Contains(names, a.Scope)) {
			t.Errorf("%+v is not one of %q", a, names)
		}
		if strings.EqualFold(scope, "global") && strings.HasPrefix(a.Scope, "discord/") {
			t.Errorf("%+v of a limit for all", a)
		}
		h.Set("Age", "9")
		if names := retry.ParseScopes(h); names != nil {
			t.Errorf("a cache says %q", names)
		}
	})
}
