package retry_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/retry"
)

// TestParseQuotas: what headers say of limits, windows and scopes.
func TestParseQuotas(t *testing.T) {
	const no = -1 * time.Nanosecond
	long := strings.Repeat("n", 64)
	for name, c := range map[string]struct {
		header http.Header
		want   []retry.Quota
	}{
		"nothing": {http.Header{"Content-Type": {"text/plain"}}, nil},
		"three headers": {
			http.Header{"X-Ratelimit-Limit": {"60"}, "X-Ratelimit-Remaining": {"59"}, "X-Ratelimit-Reset": {"30"}},
			[]retry.Quota{{"X-Ratelimit-", "", 60, 59, 30 * time.Second, 0}},
		},
		"another spelling": {
			http.Header{"X-Rate-Limit-Limit": {"60"}, "X-Rate-Limit-Remaining": {"59"}, "X-Rate-Limit-Reset": {"30"}},
			[]retry.Quota{{"X-Rate-Limit-", "", 60, 59, 30 * time.Second, 0}},
		},
		"limit alone":         {http.Header{"X-Ratelimit-Limit": {"60"}}, []retry.Quota{{"X-Ratelimit-", "", 60, -1, no, 0}}},
		"remaining alone":     {http.Header{"X-Ratelimit-Remaining": {"5"}}, []retry.Quota{{"X-Ratelimit-", "", 0, 5, no, 0}}},
		"nothing remains":     {http.Header{"X-Ratelimit-Remaining-Day": {"0"}}, []retry.Quota{{"X-Ratelimit--Day", "", 0, 0, no, 24 * time.Hour}}},
		"one":                 {http.Header{"X-Ratelimit-Limit": {"1"}}, []retry.Quota{{"X-Ratelimit-", "", 1, -1, no, 0}}},
		"another's window":    {http.Header{"Ratelimit-Limit": {"100, 10;w=1, 100;x=5"}}, []retry.Quota{{"Ratelimit-", "", 100, -1, no, 0}}},
		"no window":           {http.Header{"Ratelimit-Limit": {"100, 100;w=1m"}}, []retry.Quota{{"Ratelimit-", "", 100, -1, no, 0}}},
		"a policy of 0":       {http.Header{"Ratelimit-Policy": {`"x";q=0;w=60`}, "Ratelimit": {`"x";r=5;t=9`}}, nil},
		"a policy below 0":    {http.Header{"Ratelimit-Policy": {`"x";q=-1;w=60`}, "Ratelimit": {`"x";r=5;t=9`}}, nil},
		"without a policy":    {http.Header{"Ratelimit": {`"a";r=5;t=1`}}, []retry.Quota{{"Ratelimit", "", 0, 5, time.Second, 0}}},
		"beside a broken one": {http.Header{"Ratelimit": {`"a";r=5;t=1`}, "Ratelimit-Policy": {`"a;q=`}}, []retry.Quota{{"Ratelimit", "", 0, 5, time.Second, 0}}},
		"a dictionary of 1":   {http.Header{"Ratelimit": {"limit=1, remaining=0, reset=5"}}, []retry.Quota{{"Ratelimit", "", 1, 0, 5 * time.Second, 0}}},
		"a negative one":      {http.Header{"Ratelimit": {"limit=-5, remaining=4, reset=5"}}, []retry.Quota{{"Ratelimit", "", 0, 4, 5 * time.Second, 0}}},
		"a policy of 1":       {http.Header{"Ratelimit-Policy": {`"a";q=1`}}, []retry.Quota{{"policy a", "", 1, -1, no, 0}}},
		"a policy of a unit":  {http.Header{"Ratelimit-Policy": {`"a";q=1;qu="requests"`}}, []retry.Quota{{"policy a", "", 1, -1, no, 0}}},
		"without a limit":     {http.Header{"Ratelimit-Policy": {`"a";w=60`}}, nil},
		"a long name":         {http.Header{"Ratelimit-Policy": {`"` + long + `";q=9;w=1`}}, []retry.Quota{{"policy " + long, "", 9, -1, no, time.Second}}},
		"a longer name":       {http.Header{"Ratelimit-Policy": {`"x` + long + `";q=9;w=1`}}, nil},
		"a partition": {
			http.Header{"Ratelimit-Policy": {`"a";q=9;w=1`}, "Ratelimit": {`("a" "b"), "b";r=3;t=1, "a";r=5;t=1;pk=:` + base64.StdEncoding.EncodeToString([]byte(long)) + `:`}},
			[]retry.Quota{{"policy a " + long, "", 9, 5, time.Second, time.Second}},
		},
		"a long partition": {
			http.Header{"Ratelimit-Policy": {`"a";q=9;w=1;pk=:` + base64.StdEncoding.EncodeToString([]byte("x"+long)) + `:`}},
			[]retry.Quota{{"policy a", "", 9, -1, no, time.Second}},
		},
		"reset alone":     {http.Header{"X-Ratelimit-Reset": {"60"}}, nil},
		"from a cache":    {http.Header{"X-Ratelimit-Limit": {"60"}, "Age": {"5"}}, nil},
		"no number":       {http.Header{"X-Ratelimit-Limit": {"many"}}, nil},
		"absurd":          {http.Header{"X-Ratelimit-Limit": {"1000000000000000"}}, nil},
		"no limit":        {http.Header{"X-Ratelimit-Limit": {"0"}}, nil},
		"tokens":          {http.Header{"X-Ratelimit-Limit-Tokens": {"60"}, "X-Ratelimit-Remaining-Tokens": {"5"}, "X-Ratelimit-Reset-Tokens": {"1s"}}, nil},
		"an older draft":  {http.Header{"Ratelimit-Limit": {"100, 10;w=1, 100;w=60"}, "Ratelimit-Remaining": {"7"}, "Ratelimit-Reset": {"5"}}, []retry.Quota{{"Ratelimit-", "", 100, 7, 5 * time.Second, time.Minute}}},
		"a dictionary":    {http.Header{"Ratelimit": {"limit=10, remaining=4, reset=5"}}, []retry.Quota{{"Ratelimit", "", 10, 4, 5 * time.Second, 0}}},
		"a policy":        {http.Header{"Ratelimit-Policy": {`"default";q=100;w=60`}}, []retry.Quota{{"policy default", "", 100, -1, no, time.Minute}}},
		"an older policy": {http.Header{"Ratelimit-Policy": {"100;w=60"}}, []retry.Quota{{"policy ", "", 100, -1, no, time.Minute}}},
		"an older policy, and what is left of it": {
			http.Header{"Ratelimit-Policy": {"100;w=60"}, "Ratelimit": {"limit=100, remaining=4, reset=5"}},
			[]retry.Quota{{"policy ", "", 100, 4, 5 * time.Second, time.Minute}},
		},
		"an older policy of 1, and what is left of it": {
			http.Header{"Ratelimit-Policy": {"1;w=60"}, "Ratelimit": {"limit=1, remaining=0, reset=5"}},
			[]retry.Quota{{"policy ", "", 1, 0, 5 * time.Second, time.Minute}},
		},
		"a policy beside a list": {
			http.Header{"Ratelimit-Policy": {`("a" "b"), "b";q=9;w=1`}},
			[]retry.Quota{{"policy b", "", 9, -1, no, time.Second}},
		},
		"an older policy of bytes": {http.Header{"Ratelimit-Policy": {`100;w=60;qu="content-bytes"`}, "Ratelimit": {"limit=100, remaining=4, reset=5"}}, nil},
		"an older policy, and what is left of another": {
			http.Header{"Ratelimit-Policy": {"100;w=60"}, "Ratelimit": {"limit=10, remaining=4, reset=5"}},
			[]retry.Quota{{"policy ", "", 100, -1, no, time.Minute}},
		},
		"a policy of bytes":   {http.Header{"Ratelimit-Policy": {`"default";q=100;w=60;qu="content-bytes"`}}, nil},
		"a policy of nothing": {http.Header{"Ratelimit-Policy": {`"default";q=0;w=60`}}, nil},
		"a broken policy":     {http.Header{"Ratelimit-Policy": {`"default;q=`}}, nil},
		"policies": {
			http.Header{"Ratelimit-Policy": {`"burst";q=10;w=1, "day";q=1000;w=86400;pk=:YQ==:`}, "Ratelimit": {`"day";r=500;t=3600`}},
			[]retry.Quota{{"policy burst", "", 10, -1, no, time.Second}, {"policy day a", "", 1000, 500, time.Hour, 24 * time.Hour}},
		},
		"Kong": {
			http.Header{"X-Ratelimit-Limit-Minute": {"20"}, "X-Ratelimit-Remaining-Minute": {"19"}},
			[]retry.Quota{{"X-Ratelimit--Minute", "", 20, 19, no, time.Minute}},
		},
		"Kong, several": {
			http.Header{"X-Ratelimit-Limit-Second": {"2"}, "X-Ratelimit-Limit-Hour": {"100"}, "X-Ratelimit-Limit-Day": {"200"}},
			[]retry.Quota{{"X-Ratelimit--Day", "", 200, -1, no, 24 * time.Hour}, {"X-Ratelimit--Hour", "", 100, -1, no, time.Hour}, {"X-Ratelimit--Second", "", 2, -1, no, time.Second}},
		},
		"GitHub": {
			http.Header{"X-Ratelimit-Limit": {"30"}, "X-Ratelimit-Remaining": {"29"}, "X-Ratelimit-Reset": {"60"}, "X-Ratelimit-Resource": {"search"}},
			[]retry.Quota{{"X-Ratelimit-", "github/search", 30, 29, time.Minute, 0}},
		},
		"OpenAI": {
			http.Header{"X-Ratelimit-Limit-Requests": {"60"}, "X-Ratelimit-Remaining-Requests": {"59"}, "X-Ratelimit-Reset-Requests": {"1s"}, "X-Ratelimit-Limit-Tokens": {"150000"}, "X-Ratelimit-Remaining-Tokens": {"149984"}, "X-Ratelimit-Reset-Tokens": {"6m0s"}},
			[]retry.Quota{{"X-Ratelimit--Requests", "openai/requests", 60, 59, time.Second, 0}},
		},
		"Anthropic": {
			http.Header{"Anthropic-Ratelimit-Requests-Limit": {"50"}, "Anthropic-Ratelimit-Requests-Remaining": {"49"}, "Anthropic-Ratelimit-Requests-Reset": {now.Add(time.Second).UTC().Format(time.RFC3339)}, "Anthropic-Ratelimit-Input-Tokens-Limit": {"30000"}},
			[]retry.Quota{{"Anthropic-Ratelimit-Requests-", "anthropic/requests", 50, 49, time.Second, 0}},
		},
		"Discord": {
			http.Header{"X-Ratelimit-Limit": {"5"}, "X-Ratelimit-Remaining": {"4"}, "X-Ratelimit-Reset": {"9999999999"}, "X-Ratelimit-Reset-After": {"1.5"}, "X-Ratelimit-Bucket": {"abcd"}},
			[]retry.Quota{{"X-Ratelimit-", "discord/abcd", 5, 4, 1500 * time.Millisecond, 0}},
		},
		"Shopify": {
			http.Header{"X-Shopify-Shop-Api-Call-Limit": {"10/40"}},
			[]retry.Quota{{"X-Shopify-Shop-Api-Call-Limit", "shopify/rest", 40, 30, no, 20 * time.Second}},
		},
	} {
		if got := retry.ParseQuotas(c.header, now, retry.ResetGuess); !reflect.DeepEqual(got, c.want) && len(got)+len(c.want) > 0 {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, c.want)
		}
	}
}

// TestShopifyBucket: what is no level and size is no quota.
func TestShopifyBucket(t *testing.T) {
	for s, want := range map[string]int64{
		"10/40": 30, "40/40": 0, "41/40": 0, "0/1": 1, "0/2147483647": 2147483647,
		"": -1, "10": -1, "/40": -1, "10/": -1, "x/40": -1, "10/x": -1, "10/0": -1, "-1/40": -1, "3000000000/40": -1, "0/4000000000": -1, "4000000000/5000000000": -1,
	} {
		hint, ok := retry.ParseQuota(header("X-Shopify-Shop-Api-Call-Limit", s), now, retry.ResetGuess)
		if ok != (want >= 0) || ok && hint.Remaining != want || !ok && hint != (retry.Hint{}) {
			t.Errorf("%q: %+v %v", s, hint, ok)
		}
	}
}

// TestScopes: the names that quotas may have, and those that say nothing.
func TestScopes(t *testing.T) {
	long := strings.Repeat("n", 64)
	for bucket, want := range map[string]string{
		"abc": "discord/abc", "A!~": "discord/a!~", long: "discord/" + long, "x" + long: "", "": "", "a b": "", "a\x7f": "", "ä": "",
	} {
		if got := strings.Join(retry.ParseScopes(header("X-RateLimit-Bucket", bucket)), ","); got != want {
			t.Errorf("%q: %q, want %q", bucket, got, want)
		}
	}
	many := http.Header{}
	for i := range 100 {
		many[fmt.Sprintf("X-Ratelimit-Remaining-Requests-%02d", i)] = []string{"5"}
	}
	if got := retry.ParseScopes(many); len(got) != 8 || got[7] != "openai/requests-07" {
		t.Errorf("of a hundred: %v", got)
	}
	if a := retry.ParseAnswer(429, header("X-Shopify-Shop-Api-Call-Limit", "10/40", "Retry-After", "5"), now, retry.ResetGuess); a.Scope != "shopify/rest" {
		t.Errorf("a rejection with room in the bucket is for %q", a.Scope)
	}
	for _, of := range [][]string{{"X-RateLimit-Global", "true"}, {"X-RateLimit-Scope", "GLOBAL"}, {"X-RateLimit-Global", "false"}, {"X-RateLimit-Scope", "user"}} {
		a := retry.ParseAnswer(429, header(append(of, "X-RateLimit-Bucket", "b", "Retry-After", "5")...), now, retry.ResetGuess)
		if all := strings.EqualFold(of[1], "true") || strings.EqualFold(of[1], "global"); (a.Scope == "") != all {
			t.Errorf("%v: the wait is for %q", of, a.Scope)
		}
	}
}

// TestParseQuotasTakesAFew: a response with very many quotas names the same few each time.
func TestParseQuotasTakesAFew(t *testing.T) {
	h := http.Header{}
	for i := range 100 {
		h[fmt.Sprintf("X-Ratelimit-Limit-%02d", i)] = []string{"5"}
	}
	for range 20 {
		got := retry.ParseQuotas(h, now, retry.ResetGuess)
		if len(got) != retry.MaxQuotas || got[0].Name != "X-Ratelimit--00" || got[3].Name != "X-Ratelimit--03" {
			t.Fatalf("%+v", got)
		}
	}
}

// FuzzQuotas: whatever the headers say, quotas are in order, named once, and in range.
func FuzzQuotas(f *testing.F) {
	f.Add("X-Ratelimit-", "", "60", "59", "30", `"a";q=10;w=1`, `"a";r=5;t=1`)
	f.Add("Anthropic-Ratelimit-Requests-", "", "50", "-1", "2026-07-01T12:00:01Z", "100;w=60", "limit=10, remaining=4, reset=5")
	f.Add("X-Ratelimit-", "-Requests", "1e300", "NaN", "9999999999999999999", `"a";q=999999999999999;w=999999999999999`, `"a";r=1;t=999999999999999;pk=:YQ==:`)
	f.Fuzz(func(t *testing.T, prefix, suffix, limit, remaining, reset, policy, said string) {
		h := http.Header{
			http.CanonicalHeaderKey(prefix + "Limit" + suffix): {limit}, http.CanonicalHeaderKey(prefix + "Remaining" + suffix): {remaining},
			http.CanonicalHeaderKey(prefix + "Reset" + suffix): {reset}, "Ratelimit-Policy": {policy}, "Ratelimit": {said},
		}
		all := retry.ParseQuotas(h, now, retry.ResetGuess)
		if len(all) > retry.MaxQuotas {
			t.Errorf("%d quotas", len(all))
		}
		for i, q := range all {
			if q.Limit < 0 || q.Limit >= 1e15 || q.Remaining < -1 || q.Reset < -1 || q.Window < 0 || q.Limit == 0 && q.Remaining < 0 || i > 0 && all[i-1].Name >= q.Name {
				t.Errorf("%+v", all)
			}
		}
	})
}

// fields are a quota that is used up, and so many others.
func fields(others int) http.Header {
	return http.Header{
		"Ratelimit":        {`"a";r=0;t=60` + strings.Repeat(`,"b";r=1;t=1`, others)},
		"Ratelimit-Policy": {`"a";q=1;w=60` + strings.Repeat(`,"b";q=1`, others)},
	}
}

// TestLongFieldsAllocateLittle: a server chooses how long its fields are, and each response is read.
func TestLongFieldsAllocateLittle(t *testing.T) {
	for _, n := range []int{600, 100_000} {
		h := fields(n)
		if got := testing.AllocsPerRun(1, func() {
			retry.ParseAnswer(http.StatusOK, h, now, retry.ResetGuess)
			retry.ParseQuotas(h, now, retry.ResetGuess)
		}); got > 20_000 {
			t.Errorf("%v allocations for %d members", got, n)
		}
	}
}

// TestLongFields: the first members of a list count, and nothing of a field that is longer than any server's.
func TestLongFields(t *testing.T) {
	for n, want := range map[int]bool{0: true, 600: true, 1000: false} {
		h := fields(n)
		if a := retry.ParseAnswer(http.StatusOK, h, now, retry.ResetGuess); a.Asked != want || want && a.Wait != time.Minute {
			t.Errorf("%d members: %+v", n, a)
		}
		if q := retry.ParseQuotas(h, now, retry.ResetGuess); len(q) > 0 && q[0].Name == "policy a" && (q[0].Remaining == 0) != want {
			t.Errorf("%d members: %+v", n, q)
		}
	}
	h := fields(31)
	h["Ratelimit"][0] += `,"c";r=0;t=90`
	if a := retry.ParseAnswer(http.StatusOK, h, now, retry.ResetGuess); a.Wait != time.Minute {
		t.Errorf("the 33rd member counts: %+v", a)
	}
	if a := retry.ParseAnswer(http.StatusOK, http.Header{"Ratelimit": {"limit=1, remaining=0, reset=5", strings.Repeat("a, ", 5000) + "a"}}, now, retry.ResetGuess); a.Asked {
		t.Errorf("a dictionary of 15 kB counts: %+v", a)
	}
	// Values count with what separates them: one has 8191 bytes, two have 8190.
	const said = `"a";r=0;t=60;x="`
	for long, want := range map[int]bool{8190: true, 8191: true, 8192: false} {
		one := said + strings.Repeat("x", long-len(said)-1) + `"`
		if a := retry.ParseAnswer(http.StatusOK, http.Header{"Ratelimit": {one}}, now, retry.ResetGuess); a.Asked != want {
			t.Errorf("a value of %d bytes: %+v", long, a)
		}
		two := []string{one[:long-5] + `"`, `"b"`}
		if a := retry.ParseAnswer(http.StatusOK, http.Header{"Ratelimit": two}, now, retry.ResetGuess); a.Asked != want {
			t.Errorf("two values of %d bytes: %+v", long-1, a)
		}
	}
}
