package holdfastotel

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/holdfast-go/holdfast/limiter"
)

// The labels.
const (
	policyKey     = attribute.Key("holdfast.policy")
	outcomeKey    = attribute.Key("holdfast.outcome")
	sourceKey     = attribute.Key("holdfast.source")
	serverKey     = attribute.Key("holdfast.server")
	stateKey      = attribute.Key("holdfast.breaker.state")
	originKey     = attribute.Key("holdfast.share.origin")
	causeKey      = attribute.Key("holdfast.cause")
	reasonKey     = attribute.Key("holdfast.reason")
	throttlingKey = attribute.Key("holdfast.throttling")
	deniedByKey   = attribute.Key("holdfast.denied_by")
)

// These are on spans only.
const (
	costKey       = attribute.Key("holdfast.cost")
	remainingKey  = attribute.Key("holdfast.remaining")
	retryAfterKey = attribute.Key("holdfast.retry_after") // s
	waitKey       = attribute.Key("holdfast.wait")        // s
	durationKey   = attribute.Key("holdfast.duration")    // s
	headerKey     = attribute.Key("holdfast.header")
)

// policy is the label of a name; an empty one is "default".
func policy(name string) attribute.KeyValue { return policyKey.String(cmp.Or(name, "default")) }

// errorTypes are the kinds of errors of a decision.
var errorTypes = []struct {
	is   error
	name string
}{
	{limiter.ErrUnavailable, "unavailable"},
	{limiter.ErrCostExceedsLimit, "cost_exceeds_limit"},
	{limiter.ErrInvalidCost, "invalid_cost"},
	{limiter.ErrInvalidKey, "invalid_key"},
	{limiter.ErrInvalidConfig, "invalid_config"},
	{limiter.ErrState, "state"},
	{limiter.ErrClosed, "closed"},
	{context.DeadlineExceeded, "deadline_exceeded"},
	{context.Canceled, "canceled"},
}

// errorType returns the index of an error's kind, which is len(errorTypes) for others.
func errorType(err error) int {
	for i, t := range errorTypes {
		if errors.Is(err, t.is) {
			return i
		}
	}
	return len(errorTypes)
}

func errorName(kind int) attribute.KeyValue {
	if kind < len(errorTypes) {
		return semconv.ErrorTypeKey.String(errorTypes[kind].name)
	}
	return semconv.ErrorTypeOther
}

// method is the request's, of those that are known.
func method(r *http.Request) attribute.KeyValue {
	switch r.Method {
	case "":
		return semconv.HTTPRequestMethodGet
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return semconv.HTTPRequestMethodKey.String(r.Method)
	}
	return semconv.HTTPRequestMethodOther
}

// word makes a label of what is said to people.
func word(s string) string { return strings.ReplaceAll(s, " ", "_") }

// with makes an option of labels, to be used many times.
func with(labels ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(labels...))
}
