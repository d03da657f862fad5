package breaker_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
)

func TestOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []breaker.Change
		b := newBreaker(t, breaker.Settings{Name: "shard-1", OnChange: func(_ context.Context, c breaker.Change) { got = append(got, c) }})
		var want []breaker.Change
		made, outage := time.Now(), time.Time{}
		expect := func(from, to breaker.State, cause breaker.Class) {
			t.Helper()
			c := breaker.Change{Name: "shard-1", From: from, To: to, At: time.Now(), Since: outage, Cause: cause}
			if from == breaker.Closed {
				c.Since, outage = made, time.Now()
			}
			if to == breaker.Open {
				c.OpenFor = openFor(t, b)
			}
			want = append(want, c)
			if !slices.Equal(got, want) {
				t.Fatalf("got  %+v\nwant %+v", got, want)
			}
		}
		time.Sleep(time.Hour)
		results(t, b, 9, breaker.ClassUnavailable)
		results(t, b, 1, breaker.ClassSlow)
		expect(breaker.Closed, breaker.Open, breaker.ClassSlow)
		sleepOpen(t, b)
		p := acquire(t, b)
		expect(breaker.Open, breaker.HalfOpen, breaker.ClassOK)
		p.Done(breaker.ClassUnavailable, 0)
		expect(breaker.HalfOpen, breaker.Open, breaker.ClassUnavailable)
		sleepOpen(t, b)
		acquire(t, b)
		expect(breaker.Open, breaker.HalfOpen, breaker.ClassOK)
		time.Sleep(50 * time.Millisecond)
		refused(t, b)
		expect(breaker.HalfOpen, breaker.Open, breaker.ClassSlow)
		sleepOpen(t, b)
		p = acquire(t, b)
		expect(breaker.Open, breaker.HalfOpen, breaker.ClassOK)
		p.Done(breaker.ClassOK, 0)
		expect(breaker.HalfOpen, breaker.Closed, breaker.ClassOK)
	})
}

// A callback may use the breaker, even change its state again. The changes it
// makes are delivered after it returns, in order.
func TestOnChangeMayUseTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *breaker.Breaker
		var states []breaker.State
		inside := false
		b = newBreaker(t, breaker.Settings{OnChange: func(_ context.Context, c breaker.Change) {
			if inside {
				t.Error("called within itself")
			}
			inside = true
			defer func() { inside = false }()
			states = append(states, c.To)
			if c.To == breaker.Open && len(states) < 5 {
				if b.State() != breaker.Open || b.Snapshot().Opens == 0 {
					t.Error("not open yet")
				}
				time.Sleep(time.Minute)
				acquire(t, b).Done(breaker.ClassUnavailable, 0) // half-open and open again
			}
		}})
		results(t, b, 10, breaker.ClassUnavailable)
		want := []breaker.State{breaker.Open, breaker.HalfOpen, breaker.Open, breaker.HalfOpen, breaker.Open}
		if !slices.Equal(states, want) {
			t.Errorf("%v, want %v", states, want)
		}
	})
}

// While one goroutine delivers, others go on: a slow callback costs nobody else
// anything, and their changes wait their turn.
func TestSlowOnChangeDelaysNoOtherCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var states []breaker.State
		b := newBreaker(t, breaker.Settings{OnChange: func(_ context.Context, c breaker.Change) {
			if len(states) == 0 {
				time.Sleep(time.Hour)
			}
			states = append(states, c.To)
		}})
		go results(t, b, 10, breaker.ClassUnavailable)
		synctest.Wait()
		start := time.Now()
		sleepOpen(t, b)
		acquire(t, b).Done(breaker.ClassOK, 0)
		isState(t, b, breaker.Closed)
		if d := time.Since(start); d > time.Second {
			t.Errorf("held up for %v", d)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if want := []breaker.State{breaker.Open, breaker.HalfOpen, breaker.Closed}; !slices.Equal(states, want) {
			t.Errorf("%v, want %v", states, want)
		}
	})
}

func TestPanickingOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var states []breaker.State
		b := newBreaker(t, breaker.Settings{OnChange: func(_ context.Context, c breaker.Change) {
			states = append(states, c.To)
			if len(states) <= 2 {
				panic("callback")
			}
		}})
		panics := func(f func()) {
			t.Helper()
			defer func() {
				if r := recover(); r != "callback" {
					t.Fatalf("recovered %v", r)
				}
			}()
			f()
		}
		results(t, b, 9, breaker.ClassUnavailable)
		p := acquire(t, b)
		panics(func() { p.Done(breaker.ClassUnavailable, 0) })
		isState(t, b, breaker.Open)
		refused(t, b)

		sleepOpen(t, b)
		panics(func() { b.Acquire() }) // the probe's permit is lost
		isState(t, b, breaker.HalfOpen)
		refused(t, b)
		time.Sleep(50 * time.Millisecond)
		refused(t, b) // and given up

		sleepOpen(t, b)
		acquire(t, b).Done(breaker.ClassOK, 0)
		want := []breaker.State{breaker.Open, breaker.HalfOpen, breaker.Open, breaker.HalfOpen, breaker.Closed}
		if !slices.Equal(states, want) {
			t.Errorf("%v, want %v", states, want)
		}
	})
}

// What a panic left undelivered goes out with the next call, whatever that is.
func TestDeliveryGoesOnAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *breaker.Breaker
		var states []breaker.State
		b = newBreaker(t, breaker.Settings{OnChange: func(_ context.Context, c breaker.Change) {
			states = append(states, c.To)
			if len(states) == 1 {
				time.Sleep(time.Minute)
				acquire(t, b).Done(breaker.ClassOK, 0)
				panic("with two more to deliver")
			}
		}})
		func() {
			defer func() { _ = recover() }()
			results(t, b, 10, breaker.ClassUnavailable)
		}()
		acquire(t, b)
		if want := []breaker.State{breaker.Open, breaker.HalfOpen, breaker.Closed}; !slices.Equal(states, want) {
			t.Errorf("%v, want %v", states, want)
		}
	})
}
