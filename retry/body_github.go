package retry

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// githubSecondary is for how long GitHub wants to be left alone after a secondary limit
// that names no wait.
const githubSecondary = time.Minute

func githubWants(status int, h http.Header, _ string) bool {
	return first(h, "X-Github-Request-Id") != "" &&
		(status == http.StatusOK || status == http.StatusForbidden || status == http.StatusTooManyRequests)
}

// secondaryLimit reads the message of a rejection that names no wait. It is for all
// resources of the caller.
func secondaryLimit(a Answer, status int, body []byte) Answer {
	if status == http.StatusOK || a.Asked && a.Remaining <= 0 { // the headers are more exact
		return a
	}
	var b struct {
		Message text `json:"message"`
	}
	if json.Unmarshal(body, &b) != nil {
		return a
	}
	msg := strings.ToLower(b.Message.v)
	if !strings.Contains(msg, "secondary rate limit") && !strings.Contains(msg, "abuse detection") {
		return a
	}
	return Answer{Verdict: Rejected, Asked: true, Hint: Hint{githubSecondary, -1, "body"}}
}
