package httpclient

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/admission"
	"github.com/holdfast-go/holdfast/retry"
)

const (
	// maxRoutes bounds the routes whose scopes are remembered, at about 300 bytes each.
	maxRoutes = 8192
	// maxFamilies bounds the hosts that name quotas.
	maxFamilies = 4096
	// maxRouteScopes bounds the scopes of one route: the latest count.
	maxRouteScopes = 8
)

// routes remembers which quotas of their hosts requests belong to, for hosts that name them:
// see retry.ParseScopes. A route of which nothing is known waits for none of them, and
// learns from its first response; to forget one does no more harm. It is safe for
// concurrent use.
type routes struct {
	t        *admission.Table[route]
	families *admission.Table[string] // by host
}

// route holds the names of the quotas that a route's responses have named.
type route struct {
	names atomic.Pointer[[]string]
}

func newRoutes() *routes {
	return &routes{
		admission.NewTable(maxRoutes, func(*route) bool { return false }),
		admission.NewTable(maxFamilies, func(*string) bool { return false }),
	}
}

// scopesOf returns the keys of the quotas that a request belongs to, within a key of the
// user's. Where no host ever named any it takes an atomic load.
func (rs *routes) scopesOf(host, key string, of any) []string {
	family := rs.families.Get(host)
	if family == nil || key == "" {
		return nil
	}
	req := of.(*http.Request)
	r := rs.t.Get(routeKey(host, *family, req))
	if r == nil {
		return nil
	}
	names := *r.names.Load()
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = scopeKey(key, name, req)
	}
	return keys
}

// learn remembers what a response names.
func (rs *routes) learn(host string, req *http.Request, names []string) {
	first, _, _ := strings.Cut(names[0], "/")
	family := rs.families.GetOrAdd(host, func() *string { return &first })
	if family == nil {
		return
	}
	r := rs.t.GetOrAdd(routeKey(host, *family, req), func() *route {
		r := new(route)
		r.names.Store(&names)
		return r
	})
	if r == nil {
		return
	}
	// Of two that learn at a time one may be lost, until the next response.
	old := *r.names.Load()
	all := slices.Clip(names)
	for _, name := range old {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	if len(all) > len(old) {
		all = all[:min(len(all), maxRouteScopes)]
		r.names.Store(&all)
	}
}

func routeKey(host, family string, req *http.Request) string {
	return host + " " + routeOf(family, req.Method, req.URL.Path)
}

// scopeKey returns the key of a quota within a key of the user's.
func scopeKey(key, name string, req *http.Request) string {
	key += "#" + name
	if strings.HasPrefix(name, "discord/") {
		// A bucket of Discord counts each channel, guild and webhook apart.
		if _, major := discordRoute(req.URL.Path); major != "" {
			key += "/" + major
		}
	}
	return key
}

// routeOf returns what the requests have in common that belong to the same quotas.
func routeOf(family, method, path string) string {
	switch family {
	case "github":
		return githubRoute(path)
	case "discord":
		route, _ := discordRoute(path)
		return method + " " + route
	case "shopify":
		if strings.HasSuffix(path, "graphql.json") {
			return "graphql"
		}
		return "rest"
	default:
		return method + " " + path
	}
}

// githubRoute tells the resources apart that have paths of their own; the others are core,
// and sometimes one that GitHub counts apart.
func githubRoute(path string) string {
	path = strings.TrimPrefix(path, "/api/v3") // of GitHub Enterprise Server
	switch {
	case strings.HasSuffix(path, "/graphql"):
		return "graphql"
	case strings.HasPrefix(path, "/search/code"):
		return "search/code"
	case strings.HasPrefix(path, "/search/"):
		return "search"
	default:
		return "rest"
	}
}

// discordRoute returns a path with its ids taken out, and the resource at its beginning
// whose id counts: a channel, a guild, or a webhook and its token.
func discordRoute(path string) (route, major string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] == "api" {
		parts = parts[1:]
	}
	if len(parts) > 0 && len(parts[0]) > 1 && parts[0][0] == 'v' && isID(parts[0][1:]) {
		parts = parts[1:]
	}
	for i, p := range parts {
		switch {
		case i == 1 && (parts[0] == "channels" || parts[0] == "guilds" || parts[0] == "webhooks"):
			if major = parts[0] + "/" + p; parts[0] == "webhooks" && len(parts) > 2 {
				major += "/" + parts[2]
			}
			parts[1] = ":major"
		case i > 0 && isID(p), i == 2 && (parts[0] == "webhooks" || parts[0] == "interactions"):
			parts[i] = ":id"
		case i > 0 && parts[i-1] == "reactions":
			return strings.Join(parts[:i], "/"), major // what follows is an emoji
		}
	}
	return strings.Join(parts, "/"), major
}

func isID(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// namesOf returns the quotas that a response is about.
func namesOf(resp *http.Response, a retry.Answer) []string {
	names := retry.ParseScopes(resp.Header)
	if a.Scope != "" && !slices.Contains(names, a.Scope) {
		names = append(names, a.Scope)
	}
	return names
}
