package retry

import (
	"net/http"
	"time"
)

// aws answers 400 to calls that it throttles; with a wait, such a call is worth another
// attempt.
func aws(_ int, h http.Header) Verdict {
	if _, ok := decimal(first(h, amzRetryAfter), time.Millisecond); ok {
		return Failed
	}
	return Default
}
