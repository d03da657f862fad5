package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
)

func ExampleNew() {
	lim, err := limiter.NewLocal(limiter.FixedWindow(limiter.Per(1, 300*time.Hour)))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	limit, err := middleware.New(lim, middleware.APIKey(), middleware.WithPolicy("free"))
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	for range 2 {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-API-Key", "secret")
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"), w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 "free";q=1;w=1080000 0
	// 429 "free";q=1;w=1080000 0
}

func ExampleJoin() {
	lim, err := limiter.NewLocal(limiter.GCRA(limiter.PerHour(10), 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	// Per customer and route, not one for all routes of a customer.
	limit, err := middleware.New(lim, middleware.Join(middleware.Header("X-Customer"), middleware.PathValue("route")))
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/{route}", limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	for _, path := range []string{"/a", "/b", "/a"} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", path, nil)
		r.Header.Set("X-Customer", "42")
		mux.ServeHTTP(w, r)
		fmt.Println(path, w.Code)
	}
	// Output:
	// /a 200
	// /b 200
	// /a 429
}
