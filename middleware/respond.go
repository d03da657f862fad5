package middleware

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// problem is the body of a refusal, by RFC 9457; its type and members for limits are
// those of the RateLimit draft.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies,omitempty"`
}

const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// refusal is the body for a policy that denied, before and after the seconds.
func refusal(policy string) (before, after string) {
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

// refuse answers with the status of d.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, d Decision) {
	if h.responder != nil {
		h.responder(w, r, d)
		return
	}
	var body []byte
	if d.Status == http.StatusTooManyRequests {
		pol := h.policies.get(d.Policy, d.Result.Limit)
		body = make([]byte, 0, len(pol.before)+len(pol.after)+20)
		body = append(body, pol.before...)
		body = strconv.AppendInt(body, atLeastOne(d.Result.RetryAfter), 10)
		body = append(body, pol.after...)
	} else {
		body = failure(d.Status)
	}
	header := w.Header()
	values := [...]string{"application/problem+json", "no-store"}
	header["Content-Type"], header["Cache-Control"] = values[0:1:1], values[1:2:2]
	w.WriteHeader(d.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}

// failure is the body of an answer to a request that no policy denied.
func failure(status int) []byte {
	p := problem{Type: "about:blank", Title: http.StatusText(status), Status: status}
	switch status {
	case http.StatusUnauthorized:
		p.Detail = "the request does not say on whose behalf it is made"
	case http.StatusBadRequest:
		p.Detail = "the request has no key, or costs more than the limit can ever admit"
	case http.StatusServiceUnavailable:
		p.Detail = "the limit cannot be asked for now"
	}
	body, err := json.Marshal(p)
	if err != nil { // of strings and a number: never
		return nil
	}
	return body
}
