package middleware

import (
	"net/http"
	"strconv"

	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/inbound"
	"github.com/holdfast-go/holdfast/limiter"
)

// handler is one wrapped handler.
type handler struct {
	*config
	next http.Handler
}

// New returns a middleware that decides on each request by allower, under its key. It is
// safe for concurrent use. The error matches [limiter.ErrInvalidConfig].
func New(allower limiter.Allower, key Key, opts ...Option) (func(http.Handler) http.Handler, error) {
	c, err := newConfig(allower, key, opts)
	if err != nil {
		return nil, configerr.In("middleware", err)
	}
	return func(next http.Handler) http.Handler {
		if next == nil {
			next = http.NotFoundHandler()
		}
		return &handler{c, next}
	}, nil
}

// ServeHTTP serves the request, or rejects it.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.skip != nil && h.skip(r) {
		h.next.ServeHTTP(w, r)
		return
	}
	in := h.rules.Decide(r.Context(), r)
	if in.Reservation == nil {
		h.serve(w, r, &in)
		return
	}
	rec := &recorder{ResponseWriter: w}
	h.serve(rec, r, &in)
	if in.Reservation.Allowed && !h.counted(rec.code()) {
		_ = in.Reservation.Cancel(r.Context())
	}
}

// serve serves the request or rejects it, as it was decided.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, in *inbound.Decision) {
	if in.Err == nil && !h.shadow {
		h.policies.announce(w.Header(), h.headers, h.rules.Policy, &in.Result, in.Parts)
	}
	if permit := h.rules.Acquire(r.Context(), in); permit != nil {
		defer permit.Release() //nolint:errcheck // it ends with its time to live then
	}
	d := Decision{Request: r, Key: in.Key, Result: in.Result, Policy: in.Policy, Status: statuses[in.Problem], Err: in.Err}
	d.Shadow = h.shadow && d.Status != 0
	if h.hook != nil {
		h.hook(r.Context(), d)
	}
	if d.Status == 0 || d.Shadow {
		h.next.ServeHTTP(w, r)
		return
	}
	known := d.Result.RetryAfter > 0 && d.Status != http.StatusBadRequest
	if h.headers&RetryAfter != 0 && (known || d.Status == http.StatusTooManyRequests) {
		w.Header()["Retry-After"] = []string{strconv.FormatInt(atLeastOne(d.Result.RetryAfter), 10)}
	}
	if d.Status == http.StatusUnauthorized {
		w.Header()["Www-Authenticate"] = []string{h.challenge}
	}
	if h.responder != nil {
		h.responder(w, r, d)
		return
	}
	h.reject(w, r, &d, in.Problem)
}

// reject answers with the status of d.
func (h *handler) reject(w http.ResponseWriter, r *http.Request, d *Decision, why inbound.Problem) {
	var body []byte
	if d.Status == http.StatusTooManyRequests {
		body = h.policies.get(d.Policy, d.Result.Limit).rejection(d.Result.RetryAfter)
	} else {
		body = failure(d.Status, why.Reason("request", d.Err))
	}
	header := w.Header()
	values := [...]string{"application/problem+json", "no-store"}
	header["Content-Type"], header["Cache-Control"] = values[0:1:1], values[1:2:2]
	w.WriteHeader(d.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}
