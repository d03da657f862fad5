package middleware

import (
	"encoding/json"
	"net/http"
	"strings"
)

// problem is the body of a rejection, by RFC 9457; its type and members for limits are
// those of the RateLimit draft.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies,omitempty"`
}

const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// exceeded returns the body for a policy that denied, before and after the seconds.
func exceeded(policy string) (before, after string) {
	const wait = "come back in "
	body, err := json.Marshal(problem{
		Type: quotaExceeded, Title: "Request cannot be satisfied as assigned quota has been exceeded",
		Status: http.StatusTooManyRequests, Detail: wait + " s", Violated: []string{policy},
	})
	if err != nil { // of strings and a number: never
		return "", ""
	}
	before, after, _ = strings.Cut(string(body), wait)
	return before + wait, after
}

// failure returns the body of a rejection that is not by a policy.
func failure(status int, why string) []byte {
	body, err := json.Marshal(problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: why})
	if err != nil { // of strings and a number: never
		return nil
	}
	return body
}
