package retry_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

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

// TestBodyIsWanted: which bodies are looked into.
func TestBodyIsWanted(t *testing.T) {
	for _, c := range []struct {
		status      int
		contentType string
		path        string
		want        bool // without a provider
		all         bool // with GraphQL
	}{
		{429, "application/json", "/v1", true, true},
		{429, "application/problem+json; charset=utf-8", "/v1", true, true},
		{429, "text/plain", "/v1", false, false},
		{429, "application/xml", "/v1", false, false},
		{429, "text/x+json", "/v1", false, false},
		{429, "", "/v1", false, false},
		{200, "application/json", "/v1", false, false},
		{200, "application/json", "/graphql", false, true},
		{200, "text/html", "/graphql", false, false},
		{302, "application/json", "/graphql", false, false},
		{400, "application/json", "/api/graphql.json", false, true},
		{400, "application/graphql-response+json", "/v1", false, true},
	} {
		h := header("Content-Type", c.contentType)
		if got := retry.WantsBody(c.status, h, c.path); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
		if got := retry.WantsBody(c.status, h, c.path, retry.GraphQL); got != c.all {
			t.Errorf("%+v: %v with GraphQL", c, got)
		}
	}
	code := `{"error":{"code":"insufficient_quota"}}`
	rejected := retry.Answer{Verdict: retry.Rejected}
	for _, more := range []int{0, 1} {
		body := code + strings.Repeat(" ", retry.MaxBody-len(code)+more)
		got := retry.ParseBody(rejected, 429, header("Content-Type", "application/json"), "/", []byte(body))
		if read := got.Verdict == retry.Final; read != (more == 0) {
			t.Errorf("%d bytes: %+v", len(body), got)
		}
	}
}

// TestBodyOfGraphQL: what the errors of a GraphQL response mean.
func TestBodyOfGraphQL(t *testing.T) {
	cost := func(requested, available, rate string) string {
		return `"extensions":{"cost":{"requestedQueryCost":` + requested + `,"throttleStatus":{"currentlyAvailable":` + available + `,"restoreRate":` + rate + `}}}`
	}
	failed, rejected := retry.Answer{Verdict: retry.Failed}, retry.Answer{Verdict: retry.Rejected}
	after := func(d time.Duration) retry.Answer {
		return retry.Answer{Verdict: retry.Rejected, Asked: true, Hint: retry.Hint{Wait: d, Remaining: -1, Source: "body"}}
	}
	final := retry.Answer{Verdict: retry.Final}
	for body, want := range map[string]retry.Answer{
		`{"errors":[{"extensions":{"code":"THROTTLED"}}]}`:                                             rejected,
		`{"errors":[{"extensions":{"code":"RATE_LIMITED"}}]}`:                                          rejected,
		`{"errors":[{"extensions":{"code":"RATELIMITED"}}]}`:                                           rejected,
		`{"errors":[{"extensions":{"code":"RATE_LIMIT_EXCEEDED"}}]}`:                                   rejected,
		`{"errors":[{"extensions":{"code":"TOO_MANY_REQUESTS"}}]}`:                                     rejected,
		`{"errors":[{"extensions":{"code":"COMPLEXITY_BUDGET_EXHAUSTED"}}]}`:                           rejected,
		`{"errors":[{"message":"odd"},{"type":"RATE_LIMITED"}]}`:                                       rejected,
		`{"data":null,"errors":[{"type":"RATE_LIMITED"}]}`:                                             failed,
		`{"data":{},"errors":[{"type":"RATE_LIMITED"}]}`:                                               final,
		`{"errors":[{"extensions":{"code":"THROTTLED","retryAfter":2}}]}`:                              after(2 * time.Second),
		`{"errors":[{"extensions":{"code":"THROTTLED","retry_in_seconds":0.001000001}}]}`:              after(2 * time.Millisecond),
		`{"errors":[{"extensions":{"code":"THROTTLED","retryAfter":-2}}]}`:                             rejected,
		`{"errors":[{"extensions":{"code":"THROTTLED","retryAfter":1e300}}]}`:                          after(longest),
		`{"errors":[{"extensions":{"code":"THROTTLED"}}],` + cost("10", "4", "1") + `}`:                after(6 * time.Second),
		`{"errors":[{"extensions":{"code":"THROTTLED"}}],` + cost("10", "4", "0") + `}`:                rejected,
		`{"errors":[{"extensions":{"code":"THROTTLED","retryAfter":7}}],` + cost("10", "4", "2") + `}`: after(7 * time.Second),
		`{"errors":[{"message":"Throttled"}],` + cost("10", "4", "1") + `}`:                            after(6 * time.Second),
		`{"errors":[{"message":"Throttled"}],` + cost("10", "4", "0") + `}`:                            final,
		`{"errors":[{"message":"Throttled"}]}`:                                                         final,
		`{"errors":[{"message":"odd"}],` + cost("10", "4", "1") + `}`:                                  final,
		`{"errors":{}}`: final,
	} {
		h := header("Content-Type", "application/json")
		if got := retry.ParseBody(final, 200, h, "/graphql", []byte(body), retry.GraphQL); got != want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", body, got, want)
		}
		if got := retry.ParseBody(final, 400, h, "/graphql", []byte(body), retry.GraphQL); got != want {
			t.Errorf("400 %s:\ngot  %+v\nwant %+v", body, got, want)
		}
		// The headers of a rejection are more exact.
		told := after(time.Minute)
		if got := retry.ParseBody(told, 429, h, "/graphql", []byte(body), retry.GraphQL); got != told {
			t.Errorf("429 %s: %+v", body, got)
		}
		if got := retry.ParseBody(rejected, 429, h, "/graphql", []byte(body), retry.GraphQL); got != rejected {
			t.Errorf("429 without a wait %s: %+v", body, got)
		}
	}
}

// TestSecondaryLimit: the message counts where no header names the wait for it.
func TestSecondaryLimit(t *testing.T) {
	minute := retry.Answer{Verdict: retry.Rejected, Asked: true, Hint: retry.Hint{Wait: time.Minute, Remaining: -1, Source: "body"}}
	h := header("Content-Type", "application/json", "X-GitHub-Request-Id", "1")
	for _, c := range []struct {
		status    int
		asked     bool
		remaining int64
		message   string
		read      bool
	}{
		{403, false, 0, "You have exceeded a secondary rate limit.", true},
		{429, false, 0, "You have triggered an abuse detection mechanism.", true},
		{429, true, 1, "secondary rate limit", true}, // the reset of a quota that is not used up
		{429, true, 0, "secondary rate limit", false},
		{429, true, -1, "secondary rate limit", false}, // Retry-After
		{200, false, 0, "secondary rate limit", false},
		{403, false, 0, "Must have admin rights", false},
	} {
		a := retry.Answer{Verdict: retry.Rejected, Asked: c.asked, Hint: retry.Hint{Remaining: c.remaining}}
		if !c.asked {
			a = retry.Answer{Verdict: retry.Final}
		}
		want := a
		if c.read {
			want = minute
		}
		if got := retry.ParseBody(a, c.status, h, "/", []byte(`{"message":"`+c.message+`"}`), retry.GitHub); got != want {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}
