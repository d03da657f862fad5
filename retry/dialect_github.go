package retry

import "net/http"

// GitHub has a quota for each of its resources: core, search, code_search, graphql and more.
// A wait that is not the end of such a quota, as after a secondary limit, is for all of them.
func githubScopes(names []string, h http.Header) []string {
	return addScope(names, scopeName("github", first(h, "X-Ratelimit-Resource")))
}

func githubWait(_ int, h http.Header, source string) string {
	if source == "" {
		return ""
	}
	return scopeName("github", first(h, "X-Ratelimit-Resource"))
}
