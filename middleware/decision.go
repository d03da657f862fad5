package middleware

import (
	"net/http"

	"github.com/holdfast-go/holdfast/internal/inbound"
	"github.com/holdfast-go/holdfast/limiter"
)

// Decision is what was decided on a request.
type Decision struct {
	// Request is the request.
	Request *http.Request
	// Key is its rate-limit key; long ones are hashed. It is empty for a request
	// that has none.
	Key string
	// Result is the decision; for a Multi, that of all parts.
	Result limiter.Result
	// Policy names the policy that denied; empty when none did.
	Policy string
	// Status is what the request was rejected with, 0 when it was served.
	Status int
	// Shadow says that it was served because of WithShadow, and would have been
	// rejected otherwise.
	Shadow bool
	// Err is why there is no decision: ErrNoKey, or an error of the Allower.
	Err error
}

// statuses are the answers to requests that are not served.
var statuses = [inbound.Problems]int{
	inbound.Denied:          http.StatusTooManyRequests,
	inbound.NoKey:           http.StatusBadRequest,
	inbound.Unauthenticated: http.StatusUnauthorized,
	inbound.Invalid:         http.StatusBadRequest,
	inbound.Unavailable:     http.StatusServiceUnavailable,
	inbound.Canceled:        http.StatusServiceUnavailable,
	inbound.Expired:         http.StatusServiceUnavailable,
	inbound.KeyFailed:       http.StatusInternalServerError,
	inbound.Failed:          http.StatusInternalServerError,
}
