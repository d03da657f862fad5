package middleware

import (
	"encoding/json"
	"net/http"
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

// refuse answers with the status of d.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, d Decision) {
	if h.responder != nil {
		h.responder(w, r, d)
		return
	}
	p := problem{Type: "about:blank", Title: http.StatusText(d.Status), Status: d.Status}
	switch d.Status {
	case http.StatusTooManyRequests:
		p.Type, p.Title = quotaExceeded, "Request cannot be satisfied as assigned quota has been exceeded"
		p.Detail, p.Violated = "come back in "+seconds(d.Result.RetryAfter)+" s", []string{d.Policy}
	case http.StatusUnauthorized:
		p.Detail = "the request does not say on whose behalf it is made"
	case http.StatusBadRequest:
		p.Detail = "the request has no key, or costs more than the limit can ever admit"
	case http.StatusServiceUnavailable:
		p.Detail = "the limit cannot be asked for now"
	}
	body, err := json.Marshal(p)
	if err != nil { // of strings and a number: never
		body = nil
	}
	header := w.Header()
	header.Set("Content-Type", "application/problem+json")
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(d.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}
