package admission_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/admission"
)

func TestReasonThen(t *testing.T) {
	broken := errors.New("broken")
	for want, got := range map[string]string{
		"throttled":                         admission.Throttled.Then(0, nil),
		"throttled, retry in 9ms":           admission.Throttled.Then(9*time.Millisecond, nil),
		"limiter failed: broken":            admission.LimiterFailed.Then(0, broken),
		"throttled: broken":                 admission.Throttled.Then(0, broken),
		"cooling down, retry in 3s: broken": admission.CoolingDown.Then(3*time.Second, broken),
		// The wait ends after the deadline, which is not over yet.
		"throttled, retry in 9ms, after the deadline: context deadline exceeded": admission.Throttled.Then(9*time.Millisecond, context.DeadlineExceeded),
		"limiter failed: context deadline exceeded":                              admission.LimiterFailed.Then(0, context.DeadlineExceeded),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
