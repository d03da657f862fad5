package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
)

// TestChi: a router of others takes the middleware as its own, for all routes and for
// one, where its wildcards are keys.
func TestChi(t *testing.T) {
	limited := func(n int, key middleware.Key, policy string) func(http.Handler) http.Handler {
		t.Helper()
		lim, err := limiter.NewLocal(limiter.FixedWindow(limiter.Per(n, 300*time.Hour)))
		if err != nil {
			t.Fatal(err)
		}
		mw, err := middleware.New(lim, key, middleware.WithPolicy(policy))
		if err != nil {
			t.Fatal(err)
		}
		return mw
	}
	ok := func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) }
	r := chi.NewRouter()
	r.Use(limited(5, middleware.RemoteIP(), "address"))
	r.With(limited(1, middleware.PathValue("tenant"), "tenant")).Get("/tenants/{tenant}", ok)
	r.Get("/other", ok)
	get := func(path string) *http.Response {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Result()
	}
	for i, want := range []struct {
		path   string
		status int
	}{
		{"/tenants/a", 204}, {"/tenants/a", 429}, {"/tenants/b", 204}, {"/other", 204}, {"/nowhere", 404}, {"/other", 429},
	} {
		if resp := get(want.path); resp.StatusCode != want.status || len(resp.Header.Values("RateLimit")) == 0 {
			t.Errorf("%d: %s: %s, RateLimit %q, want %d", i, want.path, resp.Status, resp.Header.Values("RateLimit"), want.status)
		}
	}
}
