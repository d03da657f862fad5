package analytics_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/analytics"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/sampled"
	"github.com/holdfast-go/holdfast/semaphore"
)

// want checks the counts of one key.
func want(t *testing.T, top *analytics.Top, key string, denied, units, allowed int64) {
	t.Helper()
	k, ok := byKey(top.Report(10), key)
	if ok != (denied > 0) || k.Denied != denied || k.DeniedUnits != units || k.Allowed != allowed || k.Error != 0 {
		t.Errorf("%s: %+v, want %d denied of %d units, %d allowed", key, k, denied, units, allowed)
	}
}

func TestLocal(t *testing.T) {
	top := newTop(t, 10)
	lim := newLocal(t, limiter.GCRA(limiter.PerHour(1), 10), limiter.WithHooks(top.Hooks()))
	for range 3 {
		_, err := lim.AllowN(t.Context(), "a", 4) // the third is denied
		must(t, err)
	}
	for _, n := range []int{4, 1, 0, 11, -1} { // denied, allowed, a look, an error, an error
		_, _ = lim.AllowN(t.Context(), "a", n)
	}
	want(t, top, "a", 2, 8, 1)
	want(t, top, "b", 0, 0, 0)
}

// TestRedis: a Limiter, whose denials come from Redis and then from its cache.
func TestRedis(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	top := newTop(t, 10)
	limit := limiter.GCRA(limiter.PerHour(1), 2)
	lim, err := limiter.New(rdb, limit, patient, alone, quiet, limiter.WithHooks(top.Hooks()))
	must(t, err)
	defer lim.Close()
	other, err := limiter.New(rdb, limit, patient, alone, quiet)
	must(t, err)
	defer other.Close()
	_, err = other.AllowN(t.Context(), "a", 2)
	must(t, err)
	from := make(map[limiter.Source]int)
	for range 100 {
		res, err := lim.Allow(t.Context(), "a")
		must(t, err)
		if !res.Allowed {
			from[res.Source]++
		}
	}
	if from[limiter.SourceRedis] == 0 || from[limiter.SourceCache] == 0 {
		t.Errorf("denied by %v, want Redis and the cache", from)
	}
	want(t, top, "a", 100, 100, 0)
	_, err = lim.Peek(t.Context(), "a")
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lim.Allow(ctx, "a"); err == nil {
		t.Error("no error")
	}
	want(t, top, "a", 100, 100, 0)
}

// TestMulti: a part that had room is not said to have denied.
func TestMulti(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	part := func(name string, burst int, top *analytics.Top) limiter.Part {
		lim, err := limiter.New(rdb, limiter.GCRA(limiter.PerHour(1), burst), patient, alone, quiet, limiter.WithPrefix(name), limiter.WithHooks(top.Hooks()))
		must(t, err)
		t.Cleanup(func() { _ = lim.Close() })
		return limiter.Part{Name: name, Limiter: lim}
	}
	small, large := newTop(t, 10), newTop(t, 10)
	multi, err := limiter.NewMulti(part("small", 1, small), part("large", 100, large))
	must(t, err)
	for i := range 5 {
		res, err := multi.Allow(t.Context(), "a")
		must(t, err)
		if res.Allowed != (i == 0) {
			t.Fatalf("%d: %+v", i, res)
		}
	}
	want(t, small, "a", 4, 4, 0)
	want(t, large, "a", 0, 0, 0)
}

func TestSemaphore(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	top := newTop(t, 10)
	sem, err := semaphore.New(rdb, 1, patient, alone, quiet, limiter.WithHooks(top.Hooks()))
	must(t, err)
	defer sem.Close()
	permit, err := sem.TryAcquire(t.Context(), "a")
	must(t, err)
	for range 3 {
		denied, err := sem.TryAcquire(t.Context(), "a")
		must(t, err)
		if denied.Allowed {
			t.Fatal("two permits of one")
		}
	}
	must(t, permit.Release())
	permit, err = sem.TryAcquire(t.Context(), "a")
	must(t, err)
	must(t, permit.Release())
	want(t, top, "a", 3, 3, 1)
}

func TestSampled(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	top := newTop(t, 10)
	lim, err := sampled.New(rdb, limiter.PerSecond(5), patient, alone, quiet, sampled.WithInterval(time.Minute), limiter.WithHooks(top.Hooks()))
	must(t, err)
	defer lim.Close()
	var denied, after int64
	for range 1000 {
		res, err := lim.Allow(t.Context(), "a")
		must(t, err)
		switch {
		case !res.Allowed:
			denied++
		case denied > 0:
			after++
		}
	}
	if denied == 0 {
		t.Error("nothing was denied")
	}
	want(t, top, "a", denied, denied, after)
}

// TestMiddleware: the keys are those that the middleware made, and the handler is next
// to what is limited.
func TestMiddleware(t *testing.T) {
	top := newTop(t, 10)
	lim := newLocal(t, limiter.GCRA(limiter.PerHour(1), 1), limiter.WithHooks(top.Hooks()))
	limit, err := middleware.New(lim, middleware.RemoteIP())
	must(t, err)
	mux := http.NewServeMux()
	mux.Handle("/", limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	mux.Handle("/debug/limits", top)
	codes := make(map[int]int)
	for range 10 {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "192.0.2.1:1234"
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		codes[w.Code]++
	}
	if codes[200] != 1 || codes[429] != 9 {
		t.Errorf("%v", codes)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", "/debug/limits?n=1", nil))
	if w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	want(t, top, "192.0.2.1", 9, 9, 0)
}
