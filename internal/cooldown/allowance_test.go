package cooldown

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Allowance{Each: time.Minute, Total: 90 * time.Second}
		if most, ok, err := a.Fits(t.Context(), time.Minute); most != time.Minute || !ok || err != nil {
			t.Error(most, ok, err)
		}
		if most, ok, err := a.Fits(t.Context(), time.Minute+1); most != time.Minute || ok || err != nil {
			t.Error(most, ok, err)
		}
		if start := time.Now(); !a.Sleep(t.Context(), time.Minute, nil) || time.Since(start) != time.Minute {
			t.Error("slept for", time.Since(start))
		}
		if most, ok, _ := a.Fits(t.Context(), 31*time.Second); most != 30*time.Second || ok {
			t.Error("beyond the sum:", most, ok)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, ok, err := a.Fits(ctx, 10*time.Second); ok || !errors.Is(err, context.DeadlineExceeded) {
			t.Error("up to the very deadline:", ok, err)
		}
		if most, ok, err := a.Fits(ctx, time.Second); most != 10*time.Second-1 || !ok || err != nil {
			t.Error(most, ok, err)
		}
		start := time.Now()
		if a.Sleep(ctx, 20*time.Second, nil) || time.Since(start) != 10*time.Second {
			t.Error("did not leave with its context, but after", time.Since(start))
		}
		left := make(chan struct{})
		close(left)
		if a.Sleep(t.Context(), time.Second, left) {
			t.Error("did not leave")
		}
		if a.Waited() != 81*time.Second || !a.Sleep(ctx, 0, left) {
			t.Error(a.Waited())
		}
	})
}

func TestCrowd(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		n    int
		cost int
		want time.Duration
	}{
		{time.Second, 1, 1, 0},                        // the pace itself
		{2 * time.Second, 1, 2, 0},                    // of two units
		{2 * time.Second, 1, 1, time.Second},          // a cooldown
		{time.Second, 100, 1, 500 * time.Millisecond}, // a window's end
		{time.Second, 0, 1, 500 * time.Millisecond},   // no rate
		{math.MaxInt64, 1, 1, math.MaxInt64 / 2},
	} {
		if got := Crowd(c.d, c.n, time.Second, c.cost); got != c.want {
			t.Errorf("Crowd(%v, %d/s, cost %d) = %v, want %v", c.d, c.n, c.cost, got, c.want)
		}
	}
}
