package retry_test

import (
	"fmt"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/retry"
)

// TestParseQuotas: what headers say of limits, windows and scopes.
func TestParseQuotas(t *testing.T) {
	const no = -1 * time.Nanosecond
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
		"reset alone":         {http.Header{"X-Ratelimit-Reset": {"60"}}, nil},
		"from a cache":        {http.Header{"X-Ratelimit-Limit": {"60"}, "Age": {"5"}}, nil},
		"no number":           {http.Header{"X-Ratelimit-Limit": {"many"}}, nil},
		"absurd":              {http.Header{"X-Ratelimit-Limit": {"1000000000000000"}}, nil},
		"no limit":            {http.Header{"X-Ratelimit-Limit": {"0"}}, nil},
		"tokens":              {http.Header{"X-Ratelimit-Limit-Tokens": {"60"}, "X-Ratelimit-Remaining-Tokens": {"5"}, "X-Ratelimit-Reset-Tokens": {"1s"}}, nil},
		"an older draft":      {http.Header{"Ratelimit-Limit": {"100, 10;w=1, 100;w=60"}, "Ratelimit-Remaining": {"7"}, "Ratelimit-Reset": {"5"}}, []retry.Quota{{"Ratelimit-", "", 100, 7, 5 * time.Second, time.Minute}}},
		"a dictionary":        {http.Header{"Ratelimit": {"limit=10, remaining=4, reset=5"}}, []retry.Quota{{"Ratelimit", "", 10, 4, 5 * time.Second, 0}}},
		"a policy":            {http.Header{"Ratelimit-Policy": {`"default";q=100;w=60`}}, []retry.Quota{{"policy default", "", 100, -1, no, time.Minute}}},
		"an older policy":     {http.Header{"Ratelimit-Policy": {"100;w=60"}}, []retry.Quota{{"policy ", "", 100, -1, no, time.Minute}}},
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
