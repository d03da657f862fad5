package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/holdfast-go/holdfast/internal/caller"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

// Decision is what was decided on a request.
type Decision struct {
	// Key is whom it was decided for; long ones are hashed. It is empty for a
	// request that has none.
	Key string
	// Result is the decision; for a Multi, that of all parts.
	Result limiter.Result
	// Policy names the policy that denied; empty when none did.
	Policy string
	// Status is what the request was refused with, 0 when it was served.
	Status int
	// Shadow says that it was served because of WithShadow, and would have been
	// refused otherwise.
	Shadow bool
	// Err is why there is no decision: ErrNoKey, or an error of the Allower.
	Err error
}

// handler is one wrapped handler.
type handler struct {
	*config
	next http.Handler
}

// New returns a middleware that asks allower for each request, by its key. It is safe
// for concurrent use. The error is a *limiter.ConfigError.
func New(allower limiter.Allower, key Key, opts ...Option) (func(http.Handler) http.Handler, error) {
	c, err := newConfig(allower, key, opts)
	if err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		if next == nil {
			next = http.NotFoundHandler()
		}
		return &handler{c, next}
	}, nil
}

// ServeHTTP serves the request, or refuses it.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.skip != nil && h.skip(r) {
		h.next.ServeHTTP(w, r)
		return
	}
	d, parts := h.decide(r)
	if d.Err == nil && !h.shadow {
		h.announce(w.Header(), &d, parts)
	}
	if d.Status == 0 && h.slots != nil {
		slot := h.acquire(r, &d)
		if slot != nil {
			defer slot.Release()
		}
	}
	d.Shadow = h.shadow && d.Status != 0
	if h.hook != nil {
		h.hook(r, d)
	}
	if d.Status == 0 || d.Shadow {
		h.next.ServeHTTP(w, r)
		return
	}
	if d.Result.RetryAfter > 0 && h.headers&RetryAfter != 0 && d.Status != http.StatusBadRequest {
		w.Header()["Retry-After"] = []string{strconv.FormatInt(atLeastOne(d.Result.RetryAfter), 10)}
	}
	if d.Status == http.StatusUnauthorized {
		w.Header()["Www-Authenticate"] = []string{h.challenge}
	}
	h.refuse(w, r, d)
}

// decide finds the key and asks. parts are those of a Multi.
func (h *handler) decide(r *http.Request) (d Decision, parts []limiter.PartResult) {
	key, err := h.key.of(r)
	switch {
	case err != nil && !errors.Is(err, ErrNoKey):
		return Decision{Status: http.StatusInternalServerError, Err: err}, nil
	case err != nil && h.missing != MissingShared:
		return Decision{Status: h.missing.status(), Err: err}, nil
	case err != nil:
		key = caller.Shared
	}
	d.Key = caller.Short(key)
	cost := 1
	if h.cost != nil {
		cost = h.cost(r)
	}
	d.Result, d.Policy, parts, err = h.ask(r, d.Key, cost)
	if err != nil {
		d.Err, d.Status = err, statusOf(err)
		return d, nil
	}
	switch {
	case cost == 0:
		d.Policy = "" // a look is not denied, whatever it sees
	case !d.Result.Allowed:
		d.Status = http.StatusTooManyRequests
	}
	return d, parts
}

func (h *handler) ask(r *http.Request, key string, cost int) (res limiter.Result, policy string, parts []limiter.PartResult, err error) {
	ctx := r.Context()
	switch {
	case h.multi != nil:
		all, err := h.multi.Decide(ctx, key, cost)
		return all.Result, all.Denied, all.Parts, err
	case h.tier != nil:
		if limit := h.tier(r); !limit.IsZero() {
			res, err = h.tiered.Decide(ctx, key, cost, limiter.UseLimit(limit))
			break
		}
		fallthrough
	default:
		res, err = h.allower.AllowN(ctx, key, cost)
	}
	if err == nil && !res.Allowed {
		policy = h.name
	}
	return res, policy, nil, err
}

// acquire takes a slot for as long as the request is served.
func (h *handler) acquire(r *http.Request, d *Decision) *semaphore.Permit {
	slot, err := h.slots.TryAcquire(r.Context(), d.Key)
	switch {
	case err != nil:
		d.Err, d.Status = err, statusOf(err)
	case !slot.Allowed:
		d.Status, d.Policy = http.StatusTooManyRequests, h.slotsName
		d.Result.Allowed, d.Result.RetryAfter = false, slot.RetryAfter
	default:
		return slot
	}
	return nil
}

// statusOf says what an error of the Allower means to who asked.
func statusOf(err error) int {
	switch {
	case errors.Is(err, limiter.ErrCostExceedsLimit), errors.Is(err, limiter.ErrInvalidCost), errors.Is(err, limiter.ErrInvalidKey):
		return http.StatusBadRequest
	case errors.Is(err, limiter.ErrUnavailable), errors.Is(err, limiter.ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func configError(field string, value any, format string, args ...any) error {
	return &limiter.ConfigError{Field: field, Value: value, Rule: fmt.Sprintf(format, args...)}
}
