package admission_test

import (
	"context"
	"errors"
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
		// The wait ends after the deadline, which is not over yet.
		"throttled, retry in 9ms, after the deadline: context deadline exceeded": admission.Then(retry.Throttled, 9*time.Millisecond, context.DeadlineExceeded),
		"limiter failed: context deadline exceeded":                              admission.Then(retry.LimiterFailed, 0, context.DeadlineExceeded),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
