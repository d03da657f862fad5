package retry

import "net/http"

// overload is 529, by which Anthropic and others turn a request away, for any caller.
func overload(status int, _ http.Header) Verdict {
	if status == 529 {
		return Rejected
	}
	return Default
}
