package sample

import (
	"testing"
	"time"
)

func TestWait(t *testing.T) {
	for attempts, want := range []time.Duration{1, 2, 4, 5} {
		if got := Wait(attempts, 5*time.Second); got != want*time.Second {
			t.Errorf("%v after %d", got, attempts)
		}
	}
}
