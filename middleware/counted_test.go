package middleware_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
)

// answering serves each request with the status of its header Want.
var answering = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	status, err := strconv.Atoi(r.Header.Get("Want"))
	switch {
	case err != nil:
		panic(http.ErrAbortHandler)
	case status != http.StatusOK:
		w.WriteHeader(status)
	}
	_, _ = io.WriteString(w, "served")
})

func few(n int) limiter.Limit { return limiter.FixedWindow(limiter.Per(n, 300*time.Hour)) }

func around(t *testing.T, next http.Handler, allower limiter.Allower, key middleware.Key, opts ...middleware.Option) http.Handler {
	t.Helper()
	mw, err := middleware.New(allower, key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return mw(next)
}

func remaining(t *testing.T, lim *limiter.Limiter, key string) int {
	t.Helper()
	res, err := lim.Peek(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return res.Remaining
}

// TestCounted: only what has a status that counts takes a unit in the end, also when the handler
// panics, and of what was rejected nothing is given back.
func TestCounted(t *testing.T) {
	lim := local(t, few(2))
	h := around(t, answering, lim, middleware.Header("X-User"), middleware.WithCounted(func(status int) bool { return status == 401 }))
	ask := func(want string) (status int) {
		defer func() {
			if recover() != nil {
				status = -1
			}
		}()
		return get(h, with("X-User", "u"), with("Want", want)).StatusCode
	}
	for i, c := range []struct {
		want         string
		status, left int
	}{
		{"200", 200, 2}, {"401", 401, 1}, {"204", 204, 1}, {"500", 500, 1}, {"panic", -1, 0}, {"200", 429, 0}, {"401", 429, 0},
	} {
		status := ask(c.want)
		if left := remaining(t, lim, "u"); status != c.status || left != c.left {
			t.Errorf("%d: %d with %d left, want %+v", i, status, left, c)
		}
	}
	if resp := get(h); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("without a key: %d", resp.StatusCode)
	}
}

// TestNestedTakesBack: what an inner middleware rejects takes nothing from the outer one.
func TestNestedTakesBack(t *testing.T) {
	address, user := local(t, few(3)), local(t, few(1))
	inner := around(t, ok, user, middleware.Header("X-User"))
	h := around(t, inner, address, middleware.RemoteIP(), middleware.WithCounted(func(status int) bool { return status != http.StatusTooManyRequests }))
	for i, want := range []int{200, 429, 429, 429, 429} {
		if got := get(h, with("X-User", "u")).StatusCode; got != want {
			t.Errorf("%d: %d", i, got)
		}
	}
	if n := remaining(t, address, "192.0.2.1"); n != 2 {
		t.Errorf("%d of 3 left of the address", n)
	}
	for i, want := range []int{200, 200, 429} {
		if got := get(h, with("X-User", strconv.Itoa(i))).StatusCode; got != want {
			t.Errorf("another user %d: %d", i, got)
		}
	}
}

// TestCountedWriter: what handlers use of a ResponseWriter works, and its status is known.
func TestCountedWriter(t *testing.T) {
	var hijacked error
	handlers := map[string]http.HandlerFunc{
		"flushed":    func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() },
		"controlled": func(w http.ResponseWriter, _ *http.Request) { hijacked = http.NewResponseController(w).Flush() },
		"copied":     func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader("body")) },
		"hinted": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusOK)
		},
		"silent": func(http.ResponseWriter, *http.Request) {},
		"taken over": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if hijacked = err; err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
				_ = conn.Close()
			}
		},
	}
	for name, handler := range handlers {
		status := make(chan int, 1)
		h := around(t, handler, local(t, few(9)), middleware.Everyone(), middleware.WithCounted(func(s int) bool { status <- s; return true }))
		srv := httptest.NewServer(h)
		resp, err := srv.Client().Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		want := http.StatusOK
		if name == "taken over" {
			want = http.StatusSwitchingProtocols
		}
		if got := <-status; got != want || resp.StatusCode != want || hijacked != nil {
			t.Errorf("%s: %d, and %d by the client, %v", name, got, resp.StatusCode, hijacked)
		}
		srv.CloseClientConnections()
		srv.Close()
	}
}

// TestCountedWhereNothingWasSent: a body that cannot be read, and a flush that is not supported, send nothing: the status is the
// one that follows.
func TestCountedWhereNothingWasSent(t *testing.T) {
	for name, try := range map[string]func(http.ResponseWriter) error{
		"copied": func(w http.ResponseWriter) error {
			_, err := io.Copy(w, iotest.ErrReader(errors.New("no such file")))
			return err
		},
		"flushed": func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() },
	} {
		var counted []int
		h := around(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if try(w) == nil {
				t.Errorf("%s: no error", name)
			}
			w.WriteHeader(http.StatusUnauthorized)
		}), local(t, few(9)), middleware.Everyone(), middleware.WithCounted(func(status int) bool {
			counted = append(counted, status)
			return true
		}))
		w := httptest.NewRecorder()
		h.ServeHTTP(struct{ http.ResponseWriter }{w}, httptest.NewRequest(http.MethodGet, "/", nil))
		if len(counted) != 1 || counted[0] != http.StatusUnauthorized || w.Code != http.StatusUnauthorized {
			t.Errorf("%s: %v is counted, and the client gets %d", name, counted, w.Code)
		}
	}
}

// TestTiersOfAMulti: each part has a tier of its own, or none.
func TestTiersOfAMulti(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	var parts []limiter.Part
	for _, name := range []string{"a", "b"} {
		lim, err := limiter.New(rdb, few(5), limiter.WithPrefix(name), limiter.WithShare(1), limiter.WithBudget(5*time.Second),
			limiter.WithBreaker(breaker.Settings{MinRequests: 1, OpenMin: time.Hour, OpenMax: time.Hour}), limiter.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lim.Close() })
		parts = append(parts, limiter.Part{Name: name, Limiter: lim})
	}
	m, err := limiter.NewMulti(parts...)
	if err != nil {
		t.Fatal(err)
	}
	pro := func(r *http.Request) limiter.Limit {
		if r.Header.Get("Plan") == "pro" {
			return few(2)
		}
		return limiter.Limit{}
	}
	h := wrap(t, m, middleware.Header("X-User"), middleware.WithTier(nil, pro))
	for i, want := range []int{200, 200, 429} {
		if resp := get(h, with("X-User", "u"), with("Plan", "pro")); resp.StatusCode != want || items(t, resp, "RateLimit-Policy")["b"]["q"] != 2 {
			t.Errorf("%d: %d, %v", i, resp.StatusCode, resp.Header)
		}
	}
	if resp := get(h, with("X-User", "u")); resp.StatusCode != 200 || items(t, resp, "RateLimit-Policy")["b"]["q"] != 5 {
		t.Errorf("without a plan: %d, %v", resp.StatusCode, resp.Header)
	}
	for _, opts := range [][]middleware.Option{{middleware.WithTier(pro)}, {middleware.WithTier(pro, pro, pro)}} {
		if _, err := middleware.New(m, middleware.Everyone(), opts...); !errors.Is(err, limiter.ErrInvalidConfig) || !strings.Contains(err.Error(), "each part") {
			t.Error(err)
		}
	}
	if _, err := middleware.New(local(t, few(1)), middleware.Everyone(), middleware.WithTier(pro, pro)); !errors.Is(err, limiter.ErrInvalidConfig) {
		t.Error(err)
	}
	if _, err := middleware.New(failing{}, middleware.Everyone(), middleware.WithCounted(func(int) bool { return true })); !errors.Is(err, limiter.ErrInvalidConfig) {
		t.Error(err)
	}
}

// TestTiersFitWhateverThePartsAllow: New compares the numbers of tiers and parts. It does not ask
// Redis, no hook sees it, and it rejects no tier because of what the options of a part allow.
func TestTiersFitWhateverThePartsAllow(t *testing.T) {
	dials, seen := 0, 0
	rdb := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
		dials++
		return nil, errors.New("there is no Redis")
	}})
	t.Cleanup(func() { _ = rdb.Close() })
	wide := limiter.TokenBucket(limiter.PerHour(100), 100)
	lim, err := limiter.New(rdb, wide, limiter.WithCriticalHeadroom(0.9), limiter.WithHooks(limiter.Hooks{
		Decision: func(context.Context, limiter.DecisionInfo) { seen++ },
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	multi, err := limiter.NewMulti(limiter.Part{Name: "a", Limiter: lim})
	if err != nil {
		t.Fatal(err)
	}
	tier := func(*http.Request) limiter.Limit { return wide }
	if _, err := middleware.New(multi, middleware.Everyone(), middleware.WithTier(tier)); err != nil {
		t.Error(err)
	}
	if _, err := middleware.New(multi, middleware.Everyone(), middleware.WithTier(tier, tier)); !errors.Is(err, limiter.ErrInvalidConfig) {
		t.Errorf("two tiers for one part: %v", err)
	}
	if dials+seen > 0 {
		t.Errorf("New dialled %d times, and a hook saw %d decisions", dials, seen)
	}
}
