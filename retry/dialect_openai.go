package retry

import (
	"net/http"
	"strings"
)

// OpenAI, and those who took over its headers (Azure, Groq, Mistral and others), count
// requests and tokens separately: what uses no tokens need not wait for them.
func openAIScopes(names []string, h http.Header) []string {
	for name := range h {
		if suffix, ok := strings.CutPrefix(name, "X-Ratelimit-Remaining-"); ok {
			names = addScope(names, openAIScope(suffix))
		}
	}
	return names
}

func openAIWait(_ int, h http.Header, source string) string {
	suffix, ok := strings.CutPrefix(source, "X-Ratelimit-Reset-")
	if !ok || h["X-Ratelimit-Remaining-"+suffix] == nil {
		return ""
	}
	return openAIScope(suffix)
}

func openAIScope(suffix string) string {
	if !strings.Contains(suffix, "Requests") && !strings.Contains(suffix, "Tokens") {
		return "" // such as -Minute of Kong: a quota of all requests
	}
	return scopeName("openai", suffix)
}
