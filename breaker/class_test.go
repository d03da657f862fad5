package breaker_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/breaker"
)

func TestClass(t *testing.T) {
	for _, tt := range []struct {
		class             breaker.Class
		name              string
		failure, fallback bool
	}{
		{breaker.ClassOK, "ok", false, false},
		{breaker.ClassUnavailable, "unavailable", true, true},
		{breaker.ClassReadOnly, "read-only", true, true},
		{breaker.ClassSlow, "slow", true, true},
		{breaker.ClassNoScript, "no-script", false, true},
		{breaker.ClassRedirect, "redirect", false, true},
		{breaker.ClassCaller, "caller", false, false},
		{breaker.ClassPermission, "permission", false, true},
		{breaker.ClassBug, "bug", false, false},
		{breaker.ClassAborted, "aborted", false, true},
		{breaker.Class(77), "unknown class 77", false, false},
	} {
		if got := tt.class.String(); got != tt.name {
			t.Errorf("Class(%d).String() = %q, want %q", tt.class, got, tt.name)
		}
		if got := tt.class.Failure(); got != tt.failure {
			t.Errorf("%v.Failure() = %v", tt.class, got)
		}
		if got := tt.class.Fallback(); got != tt.fallback {
			t.Errorf("%v.Fallback() = %v", tt.class, got)
		}
		if tt.class.Failure() && !tt.class.Fallback() {
			t.Errorf("%v counts against Redis, yet is the caller's error", tt.class)
		}
	}
}

func TestStateString(t *testing.T) {
	for s, want := range map[breaker.State]string{
		breaker.Closed: "closed", breaker.Open: "open", breaker.HalfOpen: "half-open", 9: "unknown state 9",
	} {
		if got := s.String(); got != want {
			t.Errorf("State(%d).String() = %q, want %q", s, got, want)
		}
	}
}
