package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestGuards: other sites cannot press the buttons, or listen.
func TestGuards(t *testing.T) {
	_, srv := alone(t)
	host := strings.TrimPrefix(srv.URL, "http://")
	port := host[strings.LastIndexByte(host, ':'):]
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	asHost := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	for _, c := range []struct {
		what   string
		method string
		change []func(*http.Request)
		status int
	}{
		{"a program", "POST", nil, 200},
		{"the page", "POST", []func(*http.Request){header("Sec-Fetch-Site", "same-origin"), header("Origin", srv.URL)}, 200},
		{"an old browser", "POST", []func(*http.Request){header("Origin", srv.URL)}, 200},
		{"another site", "POST", []func(*http.Request){header("Sec-Fetch-Site", "cross-site"), header("Origin", "https://evil.example")}, 403},
		{"another port of this machine", "POST", []func(*http.Request){header("Sec-Fetch-Site", "same-site"), header("Origin", "http://127.0.0.1:1")}, 403},
		{"another site by an old browser", "POST", []func(*http.Request){header("Origin", "https://evil.example")}, 403},
		{"a sandbox by an old browser", "POST", []func(*http.Request){header("Origin", "null")}, 403},
		{"another site that reads", "GET", []func(*http.Request){header("Sec-Fetch-Site", "cross-site")}, 403},
		{"a name that was bound to this machine", "GET", []func(*http.Request){asHost("evil.example" + port)}, 421},
		{"localhost", "GET", []func(*http.Request){asHost("localhost" + port)}, 200},
		{"localhost without a port", "GET", []func(*http.Request){asHost("LOCALHOST")}, 200},
		{"IPv6", "GET", []func(*http.Request){asHost("[::1]" + port)}, 200},
		{"an address that is not loopback", "GET", []func(*http.Request){asHost("192.0.2.1" + port)}, 421},
		{"a name that begins alike", "GET", []func(*http.Request){asHost("localhost.evil.example")}, 421},
	} {
		path, body := "/api/state", ""
		if c.method == "POST" {
			path, body = "/api/attempt", `{"algorithm":"gcra"}`
		}
		resp, answer := request(t, srv, c.method, path, body, c.change...)
		if resp.StatusCode != c.status {
			t.Errorf("%s: %d %s", c.what, resp.StatusCode, answer)
		}
		if c.status >= 400 && resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %v", c.what, resp.Header)
		}
		if resp.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: may read", c.what)
		}
	}
}

// TestAssets: the page is whole, needs nobody else, and runs no script of others.
func TestAssets(t *testing.T) {
	_, srv := alone(t)
	for path, kind := range map[string]string{
		"/": "text/html", "/style.css": "text/css", "/app.js": "text/javascript", "/cards.js": "text/javascript", "/favicon.svg": "image/svg+xml",
	} {
		resp, body := request(t, srv, "GET", path, "")
		if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), kind) || body == "" {
			t.Errorf("%s: %d %v", path, resp.StatusCode, resp.Header)
		}
		policy := resp.Header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, resp.Header)
		}
		for _, foreign := range []string{"https://", "//cdn", "@import", "style=\"", "onclick"} {
			if strings.Contains(body, foreign) {
				t.Errorf("%s has %q", path, foreign)
			}
		}
	}
	if resp, _ := request(t, srv, "GET", "/nothing", ""); resp.StatusCode != 404 {
		t.Errorf("%d", resp.StatusCode)
	}
	if resp, _ := request(t, srv, "HEAD", "/", ""); resp.StatusCode != 200 {
		t.Errorf("%d", resp.StatusCode)
	}
}

// TestInternalErrorsAreNotShown: what goes wrong inside is not told to who asked.
func TestInternalErrorsAreNotShown(t *testing.T) {
	for what, e := range map[string]endpoint{
		"an error": func(http.ResponseWriter, *http.Request) error { return errors.New("secret in main.go:7") },
		"a panic":  func(http.ResponseWriter, *http.Request) error { panic("secret in goroutine 1 [running]") },
	} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/api/state", nil))
		body, _ := io.ReadAll(w.Result().Body)
		if w.Code != 500 || strings.Contains(string(body), "secret") || w.Result().Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", what, w.Code, body)
		}
	}
}
