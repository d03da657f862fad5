package middleware_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/retry"
)

// TestHeaders: every response says what is left, in fields that an independent parser
// reads, and a rejection when to come back.
func TestHeaders(t *testing.T) {
	for _, c := range []struct {
		limit limiter.Limit
		w, t0 int64 // of the policy; until there is more, when there is none
	}{
		{limiter.FixedWindow(limiter.Per(3, 300*time.Hour)), 1_080_000, 0},
		{limiter.SlidingWindowLog(limiter.PerHour(3)), 3600, 3600},
		{limiter.GCRA(limiter.PerHour(1), 3), 3 * 3600, 3600},
		{limiter.GCRA(limiter.PerHour(2), 3), 5400, 1800},
		{limiter.FixedWindow(limiter.PerSecond(3)), 1, 0},
		{limiter.TokenBucket(limiter.PerMinute(2), 3), 90, 30},
		// A second would be a hundred times the window: there is none.
		{limiter.TokenBucket(limiter.PerSecond(1000), 3), 0, 1},
		{limiter.GCRA(limiter.PerSecond(2), 3), 2, 1}, // 1.5 s, rounded up
	} {
		t.Run(c.limit.String(), func(t *testing.T) {
			h := wrap(t, local(t, c.limit), middleware.Everyone(), middleware.WithPolicy("the plan"))
			slow := c.limit.Rate().Per > time.Minute
			for i := range 5 {
				resp := get(h)
				left := max(0, 2-i)
				p, r := items(t, resp, "RateLimit-Policy")["the plan"], items(t, resp, "RateLimit")["the plan"]
				if _, has := p["w"]; p["q"] != 3 || p["w"] != c.w || has != (c.w > 0) || len(r) != 2 || r["t"] < 1 {
					t.Fatalf("request %d: %v and %v", i, p, r)
				}
				if x := resp.Header.Get("X-RateLimit-Limit"); x != "3" || resp.Header.Get("X-RateLimit-Remaining") != strconv.FormatInt(r["r"], 10) || resp.Header.Get("X-RateLimit-Reset") != strconv.FormatInt(r["t"], 10) {
					t.Errorf("request %d: %v", i, resp.Header)
				}
				if !slow {
					continue
				}
				if r["r"] != int64(left) {
					t.Errorf("request %d: %v, want %d left", i, r, left)
				}
				if i == 2 && c.t0 > 0 && r["t"] != c.t0 {
					t.Errorf("with none left: %v, want %d s", r, c.t0)
				}
				wait, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
				if (resp.StatusCode == 429) != (i > 2) || (wait > 0) != (i > 2) {
					t.Errorf("request %d: %d, Retry-After %d", i, resp.StatusCode, wait)
				}
			}
		})
	}
}

// TestHeadersOfLargeLimits: the integers of structured fields have 15 digits.
func TestHeadersOfLargeLimits(t *testing.T) {
	if strconv.IntSize < 64 {
		t.Skip("no limit is as large")
	}
	most := int64(999_999_999_999_999)
	resp := get(wrap(t, allowing{int(most + 5), limiter.FixedWindow(limiter.Per(int(most+7), time.Hour))}, middleware.Everyone()))
	p, r := items(t, resp, "RateLimit-Policy")["default"], items(t, resp, "RateLimit")["default"]
	if p["q"] != most || p["w"] != 3600 || r["r"] != most {
		t.Errorf("%v and %v", p, r)
	}
	if l, r := resp.Header.Get("X-RateLimit-Limit"), resp.Header.Get("X-RateLimit-Remaining"); l != strconv.FormatInt(most, 10) || r != l {
		t.Errorf("%s of %s", r, l)
	}
}

// TestRejection: a problem that names the policy, never a wait of 0.
func TestRejection(t *testing.T) {
	h := wrap(t, local(t, limiter.GCRA(limiter.PerSecond(1000), 1)), middleware.Everyone())
	for range 1000 {
		resp := get(h)
		if resp.StatusCode == 200 {
			continue
		}
		var p struct {
			Type, Title string
			Status      int
			Violated    []string `json:"violated-policies"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
			t.Fatal(err)
		}
		if p.Status != 429 || resp.StatusCode != 429 || resp.Header.Get("Content-Type") != "application/problem+json" || fmt.Sprint(p.Violated) != "[default]" || !strings.HasSuffix(p.Type, "#quota-exceeded") {
			t.Errorf("%d %v: %+v", resp.StatusCode, resp.Header, p)
		}
		if resp.Header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After %q for less than a second", resp.Header.Get("Retry-After"))
		}
		return
	}
	t.Fatal("nothing was refused")
}

// TestMultiPolicies: the parts of a Multi are policies of their own, and the one that
// denied is named.
func TestMultiPolicies(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	var parts []limiter.Part
	for name, n := range map[string]int{"per user": 2, "for all": 5} {
		lim, err := limiter.New(rdb, limiter.FixedWindow(limiter.Per(n, 300*time.Hour)), limiter.WithPrefix("p"+strconv.Itoa(n)), limiter.WithShare(1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lim.Close() })
		p := limiter.Part{Name: name, Limiter: lim}
		if name == "for all" {
			p.Key = func(string) string { return "all" }
		}
		parts = append(parts, p)
	}
	both, err := limiter.NewMulti(parts...)
	if err != nil {
		t.Fatal(err)
	}
	var last middleware.Decision
	h := wrap(t, both, middleware.Header("X-User"), middleware.WithHook(func(_ context.Context, d middleware.Decision) { last = d }))
	for i, want := range []struct{ user, denied string }{{"a", ""}, {"a", ""}, {"a", "per user"}, {"b", ""}, {"b", ""}, {"c", ""}, {"d", "for all"}} {
		resp := get(h, with("X-User", want.user))
		if (resp.StatusCode == 200) != (want.denied == "") || last.Policy != want.denied {
			t.Fatalf("request %d: %d, %+v", i, resp.StatusCode, last)
		}
		p, r := items(t, resp, "RateLimit-Policy"), items(t, resp, "RateLimit")
		if want.denied == "" && (len(p) != 2 || len(r) != 2 || p["per user"]["q"] != 2 || p["for all"]["q"] != 5) {
			t.Errorf("request %d: %v, %v", i, p, r)
		}
	}
}

// TestOlderHeadersOfAMulti: all three are about one part: the one with least left, or that denies for longest.
func TestOlderHeadersOfAMulti(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	var parts []limiter.Part
	for i, limit := range []limiter.Limit{limiter.GCRA(limiter.Per(9, 900*time.Hour), 9), limiter.GCRA(limiter.PerHour(2), 2), limiter.GCRA(limiter.PerHour(8), 8)} {
		lim, err := limiter.New(rdb, limit, limiter.WithPrefix("p"+strconv.Itoa(i)), limiter.WithShare(1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lim.Close() })
		parts = append(parts, limiter.Part{Name: "p" + strconv.Itoa(i), Limiter: lim})
	}
	all, err := limiter.NewMulti(parts...)
	if err != nil {
		t.Fatal(err)
	}
	h := wrap(t, all, middleware.Everyone())
	for i, left := range []int64{1, 0, 0} {
		resp := get(h)
		got := [3]string{}
		for i, name := range []string{"Limit", "Remaining", "Reset"} {
			got[i] = resp.Header.Get("X-RateLimit-" + name)
		}
		least := items(t, resp, "RateLimit")["p1"]
		if want := [3]string{"2", fmt.Sprint(left), fmt.Sprint(least["t"])}; got != want || least["r"] != left {
			t.Errorf("request %d, %d: %v, want %v", i, resp.StatusCode, got, want)
		}
	}
}

// TestTightestPart: the older headers are about the part with least left, the first one where all have as much, and of a
// denial about the part with the longest wait.
func TestTightestPart(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	for name, hours := range map[string][3]int{"first": {30, 20, 10}, "middle": {10, 30, 20}, "last": {10, 20, 30}} {
		var parts []limiter.Part
		for i, h := range hours {
			lim, err := limiter.New(rdb, limiter.GCRA(limiter.Per(1, time.Duration(h)*time.Hour), 1), limiter.WithPrefix(name+strconv.Itoa(i)), limiter.WithShare(1))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = lim.Close() })
			parts = append(parts, limiter.Part{Name: "p" + strconv.Itoa(i), Limiter: lim})
		}
		all, err := limiter.NewMulti(parts...)
		if err != nil {
			t.Fatal(err)
		}
		h := wrap(t, all, middleware.Everyone())
		for i, want := range []int{hours[0], 30} { // admitted, and denied
			resp := get(h)
			reset, _ := strconv.Atoi(resp.Header.Get("X-RateLimit-Reset"))
			if got := (reset + 1800) / 3600; got != want {
				t.Errorf("the longest is %s, request %d: %d: in %d hours, want %d", name, i, resp.StatusCode, got, want)
			}
		}
	}
}

// reserves is a limiter that answers with one reservation.
type reserves struct{ *limiter.Reservation }

func (r reserves) AllowN(context.Context, string, int) (limiter.Result, error) { return r.Result, nil }

func (r reserves) Reserve(context.Context, string, ...limiter.CallOption) (*limiter.Reservation, error) {
	return r.Reservation, nil
}

// TestPartsThatDenyForAsLong: the older headers are about the first of them.
func TestPartsThatDenyForAsLong(t *testing.T) {
	denied := &limiter.Reservation{Denied: "a"}
	for i, n := range []int{3, 7} {
		res := limiter.Result{Limit: few(n), RetryAfter: time.Hour, ResetAfter: time.Hour}
		denied.Parts = append(denied.Parts, limiter.PartResult{Name: "ab"[i : i+1], Result: res})
	}
	denied.Result = denied.Parts[0].Result
	resp := get(wrap(t, reserves{denied}, middleware.Everyone(), middleware.WithCounted(func(int) bool { return true })))
	if got := resp.Header.Get("X-RateLimit-Limit"); got != "3" || resp.StatusCode != 429 {
		t.Errorf("%d: a limit of %s, want that of the first part", resp.StatusCode, got)
	}
}

// TestNested: of middlewares around each other each adds its policy, and the older
// headers are those of the one that denies, or has less left.
func TestNested(t *testing.T) {
	hours := func(n int) limiter.Limit { return limiter.FixedWindow(limiter.Per(n, 300*time.Hour)) }
	for _, tc := range []struct{ outer, inner, limit, left string }{
		{"9", "4", "4", "3"},
		{"4", "9", "4", "3"},
		{"4", "4", "4", "3"},
	} {
		at := func(n string) int { v, _ := strconv.Atoi(n); return v }
		all := middleware.WithHeaders(middleware.DefaultHeaders | middleware.RateLimitDraft6)
		h := wrap(t, local(t, hours(at(tc.inner))), middleware.Everyone(), middleware.WithPolicy("user"), all)
		mw, err := middleware.New(local(t, hours(at(tc.outer))), middleware.Everyone(), middleware.WithPolicy("address"), all)
		if err != nil {
			t.Fatal(err)
		}
		both := mw(h)
		resp := get(both)
		names := func(field string) (out []string) {
			list, err := httpsfv.UnmarshalList(resp.Header.Values(field))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range list {
				out = append(out, m.(httpsfv.Item).Value.(string))
			}
			return out
		}
		if p, r := names("RateLimit-Policy"), names("RateLimit"); !slices.Equal(p, []string{"address", "user"}) || !slices.Equal(r, p) {
			t.Errorf("policies %v, left %v", p, r)
		}
		for _, prefix := range []string{"X-RateLimit-", "RateLimit-"} {
			l, r, at := resp.Header.Values(prefix+"Limit"), resp.Header.Values(prefix+"Remaining"), resp.Header.Values(prefix+"Reset")
			if !slices.Equal(l, []string{tc.limit}) || !slices.Equal(r, []string{tc.left}) || !slices.Equal(at, resp.Header.Values("X-RateLimit-Reset")) {
				t.Errorf("%s around %s: %sLimit %v, left %v until %v", tc.outer, tc.inner, prefix, l, r, at)
			}
		}
	}
	h := wrap(t, local(t, hours(1)), middleware.Everyone(), middleware.WithPolicy("user"))
	mw, err := middleware.New(local(t, limiter.GCRA(limiter.PerHour(1), 2)), middleware.Everyone(), middleware.WithPolicy("address"))
	if err != nil {
		t.Fatal(err)
	}
	if resp := get(mw(h)); resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	// Nothing is left of either, but it is the inner one that denies.
	if resp := get(mw(h)); resp.StatusCode != 429 || resp.Header.Get("X-RateLimit-Limit") != "1" || resp.Header.Get("X-RateLimit-Reset") != resp.Header.Get("Retry-After") {
		t.Errorf("%s %v", resp.Status, resp.Header)
	} else if q, ok := retry.ParseQuota(resp.Header, time.Time{}, retry.ResetGuess); !ok || q.Remaining != 0 || q.Wait < 2*time.Hour {
		t.Errorf("a client reads %+v, %v", q, ok)
	}
}
