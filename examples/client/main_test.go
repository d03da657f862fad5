package main

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/examples/internal/demotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun: each style of refusal is understood, by the header that says so.
func TestRun(t *testing.T) { synctest.Test(t, understands) }

func understands(t *testing.T) {
	time.Sleep(20 * 365 * 24 * time.Hour) // to a date that is no delay, as it may be in 2000, when this begins
	var out bytes.Buffer
	l := make(demotest.Pipes)
	if err := run(t.Context(), &http.Transport{DialContext: l.Dial}, l, &out); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	sections := make(map[string]string)
	for _, s := range strings.Split(out.String(), "\nGET ") {
		for _, s := range strings.Split(s, "\nPOST ") {
			path, rest, _ := strings.Cut(s, " ")
			sections[path] = rest
		}
	}
	for path, wants := range map[string][]string{
		"/seconds":      {"(server, Retry-After)", " 200 after"},
		"/date":         {"(server, Retry-After)", " 200 after"},
		"/milliseconds": {"(server, Retry-After-Ms)", " 200 after"},
		"/ratelimit":    {"(server, Ratelimit)", " 200 after"},
		"/reset-epoch":  {"(server, X-Ratelimit-Reset)", " 200 after"},
		"/reset-delta":  {"(server, X-Ratelimit-Reset)", " 200 after"},
		"/duration":     {"(server, X-Ratelimit-Reset-Requests)", " 200 after"},
		"/forbidden":    {"(server, Retry-After)", " 200 after"},
		"/nothing-said": {"(backoff)", " 200 after"},
		"/garbage":      {"(backoff)", " 200 after"},
		"/too-large":    {" 429 after 0s, gave up: wait too long"},
		"/tomorrow":     {" 429 after 0s, gave up: wait too long, retry in 24h0m0s"},
		"/never-well":   {"attempt 3: 502", "gave up: attempts spent"},
		"/refused":      {"(server, Retry-After)", " 200 after"},
		"/may-be-done":  {"gave up: not idempotent", "had to reject 1 request"},
	} {
		for _, want := range wants {
			if !strings.Contains(sections[path], want) {
				t.Errorf("%s: no %q in %q", path, want, sections[path])
			}
		}
	}
}
