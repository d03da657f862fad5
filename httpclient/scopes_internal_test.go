package httpclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/admission"
	"github.com/holdfast-go/holdfast/retry"
)

// TestDiscordRoute: ids are taken out of a path, but for the resource that counts apart.
func TestDiscordRoute(t *testing.T) {
	for path, want := range map[string][2]string{
		"/":                               {"", ""},
		"/api":                            {"", ""},
		"/api/v10/gateway":                {"gateway", ""},
		"/api/v/gateway":                  {"v/gateway", ""},
		"/api/vx/gateway":                 {"vx/gateway", ""},
		"/channels/12/messages/34":        {"channels/:major/messages/:id", "channels/12"},
		"/api/v10/guilds/12/members/34":   {"guilds/:major/members/:id", "guilds/12"},
		"/webhooks/12":                    {"webhooks/:major", "webhooks/12"},
		"/webhooks/12/token":              {"webhooks/:major/:id", "webhooks/12/token"},
		"/interactions/12/token/callback": {"interactions/:id/:id/callback", ""},
		"/users/12/token":                 {"users/:id/token", ""},
		"/v9/users/12":                    {"users/:id", ""},
		"/v10":                            {"", ""},
		"/12/x":                           {"12/x", ""},
		"/reactions/x":                    {"reactions", ""},
		"/channels/12/messages/34/reactions/x/@me": {"channels/:major/messages/:id/reactions", "channels/12"},
	} {
		if route, major := discordRoute(path); route != want[0] || major != want[1] {
			t.Errorf("%s: %q %q, want %q", path, route, major, want)
		}
	}
}

// TestRouteRemembersItsQuotas: those of several responses, the latest first, and no more than
// a few.
func TestRouteRemembersItsQuotas(t *testing.T) {
	rs := newRoutes()
	req, err := http.NewRequest(http.MethodGet, "https://api.test/v1", nil)
	if err != nil {
		t.Fatal(err)
	}
	rs.learn("api.test", req, []string{"openai/requests"})
	rs.learn("api.test", req, []string{"openai/tokens"})
	rs.learn("api.test", req, []string{"openai/tokens"})
	if got := rs.scopesOf("api.test", "k", req); !slices.Equal(got, []string{"k#openai/tokens", "k#openai/requests"}) {
		t.Errorf("%v", got)
	}
	known := rs.t.Get(routeKey("api.test", "openai", req)).names.Load()
	rs.learn("api.test", req, []string{"openai/requests"})
	if rs.t.Get(routeKey("api.test", "openai", req)).names.Load() != known {
		t.Error("what is known is written again")
	}
	for i := range 20 {
		rs.learn("api.test", req, []string{fmt.Sprint("openai/", i)})
	}
	if got := rs.scopesOf("api.test", "k", req); len(got) != maxRouteScopes || got[0] != "k#openai/19" {
		t.Errorf("%v", got)
	}
}

// TestRoutesAreForgotten: more hosts and routes than are remembered take no more room, and the
// latest are known.
func TestRoutesAreForgotten(t *testing.T) {
	rs := newRoutes()
	for i := range maxRoutes + 100 {
		host := fmt.Sprint("h", i)
		req := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/v1"}}
		rs.learn(host, req, []string{"openai/requests"})
		if got := rs.scopesOf(host, "k", req); !slices.Equal(got, []string{"k#openai/requests"}) {
			t.Fatalf("host %d: %v", i, got)
		}
	}
	if routes, hosts := rs.t.Len(), rs.families.Len(); routes != maxRoutes || hosts != maxFamilies {
		t.Errorf("%d routes of %d hosts", routes, hosts)
	}
}

// TestHeaderTimeoutIsANetError, by which callers tell timeouts.
func TestHeaderTimeoutIsANetError(t *testing.T) {
	var err net.Error = &headerTimeout{}
	if !err.Timeout() || !err.Temporary() { //nolint:staticcheck // some callers still ask
		t.Error(err)
	}
}

// TestCloseWithoutDiscovery does nothing.
func TestCloseWithoutDiscovery(t *testing.T) {
	rt, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.Close(); err != nil {
		t.Error(err)
	}
}

// TestRoutesOfShopify: GraphQL and REST have quotas apart.
func TestRoutesOfShopify(t *testing.T) {
	for path, want := range map[string]string{"/admin/api/2026-07/graphql.json": "graphql", "/admin/api/2026-07/orders.json": "rest"} {
		if got := routeOf("shopify", http.MethodPost, path); got != want {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// TestEvidenceOfStatus: what is rejected by quota shows nothing of the host, and what it does not
// implement shows that it works.
func TestEvidenceOfStatus(t *testing.T) {
	for status, want := range map[int]admission.Evidence{
		200: admission.Accepted, 404: admission.Accepted, 429: 0, 430: admission.Accepted, 500: admission.Failed, 501: admission.Accepted,
		503: admission.Failed, 505: admission.Accepted, 506: admission.Failed, 529: admission.Failed,
	} {
		if got := evidenceOfStatus(status, nil); got != want {
			t.Errorf("%d: %d, want %d", status, got, want)
		}
	}
	broken := new(upload)
	broken.failed.Store(true)
	if got := evidenceOfStatus(500, broken); got != 0 {
		t.Errorf("500 of half a request: %d", got)
	}
}

// TestEvidenceOfError: only what the host did in a fair time counts against it.
func TestEvidenceOfError(t *testing.T) {
	broken, stalled := new(upload), new(upload)
	broken.failed.Store(true)
	stalled.reading.Store(true)
	reset := errors.New("connection reset")
	for name, c := range map[string]struct {
		err, gone error
		took      time.Duration
		up        *upload
		want      admission.Evidence
	}{
		"a connection":         {reset, nil, 0, nil, admission.Failed},
		"the caller's body":    {reset, nil, 0, broken, 0},
		"a cancel":             {context.Canceled, nil, time.Hour, nil, 0},
		"nothing to send":      {http.ErrSkipAltProtocol, nil, 0, nil, 0},
		"a short deadline":     {context.DeadlineExceeded, context.DeadlineExceeded, fairTime - 1, nil, 0},
		"a fair deadline":      {context.DeadlineExceeded, context.DeadlineExceeded, fairTime, nil, admission.Failed},
		"the caller":           {reset, context.Canceled, fairTime, nil, 0},
		"a slow upload":        {context.DeadlineExceeded, context.DeadlineExceeded, fairTime, stalled, 0},
		"a timeout in one":     {&headerTimeout{}, nil, fairTime, stalled, 0},
		"a connection in one":  {reset, nil, 0, stalled, admission.Failed},
		"a timeout after that": {&headerTimeout{}, nil, 0, new(upload), admission.Failed},
	} {
		if got := evidenceOfError(c.err, c.gone, c.took, c.up); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestCallsAreMerged: what an inner WithCall leaves open is that of the outer one.
func TestCallsAreMerged(t *testing.T) {
	outer := Call{Attempts: 2, Key: "k", Cost: 3, MaxWait: time.Second, Idempotent: true}
	ctx := WithCall(t.Context(), outer)
	if got := callOf(WithCall(ctx, Call{})); got != outer {
		t.Errorf("%+v", got)
	}
	inner := Call{Attempts: 5, Key: "l", Cost: 4, MaxWait: time.Minute, Idempotent: true}
	if got := callOf(WithCall(ctx, inner)); got != inner {
		t.Errorf("%+v", got)
	}
}

// TestTextOfAProblem has the wait in seconds.
func TestTextOfAProblem(t *testing.T) {
	if body := string(problem(429, 34)); !strings.Contains(body, "retry in 34 s") {
		t.Error(body)
	}
}

// TestBoundsOfOptions are valid themselves.
func TestBoundsOfOptions(t *testing.T) {
	for name, c := range map[string]struct {
		opt Option
		ok  bool
	}{
		"the last provider": {WithProvider(retry.GraphQL), true},
		"beyond it":         {WithProvider(retry.GraphQL + 1), false},
		"none":              {WithProvider(retry.GitHub - 1), false},
		"a millisecond":     {WithAttemptTimeout(time.Millisecond), true},
		"less":              {WithAttemptTimeout(time.Millisecond - 1), false},
		"a gigabyte":        {WithBodyBuffer(1 << 30), true},
		"more":              {WithBodyBuffer(1<<30 + 1), false},
	} {
		if _, err := newConfig([]Option{c.opt}); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
