package main

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// route is one path of the API and how it rejects.
type route struct {
	method, path string
	refusals     int
	status       int
	header       func() map[string]string
}

func (r route) String() string { return r.method + " " + r.path }

// api is the service of a third party, with every bad habit.
type api struct {
	routes []route
	url    string
	server *http.Server

	mu    sync.Mutex
	calls map[string]int
}

func headers(pairs ...string) func() map[string]string {
	return func() map[string]string {
		h := make(map[string]string)
		for i := 0; i < len(pairs); i += 2 {
			h[pairs[i]] = pairs[i+1]
		}
		return h
	}
}

// in returns headers with one that depends on the time.
func in(d time.Duration, name string, format func(time.Time) string, more ...string) func() map[string]string {
	return func() map[string]string {
		h := headers(more...)()
		h[name] = format(time.Now().Add(d))
		return h
	}
}

func httpDate(t time.Time) string { return t.UTC().Format(http.TimeFormat) }
func unix(t time.Time) string     { return fmt.Sprint(t.Unix()) }

func routes() []route {
	return []route{
		{"GET", "/seconds", 1, 429, headers("Retry-After", "1")},
		{"GET", "/date", 1, 503, in(2*time.Second, "Retry-After", httpDate)},
		{"GET", "/milliseconds", 1, 429, headers("Retry-After-Ms", "700")},
		{"GET", "/ratelimit", 1, 429, headers("RateLimit", `"burst";r=0;t=1`)},
		{"GET", "/reset-epoch", 1, 429, in(2*time.Second, "X-RateLimit-Reset", unix, "X-RateLimit-Remaining", "0")},
		{"GET", "/reset-delta", 1, 429, headers("X-RateLimit-Reset", "1", "X-RateLimit-Remaining", "0")},
		{"GET", "/duration", 1, 429, headers("X-RateLimit-Reset-Requests", "800ms", "X-RateLimit-Remaining-Requests", "0")},
		{"GET", "/forbidden", 1, 403, headers("Retry-After", "1")},
		{"GET", "/nothing-said", 1, 503, headers()},
		{"GET", "/garbage", 1, 429, headers("Retry-After", "soon")},
		{"GET", "/too-large", 1, 429, headers("Retry-After", "9223372036854775807")},
		{"GET", "/tomorrow", 1, 429, headers("Retry-After", "86400")},
		{"GET", "/never-well", 9, 502, headers()},
		{"POST", "/refused", 1, 429, headers("Retry-After", "1")},
		{"POST", "/may-be-done", 1, 500, headers()},
	}
}

// crowded is the path that many call at once.
var crowded = route{"GET", "/crowd", 1, 429, headers("Retry-After", "2")}

// startAPI serves the API on a listener.
func startAPI(l net.Listener) *api {
	a := &api{routes: routes(), url: "http://" + l.Addr().String(), calls: make(map[string]int)}
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: time.Minute}
	go func() { _ = a.server.Serve(l) }()
	return a
}

func (a *api) close() { _ = a.server.Close() }

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.calls[r.URL.Path]++
	n := a.calls[r.URL.Path]
	a.mu.Unlock()
	for _, route := range append(a.routes, crowded) {
		if route.path != r.URL.Path || n > route.refusals {
			continue
		}
		for name, value := range route.header() {
			w.Header().Set(name, value)
		}
		w.WriteHeader(route.status)
		fmt.Fprintln(w, strings.Repeat("no ", 1000))
		return
	}
	fmt.Fprintln(w, "fine")
}
