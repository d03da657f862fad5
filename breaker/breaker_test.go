package breaker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
)

func TestOpensByRatioAndVolume(t *testing.T) {
	for _, tt := range []struct {
		name     string
		s        breaker.Settings
		ok, fail int // in this order
		want     breaker.State
	}{
		{"too few", breaker.Settings{}, 0, 9, breaker.Closed},
		{"just enough", breaker.Settings{}, 0, 10, breaker.Open},
		{"half", breaker.Settings{}, 5, 5, breaker.Open},
		{"below half", breaker.Settings{}, 6, 5, breaker.Closed},
		{"half of many", breaker.Settings{}, 100, 100, breaker.Open},
		{"below half of many", breaker.Settings{}, 100, 99, breaker.Closed},
		{"min requests", breaker.Settings{MinRequests: 3}, 0, 3, breaker.Open},
		{"ratio 1", breaker.Settings{FailureRatio: 1}, 1, 50, breaker.Closed},
		{"ratio 0.07", breaker.Settings{FailureRatio: 0.07}, 93, 7, breaker.Open},
		{"below 0.07", breaker.Settings{FailureRatio: 0.07}, 93, 6, breaker.Closed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.s.ConsecutiveFailures = never
			b := newBreaker(t, tt.s)
			results(t, b, tt.ok, breaker.ClassOK)
			results(t, b, tt.fail-1, breaker.ClassUnavailable)
			isState(t, b, breaker.Closed)
			results(t, b, 1, breaker.ClassUnavailable)
			isState(t, b, tt.want)
		})
	}
}

// A breaker that has seen much success must not need as many failures to open.
func TestOpensByConsecutiveFailures(t *testing.T) {
	for _, tt := range []struct {
		name      string
		inRow     uint32
		interrupt breaker.Class
		want      breaker.State
	}{
		{"consecutive", 0, breaker.ClassUnavailable, breaker.Open},
		{"neutral between", 0, breaker.ClassCaller, breaker.Open},
		{"success between", 0, breaker.ClassOK, breaker.Closed},
		{"as many as set", 12, breaker.ClassUnavailable, breaker.Open},
		{"fewer than set", 13, breaker.ClassUnavailable, breaker.Closed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBreaker(t, breaker.Settings{ConsecutiveFailures: tt.inRow})
			results(t, b, 1000, breaker.ClassOK)
			results(t, b, 9, breaker.ClassUnavailable)
			isState(t, b, breaker.Closed)
			for _, c := range []breaker.Class{tt.interrupt, breaker.ClassSlow, breaker.ClassUnavailable} {
				if p, ok := b.Acquire(); ok {
					p.Done(c, 0)
				}
			}
			isState(t, b, tt.want)
		})
	}
}

func TestNeutralDoesNotCount(t *testing.T) {
	b := newBreaker(t, breaker.Settings{})
	for _, c := range []breaker.Class{
		breaker.ClassNoScript, breaker.ClassRedirect, breaker.ClassCaller,
		breaker.ClassPermission, breaker.ClassBug, breaker.ClassAborted, 200,
	} {
		results(t, b, 20, c)
	}
	// Had they counted as failures it would be open; as successes, or as
	// requests, the ten failures would be too small a share.
	isState(t, b, breaker.Closed)
	results(t, b, 9, breaker.ClassUnavailable)
	isState(t, b, breaker.Closed)
	results(t, b, 1, breaker.ClassUnavailable)
	isState(t, b, breaker.Open)
}

func TestUnreportedDoesNotCount(t *testing.T) {
	b := newBreaker(t, breaker.Settings{})
	for range 100 {
		acquire(t, b)
	}
	trip(t, b)
}

func TestWindowRolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Settings{Window: time.Second, ConsecutiveFailures: never})
		// Nine failures per window never reach the minimum, however they fall.
		for range 200 {
			results(t, b, 1, breaker.ClassUnavailable)
			time.Sleep(120 * time.Millisecond)
		}
		isState(t, b, breaker.Closed)

		// Old successes leave the window by and by, instead of all at once at
		// its end, and do not dilute a failure that is going on.
		time.Sleep(time.Second)
		results(t, b, 30, breaker.ClassOK)
		time.Sleep(850 * time.Millisecond)
		results(t, b, 15, breaker.ClassUnavailable)
		isState(t, b, breaker.Closed)
		time.Sleep(200 * time.Millisecond)
		results(t, b, 1, breaker.ClassUnavailable)
		isState(t, b, breaker.Open)
	})
}

func TestSlowCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Settings{SlowCall: 20 * time.Millisecond, ConsecutiveFailures: never})
		for range 50 {
			acquire(t, b).Done(breaker.ClassOK, 20*time.Millisecond) // exactly at the limit
			acquire(t, b).Done(breaker.ClassBug, time.Second)        // neutral however slow
		}
		for range 50 {
			isState(t, b, breaker.Closed)
			acquire(t, b).Done(breaker.ClassOK, 21*time.Millisecond)
		}
		isState(t, b, breaker.Open)
		if s := b.Snapshot(); s.LastFailure != breaker.ClassSlow {
			t.Errorf("LastFailure = %v", s.LastFailure)
		}

		sleepOpen(t, b)
		acquire(t, b).Done(breaker.ClassOK, 21*time.Millisecond)
		isState(t, b, breaker.Open) // a slow probe does not close it
		sleepOpen(t, b)
		acquire(t, b).Done(breaker.ClassOK, time.Millisecond)
		isState(t, b, breaker.Closed)
	})
}

func TestSlowCallsOffByDefault(t *testing.T) {
	b := newBreaker(t, breaker.Settings{})
	for range 100 {
		acquire(t, b).Done(breaker.ClassOK, time.Hour)
	}
	isState(t, b, breaker.Closed)
}

func TestDoneCountsOnce(t *testing.T) {
	b := newBreaker(t, breaker.Settings{})
	for range 9 {
		p := acquire(t, b)
		q := p // a copy is the same permit
		for range 5 {
			p.Done(breaker.ClassUnavailable, 0)
			q.Done(breaker.ClassSlow, 0)
		}
	}
	isState(t, b, breaker.Closed)
	if s := b.Snapshot(); s.LastFailure != breaker.ClassUnavailable {
		t.Errorf("LastFailure = %v, from a report that does not count", s.LastFailure)
	}
	results(t, b, 1, breaker.ClassUnavailable)
	isState(t, b, breaker.Open)
}

func TestZeroPermit(t *testing.T) {
	breaker.Ticket{}.Done(breaker.ClassUnavailable, time.Second)
}

func TestLateResultsAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Settings{})
		var late []breaker.Ticket
		for range 40 {
			late = append(late, acquire(t, b))
		}
		trip(t, b)
		before := b.Snapshot()
		late[0].Done(breaker.ClassOK, 0)
		late[1].Done(breaker.ClassSlow, 0)
		if after := b.Snapshot(); after != before {
			t.Fatalf("a late result changed %+v to %+v", before, after)
		}

		// Neither does one that comes after the open time: only a caller starts
		// a probe.
		sleepOpen(t, b)
		late[2].Done(breaker.ClassOK, 0)
		late[3].Done(breaker.ClassUnavailable, 0)
		isState(t, b, breaker.Open)

		probe := acquire(t, b)
		late[4].Done(breaker.ClassOK, 0)
		late[5].Done(breaker.ClassUnavailable, 0)
		late[6].Done(breaker.ClassCaller, 0)
		isState(t, b, breaker.HalfOpen)
		refused(t, b)
		probe.Done(breaker.ClassOK, 0)
		isState(t, b, breaker.Closed)

		for _, p := range late {
			p.Done(breaker.ClassUnavailable, 0)
		}
		isState(t, b, breaker.Closed)
	})
}

func TestSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := time.Now()
		b := newBreaker(t, breaker.Settings{})
		time.Sleep(time.Hour)
		if got, want := b.Snapshot(), (breaker.Snapshot{Since: made}); got != want {
			t.Errorf("new: %+v, want %+v", got, want)
		}
		results(t, b, 9, breaker.ClassUnavailable)
		results(t, b, 1, breaker.ClassSlow)
		opened := time.Now()
		s := b.Snapshot()
		if d := s.OpenUntil.Sub(opened); d < 500*time.Millisecond || d > time.Second {
			t.Errorf("open for %v", d)
		}
		s.OpenUntil = time.Time{}
		if want := (breaker.Snapshot{State: breaker.Open, Since: opened, LastFailure: breaker.ClassSlow, Opens: 1}); s != want {
			t.Errorf("open: %+v, want %+v", s, want)
		}

		time.Sleep(2 * time.Second)
		isState(t, b, breaker.Open) // nobody came
		p := acquire(t, b)
		if got, want := b.Snapshot(), (breaker.Snapshot{State: breaker.HalfOpen, Since: time.Now(), LastFailure: breaker.ClassSlow, Opens: 1}); got != want {
			t.Errorf("half-open: %+v, want %+v", got, want)
		}
		p.Done(breaker.ClassUnavailable, 0)
		if s := b.Snapshot(); s.Opens != 2 || s.LastFailure != breaker.ClassUnavailable {
			t.Errorf("open again: %+v", s)
		}
	})
}
