package main

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// problem is an answer by RFC 9457 to what cannot be done. As an error it is one of
// the caller; every other error is ours.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Field is what of the request breaks the rule that Detail names.
	Field string `json:"field,omitempty"`
	// Violated and Decision come with a request that a card's limit denied.
	Violated []string  `json:"violated-policies,omitempty"`
	Decision *decision `json:"decision,omitempty"`
}

func (p *problem) Error() string { return p.Detail }

// broken says that the value of a field breaks a rule.
func broken(status int, field string, value any, rule string) *problem {
	return &problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Field: field,
		Detail: fmt.Sprintf("%s is %v: %s", field, value, rule),
	}
}

// badField is broken for what a body says.
func badField(field string, value any, rule string) *problem {
	return broken(http.StatusBadRequest, field, value, rule)
}

func (p *problem) write(w http.ResponseWriter) { reply(w, p.Status, "application/problem+json", p) }

func writeJSON(w http.ResponseWriter, v any) { reply(w, http.StatusOK, "application/json", v) }

func reply(w http.ResponseWriter, status int, kind string, v any) {
	body, err := json.Marshal(v)
	if err != nil { // of our own structs: never
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
