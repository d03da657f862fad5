package retry

import (
	"net/http"
	"strings"
)

const anthropicPrefix = "Anthropic-Ratelimit-"

// Anthropic counts requests, input tokens and output tokens separately.
func anthropicScopes(names []string, h http.Header) []string {
	for name := range h {
		names = addScope(names, anthropicScope(name, "-Remaining"))
	}
	return names
}

func anthropicWait(_ int, h http.Header, source string) string {
	what, ok := strings.CutSuffix(source, "-Reset")
	if !ok || h[what+"-Remaining"] == nil {
		return ""
	}
	return anthropicScope(source, "-Reset")
}

func anthropicScope(name, suffix string) string {
	if what, ok := strings.CutPrefix(name, anthropicPrefix); ok {
		if what, ok = strings.CutSuffix(what, suffix); ok {
			return scopeName("anthropic", what)
		}
	}
	return ""
}
