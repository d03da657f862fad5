package httpclient

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"testing"
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
	for i := range 20 {
		rs.learn("api.test", req, []string{fmt.Sprint("openai/", i)})
	}
	if got := rs.scopesOf("api.test", "k", req); len(got) != maxRouteScopes || got[0] != "k#openai/19" {
		t.Errorf("%v", got)
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
