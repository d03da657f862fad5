package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

const (
	// maxBody is the most that a request may say.
	maxBody = 4 << 10
	// bodyTime is how long it may take to say it.
	bodyTime = 5 * time.Second
)

// decode reads a JSON object with known fields and nothing else into v.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	kind := r.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(kind); err != nil || media != "application/json" {
		return broken(http.StatusUnsupportedMediaType, "Content-Type", quoted(kind), "must be application/json")
	}
	// The server has no timeout of its own for bodies: it would end streams of events.
	out := http.NewResponseController(w)
	if out.SetReadDeadline(time.Now().Add(bodyTime)) == nil {
		defer func() { _ = out.SetReadDeadline(time.Time{}) }()
	}
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return badBody(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return badField("body", "more than one value", "must be one JSON object")
	}
	return nil
}

// badBody names the field that a decoder's error is about, where it is about one.
func badBody(err error) *problem {
	if tooLong, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return broken(http.StatusRequestEntityTooLarge, "body", "too long", fmt.Sprintf("must be at most %d bytes", tooLong.Limit))
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := wrong.Field
		if field == "" {
			field = "body"
		}
		return badField(field, wrong.Value, "must be "+kindOf(wrong.Type.String()))
	}
	// encoding/json has no type for this one.
	if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return badField(strings.Trim(name, `"`), "unknown", "must not be in the request")
	}
	if errors.Is(err, io.EOF) {
		return badField("body", "empty", "must be a JSON object")
	}
	return badField("body", "not valid", "must be a JSON object")
}

func kindOf(goType string) string {
	switch {
	case strings.Contains(goType, "int"):
		return "a whole number"
	case strings.Contains(goType, "bool"):
		return "true or false"
	case strings.Contains(goType, "string"):
		return "a string"
	}
	return "a JSON object"
}

// quoted is a client's word in an answer: short, and as a string.
func quoted(s string) string {
	const most = 40
	if len(s) > most {
		s = s[:most] + "…"
	}
	return fmt.Sprintf("%q", s)
}

// within checks a number that may be left out, and returns what stands for it.
func within(field string, v *int, low, high, missing int) (int, error) {
	switch {
	case v == nil && missing == 0:
		return 0, badField(field, "missing", fmt.Sprintf("must be from %d to %d", low, high))
	case v == nil:
		return missing, nil
	case *v < low || *v > high:
		return 0, badField(field, *v, fmt.Sprintf("must be from %d to %d", low, high))
	}
	return *v, nil
}
