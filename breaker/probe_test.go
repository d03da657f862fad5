package breaker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
)

func TestOneProbeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Settings{})
		trip(t, b)
		sleepOpen(t, b)
		p := acquire(t, b)
		for range 10 {
			refused(t, b)
			time.Sleep(4 * time.Millisecond)
		}
		isState(t, b, breaker.HalfOpen)
		p.Done(breaker.ClassOK, 0)
		isState(t, b, breaker.Closed)
		for range 10 {
			acquire(t, b) // all at once, since it is closed
		}
	})
}

func TestClosedStartsAfresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Settings{})
		trip(t, b)
		sleepOpen(t, b)
		acquire(t, b).Done(breaker.ClassOK, 0)
		// The failures before do not count, though they are within the window.
		results(t, b, 9, breaker.ClassUnavailable)
		isState(t, b, breaker.Closed)
	})
}

func TestNeutralProbeReleasesItsTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Settings{})
		trip(t, b)
		opens := b.Snapshot().Opens
		sleepOpen(t, b)
		for _, c := range []breaker.Class{
			breaker.ClassNoScript, breaker.ClassRedirect, breaker.ClassCaller,
			breaker.ClassPermission, breaker.ClassBug, breaker.ClassAborted,
		} {
			p := acquire(t, b)
			refused(t, b)
			p.Done(c, 0)
			isState(t, b, breaker.HalfOpen)

			// It is no longer the probe: neither its second report nor the time
			// since may be taken for the next one's.
			next := acquire(t, b)
			p.Done(breaker.ClassOK, 0)
			p.Done(breaker.ClassUnavailable, 0)
			isState(t, b, breaker.HalfOpen)
			refused(t, b)
			next.Done(breaker.ClassCaller, 0)
			time.Sleep(time.Second)
		}
		acquire(t, b).Done(breaker.ClassOK, 0)
		isState(t, b, breaker.Closed)
		if got := b.Snapshot().Opens; got != opens {
			t.Errorf("opened %d more times", got-opens)
		}
	})
}

func TestSilentProbeIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Settings{})
		trip(t, b)
		sleepOpen(t, b)
		lost := acquire(t, b)
		time.Sleep(50*time.Millisecond - 1)
		refused(t, b)
		isState(t, b, breaker.HalfOpen)
		time.Sleep(1)
		refused(t, b)
		isState(t, b, breaker.Open)
		within(t, openFor(t, b), 2*time.Second)
		s := b.Snapshot()
		if s.Opens != 2 || s.LastFailure != breaker.ClassSlow {
			t.Errorf("%+v", s)
		}

		lost.Done(breaker.ClassOK, 0) // while open
		if got := b.Snapshot(); got != s {
			t.Errorf("changed to %+v", got)
		}
		sleepOpen(t, b)
		next := acquire(t, b)
		lost.Done(breaker.ClassOK, 0) // while the next one is out
		isState(t, b, breaker.HalfOpen)
		next.Done(breaker.ClassOK, 0)
		isState(t, b, breaker.Closed)
	})
}

// The caller who finds the probe overdue is refused too, also by a clock that
// moves on between the two: it opens for a time, not for an instant.
func TestGivingUpRejects(t *testing.T) {
	b := newBreaker(t, breaker.Settings{MinRequests: 1, OpenMin: time.Millisecond, OpenMax: time.Hour, ProbeTimeout: time.Millisecond})
	results(t, b, 1, breaker.ClassUnavailable)
	for range 5 {
		<-time.After(time.Until(b.Snapshot().OpenUntil))
		for b.State() == breaker.Open {
			b.Acquire()
		}
		<-time.After(2 * time.Millisecond)
		refused(t, b)
		isState(t, b, breaker.Open)
	}
}

// The verdict on a late probe must not depend on whether someone asked between
// its deadline and its report.
func TestLateProbeFailed(t *testing.T) {
	for c, cause := range map[breaker.Class]breaker.Class{
		breaker.ClassOK:          breaker.ClassSlow,
		breaker.ClassCaller:      breaker.ClassSlow,
		breaker.ClassUnavailable: breaker.ClassUnavailable,
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBreaker(t, breaker.Settings{})
			trip(t, b)
			sleepOpen(t, b)
			p := acquire(t, b)
			time.Sleep(50 * time.Millisecond)
			p.Done(c, 0)
			if s := b.Snapshot(); s.State != breaker.Open || s.LastFailure != cause {
				t.Errorf("%v after the deadline: %+v", c, s)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			b := newBreaker(t, breaker.Settings{ProbeTimeout: time.Second})
			trip(t, b)
			sleepOpen(t, b)
			p := acquire(t, b)
			time.Sleep(time.Second - 1)
			p.Done(breaker.ClassOK, 0)
			isState(t, b, breaker.Closed)
		})
	}
}

// TestTicketsOfProbes: the ticket of the call that shows if Redis is back says so until it is reported;
// no other does, also not one that was reported before.
func TestTicketsOfProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Settings{})
		old := acquire(t, b)
		if old.Probe() || (breaker.Ticket{}).Probe() {
			t.Error("a probe of a closed breaker")
		}
		old.Done(breaker.ClassCaller, 0)
		trip(t, b)
		for range 3 {
			sleepOpen(t, b)
			p := acquire(t, b)
			if !p.Probe() || old.Probe() {
				t.Errorf("probe %v, an earlier ticket %v", p.Probe(), old.Probe())
			}
			p.Done(breaker.ClassUnavailable, 0)
			if p.Probe() {
				t.Error("a probe after its report")
			}
			old = p
		}
	})
}
