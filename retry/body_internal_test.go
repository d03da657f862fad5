package retry

import (
	"math"
	"testing"
	"time"
)

// TestSecondsOfABody: whole milliseconds, rounded up, and the longest time where there are too many.
func TestSecondsOfABody(t *testing.T) {
	for s, want := range map[float64]time.Duration{
		-1: 0, 0: 0, math.NaN(): 0,
		1e-9: time.Millisecond, 1: time.Second, 1.0005: 1001 * time.Millisecond,
		9223372035.5: 9223372035500 * time.Millisecond,
		9223372036:   longest, 9223372036.9: longest, 1e300: longest, math.Inf(1): longest,
	} {
		if got := secondsOf(s); got != want {
			t.Errorf("%v: %v, want %v", s, got, want)
		}
	}
}
