package retry

import (
	"net/http"
	"strings"
)

// Discord has a quota for each bucket of routes, and one for all, of which it says so.
func discordScopes(names []string, h http.Header) []string {
	return addScope(names, scopeName("discord", first(h, "X-Ratelimit-Bucket")))
}

func discordWait(status int, h http.Header, source string) string {
	global := strings.EqualFold(first(h, "X-Ratelimit-Global"), "true") ||
		strings.EqualFold(first(h, "X-Ratelimit-Scope"), "global")
	if global || source == "" && status != http.StatusTooManyRequests {
		return ""
	}
	return scopeName("discord", first(h, "X-Ratelimit-Bucket"))
}
