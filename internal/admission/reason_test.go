package admission_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/admission"
	"github.com/holdfast-go/holdfast/retry"
)

func TestReasonThen(t *testing.T) {
	broken := errors.New("broken")
	for want, got := range map[string]string{
		"throttled":                         admission.Then(retry.Throttled, 0, nil),
		"throttled, retry in 9ms":           admission.Then(retry.Throttled, 9*time.Millisecond, nil),
		"limiter failed: broken":            admission.Then(retry.LimiterFailed, 0, broken),
		"throttled: broken":                 admission.Then(retry.Throttled, 0, broken),
		"cooling down, retry in 3s: broken": admission.Then(retry.CoolingDown, 3*time.Second, broken),
		// The deadline is not over yet, so the text does not say that it was exceeded.
		"throttled, retry in 9ms, which is after the deadline": admission.Then(retry.Throttled, 9*time.Millisecond, context.DeadlineExceeded),
		"throttled, retry in 9ms, which is after the deadline: broken: context deadline exceeded": admission.Then(retry.Throttled, 9*time.Millisecond,
			fmt.Errorf("broken: %w", context.DeadlineExceeded)),
		"limiter failed: context deadline exceeded": admission.Then(retry.LimiterFailed, 0, context.DeadlineExceeded),
		// A person reads the wait: it is in milliseconds, and never 0.
		"throttled, retry in 1m0s":                     admission.Then(retry.Throttled, time.Minute-1, nil),
		"throttled, retry in 1ms":                      admission.Then(retry.Throttled, 1, nil),
		"throttled, retry in 2562047h47m16.854775807s": admission.Then(retry.Throttled, math.MaxInt64, nil),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
