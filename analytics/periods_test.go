package analytics_test

import (
	"fmt"
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

// TestBothPeriodsErr: what is certain of a key, and what may be too much, adds up over both periods: a key that
// one of them has not kept may have been denied there as often as the least that it has.
func TestBothPeriodsErr(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top := newTop(t, 1) // of which there are several, by hash: all that is here is a bound
		truth := map[string]int64{}
		for period := range 3 {
			for i := range 400 {
				key := fmt.Sprint("k", (i*7+period*13)%40)
				if i%3 == 0 {
					key = "often"
				}
				tell(top, key, 1, false)
				if period > 0 {
					truth[key]++
				}
			}
			last := time.Now()
			if period < 2 {
				time.Sleep(analytics.DefaultPeriod)
			}
			r := top.Report(1)
			k := r.Keys[0]
			if period == 2 && (r.Denied != 800 || k.Denied < truth[k.Key] || k.Denied-k.Error > truth[k.Key]) {
				t.Errorf("%+v, but it was %d", k, truth[k.Key])
			}
			if !k.LastDenied.Equal(last) {
				t.Errorf("last denied at %v, want %v", k.LastDenied, last)
			}
		}
	})
}

// TestDefaultPeriod: what is denied is reported for 10 to 20 minutes.
func TestDefaultPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top := newTop(t, 1)
		tell(top, "k", 1, false)
		time.Sleep(20*time.Minute - time.Nanosecond)
		if r := top.Report(1); r.Denied != 1 {
			t.Errorf("%+v", r)
		}
		time.Sleep(time.Nanosecond)
		if r := top.Report(1); r.Denied != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// TestLastDenialToTheMillisecond: it is noted at the first denial, and again a millisecond later.
func TestLastDenialToTheMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, top := time.Now(), newTop(t, 1)
		for _, c := range []struct{ at, last time.Duration }{
			{700 * time.Microsecond, time.Millisecond}, {1699 * time.Microsecond, time.Millisecond}, {1700 * time.Microsecond, 2 * time.Millisecond}, {10 * time.Millisecond, 10 * time.Millisecond},
		} {
			time.Sleep(c.at - time.Since(begin))
			tell(top, "k", 1, false)
			if last := top.Report(1).Keys[0].LastDenied.Sub(begin); last != c.last {
				t.Errorf("after %v: %v, want %v", c.at, last, c.last)
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
