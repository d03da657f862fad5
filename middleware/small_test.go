package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/semaphore"
)

// held grants one permit at a time.
type held struct{ permit *semaphore.Permit }

func (h *held) TryAcquire(context.Context, string) (*semaphore.Permit, error) {
	if h.permit != nil && h.permit.Release() == nil { // it was not released
		h.permit = nil
		return &semaphore.Permit{}, nil
	}
	h.permit = &semaphore.Permit{Result: limiter.Result{Allowed: true}}
	return h.permit, nil
}

// TestPermitIsReleased: when the request was served, and also when its handler panics.
func TestPermitIsReleased(t *testing.T) {
	panics := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Panic") != "" {
			panic(http.ErrAbortHandler)
		}
	})
	var h http.Handler
	twice := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Within") == "" {
			w.WriteHeader(get(h, with("X-Within", "yes")).StatusCode)
		}
	})
	h = around(t, twice, local(t, few(1000)), middleware.Everyone(), middleware.WithConcurrency(new(held), "at once"))
	if resp := get(h); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a request within another one: %d", resp.StatusCode)
	}
	h = around(t, panics, local(t, few(1000)), middleware.Everyone(), middleware.WithConcurrency(new(held), "at once"))
	for i := range 6 {
		func() {
			defer func() { _ = recover() }()
			if resp := get(h, with("X-Panic", strings.Repeat("x", i%2))); resp.StatusCode != http.StatusOK {
				t.Errorf("request %d: %d", i, resp.StatusCode)
			}
		}()
	}
}

// TestSkippedIsServed: by the handler, without a decision. No handler at all answers 404.
func TestSkippedIsServed(t *testing.T) {
	mw, err := middleware.New(local(t, few(1)), middleware.Everyone(), middleware.WithSkip(func(r *http.Request) bool { return r.Header.Get("X-Health") != "" }))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if body, _ := io.ReadAll(get(mw(ok), with("X-Health", "yes")).Body); string(body) != "served" {
			t.Errorf("%q", body)
		}
	}
	if resp := get(mw(nil)); resp.StatusCode != http.StatusNotFound {
		t.Errorf("without a handler: %d", resp.StatusCode)
	}
}

// answers returns what it holds.
type answers struct {
	res limiter.Result
	err error
}

func (a answers) AllowN(context.Context, string, int) (limiter.Result, error) { return a.res, a.err }

// TestEndedRequests: those that ended before there was a decision are not the client's fault.
func TestEndedRequests(t *testing.T) {
	for _, err := range []error{context.Canceled, context.DeadlineExceeded, limiter.ErrClosed, limiter.ErrUnavailable} {
		resp := get(wrap(t, answers{err: err}, middleware.Everyone()))
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "" {
			t.Errorf("%v: %d, %v", err, resp.StatusCode, resp.Header)
		}
	}
	resp := get(wrap(t, answers{res: limiter.Result{RetryAfter: time.Second}, err: limiter.ErrInvalidCost}, middleware.Everyone()))
	if resp.StatusCode != http.StatusBadRequest || resp.Header.Get("Retry-After") != "" {
		t.Errorf("a bad cost: %d, %v", resp.StatusCode, resp.Header)
	}
	if resp := get(wrap(t, answers{err: errors.New("other")}, middleware.Everyone())); resp.StatusCode != http.StatusInternalServerError {
		t.Errorf("%d", resp.StatusCode)
	}
}

// TestRetryAfter: whole seconds, rounded up, at least one, in the header and in the body.
func TestRetryAfter(t *testing.T) {
	limit := limiter.FixedWindow(limiter.Per(1, 300*time.Hour))
	for wait, want := range map[time.Duration]string{1: "1", time.Second: "1", time.Second + 1: "2", 15 * time.Second: "15", 100 * time.Minute: "6000"} {
		denied := answers{res: limiter.Result{Limit: limit, RetryAfter: wait, ResetAfter: wait}}
		resp := get(wrap(t, denied, middleware.Everyone()))
		body, _ := io.ReadAll(resp.Body)
		if got := resp.Header.Get("Retry-After"); got != want || !strings.Contains(string(body), "in "+want+" s") && !strings.Contains(string(body), " "+want+" ") {
			t.Errorf("%v: Retry-After %s, want %s: %s", wait, got, want, body)
		}
		if !json.Valid(body) {
			t.Errorf("%s", body)
		}
		without := get(wrap(t, denied, middleware.Everyone(), middleware.WithHeaders(middleware.XRateLimit)))
		if got := without.Header.Get("Retry-After"); got != "" {
			t.Errorf("Retry-After %s, which is switched off", got)
		}
		quota := get(wrap(t, denied, middleware.Everyone(), middleware.WithHeaders(middleware.RateLimit)))
		if quota.Header.Get("RateLimit") == "" || len(quota.Header["X-Ratelimit-Limit"])+len(quota.Header["Retry-After"]) > 0 || quota.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%v", quota.Header)
		}
		only := get(wrap(t, denied, middleware.Everyone(), middleware.WithHeaders(middleware.RetryAfter)))
		if len(only.Header["Ratelimit"])+len(only.Header["X-Ratelimit-Limit"])+len(only.Header["Ratelimit-Limit"]) > 0 || only.Header.Get("Retry-After") != want {
			t.Errorf("%v", only.Header)
		}
	}
}

// TestManyLimits: no more than 1024 tiers are remembered; those beyond are announced as well.
func TestManyLimits(t *testing.T) {
	h := wrap(t, tiers{}, middleware.Everyone())
	for range 2 {
		for n := 1; n <= 1100; n++ {
			resp := get(h, func(r *http.Request) { *r = *r.WithContext(context.WithValue(r.Context(), tierOf{}, few(n))) })
			if got, want := resp.Header.Get("X-Ratelimit-Limit"), fmt.Sprint(n); got != want {
				t.Fatalf("a limit of %s, want %s", got, want)
			}
		}
	}
	if n := middleware.Remembered(h); n != 1024 {
		t.Errorf("%d limits are remembered", n)
	}
}

type tierOf struct{}

// tiers answers with the limit of the context.
type tiers struct{}

func (tiers) AllowN(ctx context.Context, _ string, _ int) (limiter.Result, error) {
	return limiter.Result{Allowed: true, Limit: ctx.Value(tierOf{}).(limiter.Limit)}, nil
}

// TestNestedTriples: the triples are about the limit that has least left, where that can be known.
func TestNestedTriples(t *testing.T) {
	inner := func(remaining int) http.Handler {
		return wrap(t, answers{res: limiter.Result{Allowed: true, Limit: few(100), Remaining: remaining}}, middleware.Everyone())
	}
	for _, c := range []struct {
		said []string
		want string
	}{{nil, "5"}, {[]string{"6"}, "5"}, {[]string{"5"}, "5"}, {[]string{"4"}, "4"}, {[]string{"many"}, "5"}, {[]string{"1", "2"}, "5"}} {
		w := httptest.NewRecorder()
		w.Header()["X-Ratelimit-Remaining"] = c.said
		inner(5).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if got := w.Header().Get("X-Ratelimit-Remaining"); got != c.want {
			t.Errorf("%q was said: %s, want %s", c.said, got, c.want)
		}
	}
}

// TestTrustedIsCopied: a slice that changes later changes nothing.
func TestTrustedIsCopied(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}
	key := middleware.XForwardedFor(trusted...)
	if trusted[0] != netip.MustParsePrefix("::ffff:10.0.0.0/104") {
		t.Errorf("the caller's prefix became %v", trusted[0])
	}
	trusted[0] = netip.MustParsePrefix("192.0.2.0/24")
	got := keyOf(t, key, func(r *http.Request) {
		r.RemoteAddr = "10.0.0.1:1"
		r.Header.Set("X-Forwarded-For", "203.0.113.7")
	})
	if got != "203.0.113.7" {
		t.Errorf("%q", got)
	}
	for bits, want := range map[int]bool{95: false, 96: true, 97: true} {
		p := netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), bits)
		if _, err := middleware.New(local(t, few(1)), middleware.XForwardedFor(p)); (err == nil) != want {
			t.Errorf("%d bits: %v", bits, err)
		}
	}
}

// TestForwardedEdges: what stands at the borders of a header.
func TestForwardedEdges(t *testing.T) {
	key := middleware.Forwarded(netip.MustParsePrefix("10.0.0.0/8"))
	old := middleware.XForwardedFor(netip.MustParsePrefix("10.0.0.0/8"))
	pad := func(s string, n int) string { return strings.Repeat(" ", n-len(s)) + s }
	for _, c := range []struct {
		name, header, value string
		key                 middleware.Key
		want                string
	}{
		{"as long as is read", "X-Forwarded-For", pad("203.0.113.7", 8192), old, "203.0.113.7"},
		{"a comma before what is read", "X-Forwarded-For", "," + pad("203.0.113.7", 8192), old, "10.0.0.1"},
		{"one byte longer", "X-Forwarded-For", pad("203.0.113.7", 8193), old, "10.0.0.1"},
		{"a comma at the begin", "Forwarded", `,for=203.0.113.7`, key, "203.0.113.7"},
		{"three backslashes", "Forwarded", `for="\\\"203.0.113.7"`, key, "10.0.0.1"},
		{"two backslashes and a quote", "Forwarded", `by="a\\", for=203.0.113.7`, key, "203.0.113.7"},
		{"an escaped quote", "Forwarded", `for=203.0.113.7;by="a\", b"`, key, "203.0.113.7"},
		{"escaped address", "Forwarded", `for="203.0.113\.\7"`, key, "203.0.113.7"},
		{"no name", "Forwarded", `=203.0.113.7`, key, "10.0.0.1"},
		{"no value", "Forwarded", `for=`, key, "10.0.0.1"},
		{"an empty value of another", "Forwarded", `by=;for=203.0.113.7`, key, "10.0.0.1"},
		{"DEL in a name", "Forwarded", "b\x7f=1;for=203.0.113.7", key, "10.0.0.1"},
		{"~ in a name", "Forwarded", "b~=1;for=203.0.113.7", key, "203.0.113.7"},
		{"! in a name", "Forwarded", "!=1;for=203.0.113.7", key, "203.0.113.7"},
		{"a space in a name", "Forwarded", "a b=1;for=203.0.113.7", key, "10.0.0.1"},
		{"three backslashes after a comma", "Forwarded", `for=203.0.113.7;by="a,\\\",b"`, key, "203.0.113.7"},
		{"an empty value before others", "Forwarded", `for=203.0.113.7;by=;a=1`, key, "10.0.0.1"},
		{"a network in brackets", "X-Forwarded-For", "[1:2:3:4::]", old, "1:2:3:4::/64"},
		{"spaces in quotes", "Forwarded", `for=" 203.0.113.7 "`, key, "203.0.113.7"},
	} {
		got := keyOf(t, c.key, func(r *http.Request) {
			r.RemoteAddr = "10.0.0.1:1"
			r.Header.Set(c.header, c.value)
		})
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestFirstStatusCounts: a status after the body has begun is none.
func TestFirstStatusCounts(t *testing.T) {
	for name, begin := range map[string]func(http.ResponseWriter){
		"write": func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x") },
		"read":  func(w http.ResponseWriter) { _, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader("x")}) },
		"flush": func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
		"200":   func(w http.ResponseWriter) { w.WriteHeader(200) },
	} {
		lim := local(t, few(1))
		next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			begin(w)
			w.WriteHeader(http.StatusInternalServerError)
		})
		counted := middleware.WithCounted(func(status int) bool { return status != http.StatusOK })
		h := around(t, next, lim, middleware.Everyone(), counted)
		get(h)
		if resp := get(h); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: a request that was served was counted", name)
		}
	}
}

// TestHeadersCanBeAddedTo: what a handler adds to one header changes no other one.
func TestHeadersCanBeAddedTo(t *testing.T) {
	mw, err := middleware.New(allowing{5, few(7)}, middleware.Everyone())
	if err != nil {
		t.Fatal(err)
	}
	resp := get(mw(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range []string{"Limit", "Remaining", "Reset"} {
			w.Header().Add("X-RateLimit-"+name, "added")
		}
	})))
	for name, want := range map[string]string{"Limit": "7", "Remaining": "5", "Reset": "0"} {
		if got := resp.Header.Values("X-RateLimit-" + name); len(got) != 2 || got[0] != want {
			t.Errorf("%s: %q, want %s first", name, got, want)
		}
	}
}

// addsTo is a ResponseWriter that adds to a header before it is sent.
type addsTo struct {
	http.ResponseWriter
	name string
}

func (w addsTo) WriteHeader(status int) {
	w.Header().Add(w.name, "added")
	w.ResponseWriter.WriteHeader(status)
}

// TestRejectionCanBeAddedTo: what a ResponseWriter adds to one header of a rejection changes no other one.
func TestRejectionCanBeAddedTo(t *testing.T) {
	h := wrap(t, local(t, few(1)), middleware.Header("X-User"))
	says := map[string]string{"Content-Type": "application/problem+json", "Cache-Control": "no-store"}
	for name := range says {
		w := httptest.NewRecorder()
		h.ServeHTTP(addsTo{w, name}, httptest.NewRequest("GET", "/", nil))
		for of, want := range says {
			if got := w.Header().Get(of); got != want {
				t.Errorf("added to %s: %s is %q, want %q", name, of, got, want)
			}
		}
	}
}

// TestLastTierCounts: each option replaces what an earlier one said.
func TestLastTierCounts(t *testing.T) {
	tier := middleware.WithTier(func(*http.Request) limiter.Limit { return few(3) })
	if _, err := middleware.New(local(t, few(1)), middleware.Everyone(), tier, tier); err != nil {
		t.Error(err)
	}
	if _, err := middleware.New(local(t, few(1)), middleware.Everyone(), middleware.WithHeaders(16)); err == nil {
		t.Error("headers that there are not")
	}
	if _, err := middleware.New(local(t, few(1)), middleware.XForwardedFor()); err == nil || !strings.Contains(err.Error(), "trusted proxies is 0") {
		t.Error(err)
	}
}

// TestDenialWithoutATime: a client learns the same from the header as from the body.
func TestDenialWithoutATime(t *testing.T) {
	resp := get(wrap(t, answers{}, middleware.Everyone()))
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "1" || !strings.Contains(string(body), "in 1 s") {
		t.Errorf("%d, Retry-After %q: %s", resp.StatusCode, resp.Header.Get("Retry-After"), body)
	}
	if resp = get(wrap(t, answers{}, middleware.Everyone(), middleware.WithHeaders(middleware.RateLimit))); resp.Header["Retry-After"] != nil {
		t.Errorf("not wanted: %v", resp.Header)
	}
}
