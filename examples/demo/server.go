package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/holdfast-go/holdfast/middleware"
)

//go:embed assets
var assets embed.FS

// endpoint is a handler of the API. Its error is a *problem, or ours.
type endpoint func(w http.ResponseWriter, r *http.Request) error

// handler serves the page and its API. loopback says that nothing but this machine
// should be able to ask.
func (a *app) handler(loopback bool) (http.Handler, error) {
	files, err := fs.Sub(assets, "assets")
	if err != nil {
		return nil, err
	}
	// It sends no headers until it rejects: what is announced are the limits of the cards.
	limit, err := middleware.New(a.own, middleware.RemoteIP(), middleware.WithPolicy("page"), middleware.WithHeaders(middleware.RetryAfter))
	if err != nil {
		return nil, err
	}
	api := http.NewServeMux()
	for _, e := range []struct {
		method, path string
		do           endpoint
	}{
		{http.MethodPost, "/api/attempt", a.attempt},
		{http.MethodPost, "/api/burst", a.burst},
		{http.MethodPost, "/api/boundary", a.boundary},
		{http.MethodPut, "/api/limit", a.changeLimit},
		{http.MethodPost, "/api/reset", a.reset},
		{http.MethodPost, "/api/outage", a.doOutage},
		{http.MethodPost, "/api/fleet", a.doFleet},
		{http.MethodPost, "/api/wait", a.doWait},
		{http.MethodGet, "/api/state", a.state},
		{http.MethodGet, "/api/events", a.events},
	} {
		api.Handle(e.path, only(e.method, e.do))
	}
	api.Handle("/", endpoint(func(_ http.ResponseWriter, r *http.Request) error {
		return broken(http.StatusNotFound, "path", quoted(r.URL.Path), "is not part of the API")
	}))
	root := http.NewServeMux()
	root.Handle("/api/", preferring(sameSite(limit(api))))
	root.Handle("/", only(http.MethodGet, func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Cache-Control", "no-cache")
		http.FileServerFS(files).ServeHTTP(w, r)
		return nil
	}))
	var h http.Handler = root
	if loopback {
		h = ownHost(h)
	}
	return secure(h), nil
}

// preferring answers problems with status 200 to who prefers that (RFC 7240): browsers
// write any status from 400 on into their consoles in red, and on this page a denial is
// what one came to see. The body is the same, and names the status.
func preferring(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Prefer") == "status=200" {
			w = okWriter{w}
		}
		next.ServeHTTP(w, r)
	})
}

type okWriter struct{ http.ResponseWriter }

func (w okWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w okWriter) WriteHeader(status int) {
	if status >= 400 && status < 500 {
		status = http.StatusOK
		w.Header().Set("Preference-Applied", "status=200")
	}
	w.ResponseWriter.WriteHeader(status)
}

// only rejects other methods. HEAD is allowed as GET is.
func only(method string, do endpoint) http.Handler {
	return endpoint(func(w http.ResponseWriter, r *http.Request) error {
		if r.Method == method || method == http.MethodGet && r.Method == http.MethodHead && !strings.HasPrefix(r.URL.Path, "/api/") {
			return do(w, r)
		}
		w.Header().Set("Allow", method)
		return broken(http.StatusMethodNotAllowed, "method", quoted(r.Method), "must be "+method)
	})
}

// ServeHTTP turns errors, and panics, into problems. What went wrong inside is logged for
// who runs the program.
func (e endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if v := recover(); v != nil {
			if v == http.ErrAbortHandler {
				panic(v) // net/http closes the connection by it
			}
			internal(w, fmt.Errorf("%s %s: panic: %v\n%s", r.Method, r.URL.Path, v, debug.Stack()))
		}
	}()
	err := e(w, r)
	if err == nil || r.Context().Err() != nil {
		return
	}
	if p, ok := errors.AsType[*problem](err); ok {
		p.write(w)
		return
	}
	internal(w, fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, err))
}

func internal(w http.ResponseWriter, err error) {
	complain(err)
	p := problem{Type: "about:blank", Title: "Internal Server Error", Status: http.StatusInternalServerError, Detail: "it did not work; the terminal says why"}
	p.write(w)
}
