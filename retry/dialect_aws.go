package retry

import (
	"net/http"
	"time"
)

// amzRetryAfter is a wait in milliseconds.
const amzRetryAfter = "X-Amz-Retry-After"

// aws answers 400 to calls that it throttles; with a wait, such a call is worth another
// attempt.
func aws(_ int, h http.Header) Verdict {
	if _, ok := decimal(first(h, amzRetryAfter), time.Millisecond); ok {
		return Failed
	}
	return Default
}
