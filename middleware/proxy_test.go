package middleware_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
)

// TestReverseProxy: of a limit of ours and one of the upstream the older headers tell one,
// as of middlewares around each other, and RateLimit both.
func TestReverseProxy(t *testing.T) {
	for _, prefix := range []string{"X-Ratelimit-", "Ratelimit-"} {
		testReverseProxy(t, prefix)
	}
}

func testReverseProxy(t *testing.T, prefix string) {
	hours := func(n int) limiter.Limit { return limiter.FixedWindow(limiter.Per(n, 300*time.Hour)) }
	for name, c := range map[string]struct {
		upstream map[string]string
		status   int
		want     string // limit and what remains
	}{
		"nothing said":          {nil, 200, "[5] [4]"},
		"upstream has more":     {map[string]string{"Limit": "100", "Remaining": "50", "Reset": "7"}, 200, "[5] [4]"},
		"as much":               {map[string]string{"Limit": "100", "Remaining": "4", "Reset": "7"}, 200, "[5] [4]"},
		"upstream has less":     {map[string]string{"Limit": "100", "Remaining": "3", "Reset": "7"}, 200, "[100] [3]"},
		"upstream refused":      {map[string]string{"Limit": "100", "Remaining": "30", "Reset": "7"}, 429, "[100] [30]"},
		"refused without words": {nil, 429, "[5] [4]"},
		"no limit":              {map[string]string{"Remaining": "3"}, 200, "[] [3]"},
		"garbage":               {map[string]string{"Limit": "100", "Remaining": "some"}, 200, "[5] [4]"},
	} {
		upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for name, v := range c.upstream {
				w.Header().Set(prefix+name, v)
			}
			w.Header().Set("RateLimit", `"upstream";r=50;t=7`)
			w.WriteHeader(c.status)
		}))
		u, _ := url.Parse(upstream.URL)
		rp := &httputil.ReverseProxy{
			Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(u) },
			Transport:      new(http.Transport),
			ErrorLog:       log.New(io.Discard, "", 0),
			ModifyResponse: func(resp *http.Response) error { resp.Header.Set("Modified", "yes"); return nil },
		}
		mw, err := middleware.New(local(t, hours(5)), middleware.Everyone(), middleware.WithHeaders(middleware.DefaultHeaders|middleware.RateLimitDraft6))
		if err != nil {
			t.Fatal(err)
		}
		resp := get(mw(middleware.ReverseProxy(rp)))
		if got := fmt.Sprint(resp.Header[prefix+"Limit"], " ", resp.Header[prefix+"Remaining"]); got != c.want || resp.StatusCode != c.status {
			t.Errorf("%s: %d %s, want %s", name, resp.StatusCode, got, c.want)
		}
		if n := len(items(t, resp, "RateLimit")); n != 2 || resp.Header.Get("Modified") != "yes" {
			t.Errorf("%s: %v", name, resp.Header)
		}
		// Where the middleware says nothing, the upstream is passed on.
		resp = get(middleware.ReverseProxy(rp))
		if got, want := resp.Header.Get(prefix+"Remaining"), c.upstream["Remaining"]; got != want {
			t.Errorf("%s, alone: %q, want %q", name, got, want)
		}
		rp.ModifyResponse = func(*http.Response) error { return errors.New("no") }
		if resp := get(mw(middleware.ReverseProxy(rp))); resp.StatusCode != 502 || resp.Header.Get(prefix+"Remaining") != "3" {
			t.Errorf("%s, not modified: %d %v", name, resp.StatusCode, resp.Header)
		}
		rp.Transport.(*http.Transport).CloseIdleConnections()
		upstream.Close()
	}
}

// TestReverseProxyKeepsHeaders: after an early hint httputil.ReverseProxy forgets what was set before it.
func TestReverseProxyKeepsHeaders(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		if r.URL.Path == "/fails" {
			panic(http.ErrAbortHandler)
		}
	}))
	defer upstream.Close()
	u, _ := url.Parse(upstream.URL)
	mw, err := middleware.New(local(t, limiter.FixedWindow(limiter.PerHour(5))), middleware.Everyone())
	if err != nil {
		t.Fatal(err)
	}
	handles := func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusTeapot) }
	for name, c := range map[string]struct {
		path    string
		handler func(http.ResponseWriter, *http.Request, error)
		status  int
	}{
		"a response":           {"/", handles, 200},
		"an error":             {"/fails", nil, 502},
		"an error, handled":    {"/fails", handles, 418},
		"a response, as it is": {"/", nil, 200},
	} {
		rp := &httputil.ReverseProxy{
			Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(u) },
			ErrorLog:     log.New(io.Discard, "", 0),
			ErrorHandler: c.handler,
		}
		front := httptest.NewServer(mw(middleware.ReverseProxy(rp)))
		resp, err := front.Client().Get(front.URL + c.path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.status || resp.Header.Get("RateLimit") == "" || resp.Header.Get("X-RateLimit-Limit") != "5" {
			t.Errorf("%s: %d %v", name, resp.StatusCode, resp.Header)
		}
		front.Close()
	}
}

// TestErrorOfAProxyIsLogged: as httputil.ReverseProxy does by itself, where the proxy says or to the log of the process.
func TestErrorOfAProxyIsLogged(t *testing.T) {
	var own, all bytes.Buffer
	defer func(to io.Writer) { log.SetOutput(to) }(log.Writer())
	log.SetOutput(&all)
	for _, to := range []*log.Logger{nil, log.New(&own, "", 0)} {
		own.Reset()
		all.Reset()
		get(middleware.ReverseProxy(&httputil.ReverseProxy{
			Rewrite:   func(*httputil.ProxyRequest) {},
			Transport: fails{},
			ErrorLog:  to,
		}))
		const said = "http: proxy error: no upstream\n"
		if to != nil && own.String() != said || (to == nil) != strings.HasSuffix(all.String(), said) {
			t.Errorf("its log has %q, that of the process %q", own.String(), all.String())
		}
	}
}

type fails struct{}

func (fails) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("no upstream") }
