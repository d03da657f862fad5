package retry

import "net/http"

// cloudflare has statuses of its own for an origin that gives no answer (520), rejects the
// connection (521), does not take it in time (522), cannot be reached (523) or does not
// answer in time (524). 525 to 530 are configuration, which another attempt does not repair.
func cloudflare(status int, _ http.Header) Verdict {
	if status >= 520 && status <= 524 {
		return Failed
	}
	return Default
}
