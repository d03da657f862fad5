package retry

import "net/http"

// earlyData is 425 of RFC 8470: the server does not want to process a request that might be
// a replay.
func earlyData(status int, _ http.Header) Verdict {
	if status == http.StatusTooEarly {
		return Failed
	}
	return Default
}
