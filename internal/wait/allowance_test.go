package wait

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
		if most, b := a.fits(t.Context(), time.Minute); most != time.Minute || b != 0 || b.Err() != nil {
			t.Error(most, b)
		}
		if most, b := a.fits(t.Context(), time.Minute+1); most != time.Minute || b != Each || b.Err() != nil {
			t.Error(most, b)
		}
		if start := time.Now(); !a.Sleep(t.Context(), time.Minute, nil, nil) || time.Since(start) != time.Minute {
			t.Error("slept for", time.Since(start))
		}
		if most, b := a.fits(t.Context(), 31*time.Second); most != 30*time.Second || b != Total || a.Most(t.Context()) != most {
			t.Error("beyond the sum:", most, b)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, b := a.fits(ctx, 10*time.Second); b != Deadline || !errors.Is(b.Err(), context.DeadlineExceeded) {
			t.Error("up to the very deadline:", b)
		}
		if most, b := a.fits(ctx, time.Second); most != 10*time.Second-1 || b != 0 {
			t.Error(most, b)
		}
		if _, b := a.fits(ctx, 10*time.Second-1); b != 0 {
			t.Error("a nanosecond before the deadline:", b)
		}
		start := time.Now()
		if a.Sleep(ctx, 20*time.Second, nil, nil) || time.Since(start) != 10*time.Second {
			t.Error("did not leave with its context, but after", time.Since(start))
		}
		b := Allowance{Each: time.Minute, Total: time.Minute, Until: time.Now().Add(5 * time.Second)}
		if most, bound := b.fits(t.Context(), 5*time.Second); most != 5*time.Second-1 || bound != Expiry || bound.Err() == nil {
			t.Error("up to the very expiry:", most, bound)
		}
		if _, bound := b.fits(t.Context(), 4*time.Second); bound != 0 {
			t.Error(bound)
		}
		b.Until = time.Now().Add(-time.Second)
		if most, bound := b.fits(t.Context(), 0); most != 0 || bound != 0 {
			t.Error("no wait, after it:", most, bound)
		}
		left := make(chan struct{})
		close(left)
		if a.Sleep(t.Context(), time.Second, left, nil) {
			t.Error("did not leave")
		}
		for range 100 { // select chooses at random
			if !a.Sleep(ctx, 0, left, nil) {
				t.Fatal("left before a wait of nothing")
			}
		}
		if a.waited != 70*time.Second {
			t.Error(a.waited)
		}
	})
}

// purse counts what is asked of a budget.
type purse int

func (p *purse) Withdraw() bool { *p++; return *p == 1 }

// TestBudgetIsAskedLast: a retry that is not made takes nothing from the budget.
func TestBudgetIsAskedLast(t *testing.T) {
	a, p := Allowance{Each: time.Minute, Total: time.Hour}, purse(0)
	if d, b := a.Next(t.Context(), time.Hour, time.Second, &p); d != time.Hour || b != Each || p != 0 {
		t.Errorf("beyond the bounds: %v, %v, asked %d times", d, b, p)
	}
	if d, b := a.Next(t.Context(), time.Second, time.Second, &p); d < time.Second || d > 2*time.Second || b != 0 {
		t.Error(d, b)
	}
	if d, b := a.Next(t.Context(), time.Second, time.Second, &p); d != time.Second || b != Budget || b.Err() != nil {
		t.Error(d, b)
	}
	if _, b := a.Next(t.Context(), time.Second, 0, nil); b != 0 {
		t.Error("without a budget:", b)
	}
}

func TestCrowd(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		n    int
		cost int
		want time.Duration
	}{
		{time.Second, 1, 1, 0},                    // the pace itself
		{2 * time.Second, 1, 2, 0},                // of two units
		{time.Second + time.Microsecond, 1, 1, 0}, // by a clock that counts microseconds
		{time.Second + time.Microsecond + 1, 1, 1, (time.Second + time.Microsecond + 1) / 2},
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

func TestSpread(t *testing.T) {
	for range 1000 {
		if d := Spread(time.Second, 500*time.Millisecond, time.Minute); d < time.Second || d > 1500*time.Millisecond {
			t.Fatalf("%v, want 1 s to 1.5 s", d)
		}
		if d := Spread(time.Second, 500*time.Millisecond, 1100*time.Millisecond); d < time.Second || d > 1100*time.Millisecond {
			t.Fatalf("%v, want 1 s to 1.1 s", d)
		}
	}
	seen := map[time.Duration]bool{}
	for range 1000 {
		seen[Spread(5, 2, time.Second)] = true
	}
	if len(seen) != 3 || !seen[5] || !seen[6] || !seen[7] {
		t.Errorf("5 to 7 ns: %v", seen)
	}
	for _, most := range []time.Duration{0, time.Second, -time.Second} {
		if d := Spread(time.Second, time.Second, most); d != time.Second {
			t.Errorf("at most %v: %v, want it as it is", most, d)
		}
	}
	if d := Spread(math.MaxInt64-1, math.MaxInt64, math.MaxInt64); d < math.MaxInt64-1 {
		t.Errorf("%v: overflowed", d)
	}
}
