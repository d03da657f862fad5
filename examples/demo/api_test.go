package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/demo"
)

// request sends a body as JSON and returns what came back.
func request(t *testing.T, srv *httptest.Server, method, path, body string, change ...func(*http.Request)) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, f := range change {
		f(req)
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(answer)
}

// ask is request for what must succeed, into v.
func askFor(t *testing.T, srv *httptest.Server, method, path, body string, v any, change ...func(*http.Request)) *http.Response {
	t.Helper()
	resp, answer := request(t, srv, method, path, body, change...)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s %s: %d %s", method, path, body, resp.StatusCode, answer)
	}
	if err := json.Unmarshal([]byte(answer), v); err != nil {
		t.Fatal(err)
	}
	return resp
}

// alone is a demo with the embedded Redis, for what does not depend on the server.
func alone(t *testing.T, change ...func(*config)) (*app, *httptest.Server) {
	t.Helper()
	// No decision is made without Redis because the machine is busy.
	return startDemo(t, demo.StartEmbedded, append([]func(*config){func(c *config) { c.budget = 5 * time.Second }}, change...)...)
}

// TestAttempt: a decision, with the standard headers, and a problem when it is denied.
func TestAttempt(t *testing.T) {
	t.Parallel()
	_, srv := alone(t, calm)
	for _, alg := range algorithms {
		t.Run(alg.Slug, func(t *testing.T) {
			var s cardState
			limit := `{"algorithm":"` + alg.Slug + `","limit":1,"seconds":30}`
			if !alg.Window {
				limit = `{"algorithm":"` + alg.Slug + `","limit":1,"seconds":30,"burst":4}`
			}
			askFor(t, srv, "PUT", "/api/limit", limit, &s)
			if s.Settings.Limit != 1 || s.Settings.Seconds != 30 {
				t.Fatalf("%+v", s)
			}
			size := max(1, s.Settings.Burst)
			denied := 0
			for range 2*size + 2 { // a window may end meanwhile
				resp, answer := request(t, srv, "POST", "/api/attempt", `{"algorithm":"`+alg.Slug+`"}`)
				for _, name := range []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
					if resp.Header.Get(name) == "" {
						t.Errorf("no %s in %v", name, resp.Header)
					}
				}
				if !strings.HasPrefix(resp.Header.Get("RateLimit"), `"`+alg.Slug+`"`) {
					t.Errorf("RateLimit: %s", resp.Header.Get("RateLimit"))
				}
				var d decision
				var p problem
				switch resp.StatusCode {
				case http.StatusOK:
					if err := json.Unmarshal([]byte(answer), &d); err != nil || !d.Allowed || d.Cost != 1 || d.Source != "redis" {
						t.Errorf("%v: %s", err, answer)
					}
				case http.StatusTooManyRequests:
					denied++
					if err := json.Unmarshal([]byte(answer), &p); err != nil || p.Decision == nil || p.Decision.Allowed || p.Decision.RetryAfterMs <= 0 ||
						fmt.Sprint(p.Violated) != "["+alg.Slug+"]" || resp.Header.Get("Retry-After") == "" || resp.Header.Get("Content-Type") != "application/problem+json" {
						t.Errorf("%v: %v %s", err, resp.Header, answer)
					}
				default:
					t.Errorf("%d %s", resp.StatusCode, answer)
				}
			}
			if denied < 1 {
				t.Error("nothing was denied")
			}
		})
	}
}

// TestBurstsAndReset: what a card tells of its bursts is what its counters say, and
// the reset makes all as if never used.
func TestBurstsAndReset(t *testing.T) {
	t.Parallel()
	a, srv := alone(t, calm)
	var wg sync.WaitGroup
	for _, c := range a.cards {
		wg.Go(func() {
			limit := `{"algorithm":"` + c.Slug + `","limit":10,"seconds":8,"burst":10}` // a busy machine needs more than two seconds
			if c.Window {
				limit = strings.Replace(limit, `,"burst":10`, "", 1)
			}
			askFor(t, srv, "PUT", "/api/limit", limit, &cardState{})
			var b boundaryBurst
			resp := askFor(t, srv, "POST", "/api/boundary", `{"algorithm":"`+c.Slug+`"}`, &b)
			want := 10
			if c.Slug == "fixed-window" {
				want = 20
			}
			// A bucket produces while it is asked.
			most := want + 1 + int(float64(b.Limit)*b.SpanMs/ms(c.settings().window()))
			if !b.OnTime || !b.Alike || b.Admitted < want || b.Admitted > most || b.Admitted != b.Before+b.After || resp.Header.Get("RateLimit") == "" {
				t.Errorf("%s: %+v", c.Slug, b)
			}
			if s := c.state(); s.Allowed != b.Admitted || s.Allowed+s.Denied != 20 {
				t.Errorf("%s: %+v after %+v", c.Slug, s, b)
			}
		})
	}
	wg.Wait()
	var done struct{ Reset, Redis bool }
	askFor(t, srv, "POST", "/api/reset", `{}`, &done)
	if !done.Reset || !done.Redis {
		t.Errorf("%+v", done)
	}
	first, second := a.cards[0], a.cards[1]
	askFor(t, srv, "POST", "/api/attempt", `{"algorithm":"`+first.Slug+`"}`, &decision{})
	askFor(t, srv, "POST", "/api/attempt", `{"algorithm":"`+second.Slug+`"}`, &decision{})
	askFor(t, srv, "POST", "/api/reset", `{"algorithm":"`+first.Slug+`"}`, &done)
	if a, b := first.state(), second.state(); a.Allowed != 0 || b.Allowed != 1 {
		t.Errorf("after the reset of the first: %+v, %+v", a, b)
	}
	askFor(t, srv, "POST", "/api/reset", `{"algorithm":"`+second.Slug+`"}`, &done)
	for _, c := range a.cards {
		if s := c.state(); s.Allowed != 0 || s.Denied != 0 || len(s.Decisions) != 0 {
			t.Errorf("%+v", s)
		}
	}
	var b struct {
		Sent, Allowed, Denied int
		Decisions             []decision
	}
	askFor(t, srv, "POST", "/api/burst", `{"algorithm":"sliding-log","n":12}`, &b)
	if b.Sent != 12 || b.Allowed != 10 || b.Denied != 2 || len(b.Decisions) != 12 {
		t.Errorf("%+v", b)
	}
}

// TestPreference: who prefers status 200 gets the same problem with it, as browsers show
// other statuses as errors.
func TestPreference(t *testing.T) {
	_, srv := alone(t)
	prefer := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Prefer", value) }
	}
	for _, c := range []struct {
		method, path, body, prefer string
		status                     int
		applied                    string
	}{
		{"POST", "/api/burst", `{"algorithm":"gcra","n":0}`, "", 400, ""},
		{"POST", "/api/burst", `{"algorithm":"gcra","n":0}`, "status=404", 400, ""},
		{"POST", "/api/burst", `{"algorithm":"gcra","n":0}`, "status=200", 200, "status=200"},
		{"POST", "/api/burst", `{"algorithm":"gcra","n":12}`, "status=200", 200, ""},
	} {
		resp, answer := request(t, srv, c.method, c.path, c.body, prefer(c.prefer))
		if isProblem := strings.Contains(answer, `"title"`); resp.StatusCode != c.status || resp.Header.Get("Preference-Applied") != c.applied || isProblem != strings.Contains(c.body, ":0") {
			t.Errorf("%+v: %d %v %s", c, resp.StatusCode, resp.Header, answer)
		}
	}
	var p problem
	resp := askFor(t, srv, "POST", "/api/attempt", `{"algorithm":"gcra","n":10}`, &p, prefer("status=200"))
	if p.Decision == nil || p.Decision.Allowed || p.Status != 429 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%+v %v", p, resp.Header)
	}
}

// TestConstructors: the line of Go that a card shows calls what package limiter has.
func TestConstructors(t *testing.T) {
	api, err := os.ReadFile("../../api/limiter.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, alg := range algorithms {
		if !strings.Contains(string(api), "\nfunc "+alg.Func+"(rate Rate") {
			t.Errorf("%s: there is no limiter.%s of a rate", alg.Name, alg.Func)
		}
	}
}

// TestBadInput: what is wrong is answered with a problem that names it.
func TestBadInput(t *testing.T) {
	_, srv := alone(t)
	const gcra = `"algorithm":"gcra"`
	for _, c := range []struct {
		method, path, body string
		status             int
		field              string
	}{
		{"POST", "/api/attempt", `{"algorithm":"magic"}`, 400, "algorithm"},
		{"POST", "/api/attempt", `{"algorithm":"` + strings.Repeat("x", 1000) + `"}`, 400, "algorithm"},
		{"POST", "/api/attempt", `{}`, 400, "algorithm"},
		{"POST", "/api/attempt", `{"algorithm":7}`, 400, "algorithm"},
		{"POST", "/api/attempt", `{` + gcra + `,"n":0}`, 400, "n"},
		{"POST", "/api/attempt", `{` + gcra + `,"n":-1}`, 400, "n"},
		{"POST", "/api/attempt", `{` + gcra + `,"n":11}`, 400, "n"},
		{"POST", "/api/attempt", `{` + gcra + `,"n":1.5}`, 400, "n"},
		{"POST", "/api/attempt", `{` + gcra + `,"n":"1"}`, 400, "n"},
		{"POST", "/api/attempt", `{` + gcra + `,"n":1e99}`, 400, "n"},
		{"POST", "/api/attempt", `{` + gcra + `,"price":1}`, 400, "price"},
		{"POST", "/api/attempt", `{` + gcra + `} {}`, 400, "body"},
		{"POST", "/api/attempt", `[]`, 400, "body"},
		{"POST", "/api/attempt", `{"algorithm"`, 400, "body"},
		{"POST", "/api/attempt", `{"algorithm":"` + strings.Repeat("x", maxBody) + `"}`, 413, "body"},
		{"POST", "/api/burst", `{` + gcra + `,"n":51}`, 400, "n"},
		{"POST", "/api/burst", `{"algorithm":"?"}`, 400, "algorithm"},
		{"POST", "/api/boundary", `{"algorithm":"?"}`, 400, "algorithm"},
		{"POST", "/api/boundary", `{` + gcra + `,"n":1}`, 400, "n"},
		{"PUT", "/api/limit", `{"algorithm":"?"}`, 400, "algorithm"},
		{"PUT", "/api/limit", `{` + gcra + `,"seconds":1,"burst":1}`, 400, "limit"},
		{"PUT", "/api/limit", `{` + gcra + `,"limit":0,"seconds":1,"burst":1}`, 400, "limit"},
		{"PUT", "/api/limit", `{` + gcra + `,"limit":51,"seconds":1,"burst":1}`, 400, "limit"},
		{"PUT", "/api/limit", `{` + gcra + `,"limit":1,"seconds":31,"burst":1}`, 400, "seconds"},
		{"PUT", "/api/limit", `{` + gcra + `,"limit":1,"seconds":1}`, 400, "burst"},
		{"PUT", "/api/limit", `{` + gcra + `,"limit":1,"seconds":1,"burst":null}`, 400, "burst"},
		{"PUT", "/api/limit", `{"algorithm":"sliding-log","limit":1,"seconds":1,"burst":1}`, 400, "burst"},
		{"POST", "/api/reset", `{"all":true}`, 400, "all"},
		{"POST", "/api/reset", `{"algorithm":"?"}`, 400, "algorithm"},
		{"POST", "/api/outage", `{}`, 400, "action"},
		{"POST", "/api/outage", `{"action":"explode"}`, 400, "action"},
		{"POST", "/api/outage", `{"action":["kill"]}`, 400, "action"},
		{"POST", "/api/fleet", `{"shared":true}`, 400, "running"},
		{"POST", "/api/fleet", `{"shared":"yes","running":true}`, 400, "shared"},
		{"GET", "/api/attempt", ``, 405, "method"},
		{"DELETE", "/api/state", ``, 405, "method"},
		{"HEAD", "/api/events", ``, 405, "method"},
		{"POST", "/", ``, 405, "method"},
		{"POST", "/api/attempt", ``, 415, "Content-Type"},
		{"GET", "/api/nothing", ``, 404, "path"},
	} {
		resp, answer := request(t, srv, c.method, c.path, c.body)
		name := fmt.Sprintf("%s %s %.60s", c.method, c.path, c.body)
		if c.method == "HEAD" {
			if resp.StatusCode != c.status {
				t.Errorf("%s: %d", name, resp.StatusCode)
			}
			continue
		}
		var p problem
		if err := json.Unmarshal([]byte(answer), &p); err != nil {
			t.Errorf("%s: %v: %s", name, err, answer)
			continue
		}
		if resp.StatusCode != c.status || p.Status != c.status || p.Field != c.field || !strings.HasPrefix(p.Detail, c.field+" is ") ||
			p.Title == "" || p.Type != "about:blank" || resp.Header.Get("Content-Type") != "application/problem+json" || len(p.Detail) > 300 {
			t.Errorf("%s: %d %s", name, resp.StatusCode, answer)
		}
		if c.status == 405 && resp.Header.Get("Allow") == "" {
			t.Errorf("%s: nothing is allowed", name)
		}
	}
	resp, answer := request(t, srv, "POST", "/api/attempt", `{`+gcra+`}`, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") })
	if resp.StatusCode != 415 {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
}

// TestOneBoundaryAtATime: a second one of the same card would spoil the first.
func TestOneBoundaryAtATime(t *testing.T) {
	a, srv := alone(t)
	c := a.cards[0]
	if !c.begin() {
		t.Fatal("busy")
	}
	if resp, answer := request(t, srv, "POST", "/api/boundary", `{"algorithm":"`+c.Slug+`"}`); resp.StatusCode != http.StatusConflict {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
	c.end()
	if !c.begin() {
		t.Error("still busy")
	}
	c.end()
}

// TestOwnLimit: the API keeps to a limit too, by the same middleware.
func TestOwnLimit(t *testing.T) {
	t.Parallel()
	a, srv := alone(t)
	if resp, answer := request(t, srv, "GET", "/api/nothing", ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
	// However slowly a busy machine asks.
	if err := a.own.Block(t.Context(), "127.0.0.1", time.Hour); err != nil {
		t.Fatal(err)
	}
	resp, answer := request(t, srv, "GET", "/api/nothing", "")
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" || !strings.Contains(answer, `"page"`) {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, answer)
	}
	if resp, _ := request(t, srv, "GET", "/", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("the page itself: %d", resp.StatusCode)
	}
}
