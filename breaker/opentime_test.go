package breaker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
)

// openFor is how long an open breaker was told to stay so.
func openFor(t testing.TB, b *breaker.Breaker) time.Duration {
	t.Helper()
	isState(t, b, breaker.Open)
	s := b.Snapshot()
	return s.OpenUntil.Sub(s.Since)
}

// within fails unless d is in the upper half of full.
func within(t testing.TB, d, full time.Duration) {
	t.Helper()
	if d < full/2 || d > full {
		t.Fatalf("open for %v, want from %v to %v", d, full/2, full)
	}
}

func TestRejectsUntilOpenTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Settings{})
		trip(t, b)
		time.Sleep(openFor(t, b) - 1)
		refused(t, b)
		isState(t, b, breaker.Open)
		time.Sleep(1)
		acquire(t, b)
		isState(t, b, breaker.HalfOpen)
	})
}

func TestOpenTimeDoublesAndResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Settings{})
		trip(t, b)
		within(t, openFor(t, b), time.Second)
		// Long enough that a shift without a limit would overflow.
		for i := range 100 {
			sleepOpen(t, b)
			acquire(t, b).Done(breaker.ClassUnavailable, 0)
			full := 30 * time.Second
			if i < 4 {
				full = 2 * time.Second << i
			}
			within(t, openFor(t, b), full)
		}

		// Closed, but not for a window yet: it goes on from where it was.
		sleepOpen(t, b)
		acquire(t, b).Done(breaker.ClassOK, 0)
		time.Sleep(10*time.Second - 1)
		trip(t, b)
		within(t, openFor(t, b), 30*time.Second)

		sleepOpen(t, b)
		acquire(t, b).Done(breaker.ClassOK, 0)
		time.Sleep(10 * time.Second)
		trip(t, b)
		within(t, openFor(t, b), time.Second)
	})
}

// Time spent half-open, with nothing but neutral results, is not healthy time.
func TestHalfOpenDoesNotReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Settings{})
		trip(t, b)
		sleepOpen(t, b)
		acquire(t, b).Done(breaker.ClassCaller, 0)
		time.Sleep(time.Hour)
		acquire(t, b).Done(breaker.ClassUnavailable, 0)
		within(t, openFor(t, b), 2*time.Second)
		sleepOpen(t, b)
		acquire(t, b).Done(breaker.ClassUnavailable, 0)
		within(t, openFor(t, b), 4*time.Second)
	})
}

func TestFlappingGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Settings{})
		full := time.Second
		for range 5 {
			trip(t, b)
			within(t, openFor(t, b), full)
			full *= 2
			sleepOpen(t, b)
			acquire(t, b).Done(breaker.ClassOK, 0)
		}
	})
}

func TestOpenTimeIsJittered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const full = time.Second
		low, high, sum := full, time.Duration(0), time.Duration(0)
		const n = 2000
		b := newBreaker(t, breaker.Settings{MinRequests: 1, OpenMin: full, OpenMax: full})
		results(t, b, 1, breaker.ClassUnavailable)
		for range n {
			d := openFor(t, b)
			within(t, d, full)
			low, high, sum = min(low, d), max(high, d), sum+d
			sleepOpen(t, b)
			acquire(t, b).Done(breaker.ClassUnavailable, 0)
		}
		// 2000 draws miss a 1 % margin with probability (0.98)^2000 < 1e-17.
		if low > full*51/100 || high < full*99/100 {
			t.Errorf("drawn from %v to %v", low, high)
		}
		if mean := sum / n; mean < full*73/100 || mean > full*77/100 {
			t.Errorf("mean %v, want about %v", mean, full*3/4)
		}
	})
}

func TestShortestOpenTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Settings{MinRequests: 1, OpenMin: time.Millisecond, OpenMax: time.Millisecond})
		for range 100 {
			results(t, b, 1, breaker.ClassUnavailable)
			within(t, openFor(t, b), time.Millisecond)
			sleepOpen(t, b)
		}
	})
}
