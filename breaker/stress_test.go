package breaker_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
)

const callers = 100

// Nothing but failures and neutral results: once open, it never closes, so
// every permit is a probe, and there may be one at a time.
func TestStressOneProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Settings{OpenMin: time.Millisecond, OpenMax: 2 * time.Millisecond, ProbeTimeout: time.Hour})
		trip(t, b)
		var inFlight, probes, failures atomic.Int32
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range 300 {
					p, ok := b.Acquire()
					if !ok {
						time.Sleep(rand.N(500 * time.Microsecond))
						continue
					}
					probes.Add(1)
					if n := inFlight.Add(1); n != 1 {
						t.Errorf("%d probes in flight", n)
					}
					time.Sleep(rand.N(100 * time.Microsecond))
					inFlight.Add(-1)
					if rand.N(2) == 0 {
						p.Done(breaker.ClassCaller, 0)
					} else {
						failures.Add(1)
						p.Done(breaker.ClassUnavailable, 0)
					}
				}
			})
		}
		wg.Wait()
		// Only a failed probe opens it again: none was given up before its time.
		if got, want := b.Snapshot().Opens, uint64(failures.Load())+1; got != want {
			t.Errorf("%d opens, want %d", got, want)
		}
		if n := probes.Load(); n < 20 {
			t.Errorf("only %d probes: the test shows nothing", n)
		}
	})
}

// All results, lost permits, repeated and late reports: the changes are
// delivered one at a time, each begins where the one before ended, and none is
// lost or doubled.
func TestStressTransitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *breaker.Breaker
		var inside atomic.Int32
		var changes []breaker.Change
		b = newBreaker(t, breaker.Settings{
			Window: 10 * time.Millisecond, MinRequests: 5, OpenMin: time.Millisecond, OpenMax: 4 * time.Millisecond,
			ProbeTimeout: time.Millisecond, SlowCall: 150 * time.Microsecond,
			OnChange: func(_ context.Context, c breaker.Change) {
				if inside.Add(1) != 1 {
					t.Error("two deliveries at once")
				}
				changes = append(changes, c)
				b.State()
				if p, ok := b.Acquire(); ok {
					p.Done(breaker.ClassCaller, 0)
				}
				inside.Add(-1)
			},
		})
		classes := []breaker.Class{
			breaker.ClassOK, breaker.ClassOK, breaker.ClassOK, breaker.ClassUnavailable,
			breaker.ClassUnavailable, breaker.ClassSlow, breaker.ClassCaller, breaker.ClassBug,
		}
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range 300 {
					p, ok := b.Acquire()
					took := rand.N(200 * time.Microsecond)
					time.Sleep(took)
					if !ok || rand.N(20) == 0 {
						continue
					}
					if rand.N(20) == 0 {
						time.Sleep(5 * time.Millisecond)
					}
					c := classes[rand.N(len(classes))]
					p.Done(c, took)
					p.Done(c, took)
				}
			})
		}
		wg.Wait()

		s := b.Snapshot()
		state, opens := breaker.Closed, uint64(0)
		for i, c := range changes {
			if c.From != state || c.To == c.From || c.To == breaker.HalfOpen && c.From != breaker.Open {
				t.Fatalf("change %d from %v to %v, after %v", i, c.From, c.To, state)
			}
			if i > 0 && c.At.Before(changes[i-1].At) {
				t.Fatalf("change %d is before the last one", i)
			}
			if c.To == breaker.Open {
				opens++
			}
			if (c.To == breaker.Open) != c.Cause.Failure() || (c.To == breaker.Open) != (c.OpenFor > 0) {
				t.Fatalf("change %d: %+v", i, c)
			}
			state = c.To
		}
		if state != s.State || opens != s.Opens {
			t.Errorf("changes end %v after %d opens, the breaker is %v after %d", state, opens, s.State, s.Opens)
		}
		if opens < 10 {
			t.Errorf("only %d opens: the test shows nothing", opens)
		}
	})
}

// Many copies of one permit, reported at the same time, are one result.
func TestStressDoneOnce(t *testing.T) {
	b := newBreaker(t, breaker.Settings{MinRequests: 1000, FailureRatio: 1, ConsecutiveFailures: never})
	for range 999 {
		p := acquire(t, b)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { p.Done(breaker.ClassUnavailable, 0) })
		}
		wg.Wait()
	}
	isState(t, b, breaker.Closed)
	results(t, b, 1, breaker.ClassUnavailable)
	isState(t, b, breaker.Open)
}
