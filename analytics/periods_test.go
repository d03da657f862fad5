package analytics_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/analytics"
)

// TestPeriods: what is reported is what was in the current and the previous period.
func TestPeriods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		top := newTop(t, 10, analytics.WithPeriod(time.Minute))
		for _, s := range []struct {
			at         time.Duration
			deny       string
			since      time.Duration
			denied     int64
			a, b       int64
			lastDenied time.Duration // of a
		}{
			{at: 0, since: 0},
			{at: 10 * time.Second, deny: "a", since: 0, denied: 1, a: 1, lastDenied: 10 * time.Second},
			{at: 59 * time.Second, deny: "b", since: 0, denied: 2, a: 1, b: 1, lastDenied: 10 * time.Second},
			{at: 60 * time.Second, since: 0, denied: 2, a: 1, b: 1, lastDenied: 10 * time.Second},
			{at: 90 * time.Second, deny: "a", since: 0, denied: 3, a: 2, b: 1, lastDenied: 90 * time.Second},
			{at: 120 * time.Second, since: time.Minute, denied: 1, a: 1, lastDenied: 90 * time.Second},
			{at: 130 * time.Second, deny: "b", since: time.Minute, denied: 2, a: 1, b: 1, lastDenied: 90 * time.Second},
			// Nobody looks for two periods.
			{at: 245 * time.Second, since: 3 * time.Minute},
			{at: 250 * time.Second, deny: "a", since: 3 * time.Minute, denied: 1, a: 1, lastDenied: 250 * time.Second},
			{at: 10 * time.Hour, since: 10*time.Hour - time.Minute},
		} {
			time.Sleep(s.at - time.Since(begin))
			if s.deny != "" {
				tell(top, s.deny, 1, false)
			}
			r := top.Report(10)
			a, _ := byKey(r, "a")
			b, _ := byKey(r, "b")
			if !r.Since.Equal(begin.Add(s.since)) || r.Denied != s.denied || a.Denied != s.a || b.Denied != s.b || a.Error+b.Error != 0 {
				t.Errorf("after %v: %+v", s.at, r)
			}
			if s.a > 0 && !a.LastDenied.Equal(begin.Add(s.lastDenied)) {
				t.Errorf("after %v: last denied %v", s.at, a.LastDenied.Sub(begin))
			}
			if r.Since.Location() != time.UTC {
				t.Errorf("since %v", r.Since)
			}
		}
	})
}

// TestPeriodBeginsOnce: those who find a period over at the same time don't begin one
// each, which would forget what came before.
func TestPeriodBeginsOnce(t *testing.T) {
	const callers = 8
	synctest.Test(t, func(t *testing.T) {
		top := newTop(t, 100, analytics.WithPeriod(time.Second))
		for period := range int64(200) {
			start := make(chan struct{})
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					<-start
					tell(top, "k", 1, false)
				})
			}
			synctest.Wait()
			close(start)
			wg.Wait()
			if k, _ := byKey(top.Report(1), "k"); k.Denied != callers*min(2, period+1) {
				t.Fatalf("period %d: %+v", period, k)
			}
			time.Sleep(time.Second)
		}
	})
}
