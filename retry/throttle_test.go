package retry_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/retry"
)

func newThrottle(t *testing.T, s retry.ThrottleSettings) *retry.Throttle {
	t.Helper()
	th, err := retry.NewThrottle(s)
	if err != nil {
		t.Fatal(err)
	}
	return th
}

func seeded() func() float64 { return rand.New(rand.NewPCG(1, 2)).Float64 }

// TestThrottleFormula: a step table of outcomes, + and -, and what follows.
func TestThrottleFormula(t *testing.T) {
	for _, c := range []struct {
		outcomes         string
		normal, critical float64
	}{
		{"", 0, 0},
		{strings.Repeat("-", 19), 0, 0},
		{strings.Repeat("-", 20), 20. / 21, 20. / 21},
		{strings.Repeat("+", 20), 0, 0},
		{strings.Repeat("+-", 100), 0, 0},
		{strings.Repeat("+--", 60), 0, 0},
		{strings.Repeat("+---", 50), 50. / 201, 0},
		{strings.Repeat("+----", 40), 80. / 201, 0},
		{strings.Repeat("+---------", 20), 140. / 201, 80. / 201},
		// The window holds 200, and only failures after 20 consecutive ones.
		{strings.Repeat("+", 1000) + strings.Repeat("-", 19), 0, 0},
		{strings.Repeat("+", 1000) + strings.Repeat("-", 20), 20. / 21, 20. / 21},
		{strings.Repeat("-", 1000), 200. / 201, 200. / 201},
		{strings.Repeat("-", 1000) + strings.Repeat("+", 10), 170. / 201, 140. / 201},
		{strings.Repeat("-", 1000) + strings.Repeat("+", 67), 0, 0},
		{strings.Repeat("-", 20) + strings.Repeat("+", 10), 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			th := newThrottle(t, retry.ThrottleSettings{})
			for _, o := range c.outcomes {
				th.Report(t.Context(), o == '+')
			}
			for critical, want := range map[bool]float64{false: c.normal, true: c.critical} {
				if got := th.Probability(critical); math.Abs(got-want) > 1e-9 {
					t.Errorf("%.20q…, %d: probability %v, critical %v, want %v", c.outcomes, len(c.outcomes), got, critical, want)
				}
			}
			if th.Rejecting() != (c.normal > 0) {
				t.Errorf("%.20q…: rejecting %v", c.outcomes, th.Rejecting())
			}
		})
	}
}

// run makes calls, one per every, for d, to a server that accepts with the
// probability of works, and returns how many were sent and accepted.
func run(th *retry.Throttle, d, every time.Duration, works func() bool) (calls, sent, accepted int) {
	for start := time.Now(); time.Since(start) < d; time.Sleep(every) {
		calls++
		if th.Draw() < th.Probability(false) {
			continue
		}
		ok := works()
		if sent++; ok {
			accepted++
		}
		th.Report(context.Background(), ok)
	}
	return calls, sent, accepted
}

// TestThrottleLetsThroughWhatWorks: the share of what a server could do, against
// that of its calls that are sent to it, by how often it fails.
func TestThrottleLetsThroughWhatWorks(t *testing.T) {
	for _, c := range []struct {
		fails       float64
		least, most float64 // of the calls that are sent
	}{
		{0, 1, 1},
		{0.3, 1, 1},
		{0.5, 0.999, 1},
		{0.6, 0.97, 1},
		{0.75, 0.65, 0.85},
		{0.9, 0.1, 0.4},
		{0.99, 0.005, 0.06},
		{1, 0.004, 0.01},
	} {
		synctest.Test(t, func(t *testing.T) {
			rnd := seeded()
			th := newThrottle(t, retry.ThrottleSettings{Rand: rnd})
			calls, sent, accepted := run(th, time.Minute, time.Millisecond, func() bool { return rnd() >= c.fails })
			share := float64(sent) / float64(calls)
			t.Logf("fails %.2f: %.4f of %d calls were sent, %d accepted", c.fails, share, calls, accepted)
			if share < c.least || share > c.most {
				t.Errorf("fails %.2f: %.4f of the calls were sent, want %v to %v", c.fails, share, c.least, c.most)
			}
		})
	}
}

// TestThrottleProbes: how many calls a server that is down gets, and how many it
// takes to see that it is well again.
func TestThrottleProbes(t *testing.T) {
	for _, c := range []struct {
		perSecond   int
		least, most int // sent in 2 minutes
		until       time.Duration
	}{
		{1, 20, 24, time.Minute},
		{10, 25, 50, 30 * time.Second},
		{100, 85, 140, 10 * time.Second},
		{1000, 500, 720, 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			rnd := seeded()
			th := newThrottle(t, retry.ThrottleSettings{Rand: rnd})
			every := time.Second / time.Duration(c.perSecond)
			run(th, 10*time.Minute, every, func() bool { return true })
			_, first, _ := run(th, 2*time.Minute, every, func() bool { return false })
			_, sent, _ := run(th, 2*time.Minute, every, func() bool { return false })
			start := time.Now()
			for th.Rejecting() {
				run(th, every, every, func() bool { return true })
			}
			t.Logf("%d/s: %d and %d sent to a server that is down; none is rejected %v after it is back", c.perSecond, first, sent, time.Since(start))
			if sent < c.least || sent > c.most || first > c.most+50 {
				t.Errorf("%d/s: %d and %d were sent, want %d to %d", c.perSecond, first, sent, c.least, c.most)
			}
			if d := time.Since(start); d > c.until {
				t.Errorf("%d/s: calls are rejected for %v after it is back, want at most %v", c.perSecond, d, c.until)
			}
		})
	}
}

// TestThrottleForgets: what has left the window counts no more, and nothing need
// be reported for that.
func TestThrottleForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle(t, retry.ThrottleSettings{Window: time.Minute})
		for range 20 {
			th.Report(t.Context(), false)
		}
		time.Sleep(60 * time.Second)
		if th.Probability(false) == 0 {
			t.Error("forgotten within the window")
		}
		if d := th.Wait(); d != 3*time.Second {
			t.Errorf("wait %v, want 3s", d)
		}
		time.Sleep(time.Second)
		if p := th.Probability(false); p != 0 {
			t.Errorf("probability %v after the window", p)
		}
		if d := th.Wait(); d != time.Second {
			t.Errorf("wait %v, want 1s", d)
		}
	})
}

// TestThrottleChanges: one of each, in order, also for who reports from within.
func TestThrottleChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := time.Now()
		var th *retry.Throttle
		var changes []retry.ThrottleChange
		th = newThrottle(t, retry.ThrottleSettings{Name: "a.test", OnChange: func(_ context.Context, c retry.ThrottleChange) {
			if changes = append(changes, c); c.Throttling {
				for range 100 {
					th.Report(t.Context(), true)
				}
			}
		}})
		time.Sleep(time.Second)
		for range 20 {
			th.Report(t.Context(), false)
		}
		down := made.Add(time.Second)
		want := []retry.ThrottleChange{
			{Name: "a.test", Throttling: true, At: down, Since: made, Requests: 20},
			{Name: "a.test", At: down, Since: down, Requests: 30, Accepts: 10},
		}
		for i := range changes { // of the monotonic clock too
			changes[i].At, changes[i].Since = changes[i].At.Round(0), changes[i].Since.Round(0)
		}
		for i := range want {
			want[i].At, want[i].Since = want[i].At.Round(0), want[i].Since.Round(0)
		}
		if !reflect.DeepEqual(changes, want) {
			t.Errorf("changes\n%+v, want\n%+v", changes, want)
		}
	})
}

// TestThrottleChangesUnderLoad: they alternate, whoever reports them.
func TestThrottleChangesUnderLoad(t *testing.T) {
	last, n := false, 0 // not guarded: OnChange is never called twice at once
	th := newThrottle(t, retry.ThrottleSettings{OnChange: func(_ context.Context, c retry.ThrottleChange) {
		if c.Throttling == last {
			t.Errorf("twice %+v", c)
		}
		last = c.Throttling
		n++
	}})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 4000 {
				th.Report(t.Context(), i/100%2 == 0)
				th.Probability(i%2 == 0)
				th.Wait()
			}
		})
	}
	wg.Wait()
	if n == 0 {
		t.Error("no change")
	}
}

// TestThrottleWait: it is the mean time between what was sent, within its bounds, and what has
// left the window does not count.
func TestThrottleWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle(t, retry.ThrottleSettings{Rand: nil})
		if d := th.Draw(); d < 0 || d >= 1 {
			t.Errorf("drawn %v", d)
		}
		time.Sleep(100 * time.Second)
		want := func(d time.Duration) {
			t.Helper()
			if got := th.Wait(); got != d {
				t.Errorf("%v, want %v", got, d)
			}
		}
		want(time.Second)
		th.Report(t.Context(), false)
		want(time.Second)
		time.Sleep(10 * time.Second)
		th.Report(t.Context(), false)
		want(5 * time.Second)
		time.Sleep(3 * time.Minute) // none is recent
		want(time.Second)
		for range 250 { // all of the ring
			th.Report(t.Context(), false)
		}
		want(time.Second)
		if !th.Rejecting() {
			t.Error("of 200 failures, none is rejected")
		}
		time.Sleep(3 * time.Minute)
		want(time.Second)
		th.Report(t.Context(), false)
		if th.Rejecting() {
			t.Error("one failure in the window, and calls are rejected")
		}
		for range 18 {
			th.Report(t.Context(), false)
		}
		time.Sleep(3 * time.Minute)
		th.Report(t.Context(), false)
		if th.Rejecting() {
			t.Error("what has left the window counts")
		}
	})
}

func TestThrottleSettings(t *testing.T) {
	for _, s := range []retry.ThrottleSettings{{Multiplier: 1}, {Multiplier: 100}, {Window: time.Second}, {Window: time.Hour}, {MinRequests: 1}, {MinRequests: 200}} {
		if _, err := retry.NewThrottle(s); err != nil {
			t.Error(err)
		}
	}
	for field, s := range map[string]retry.ThrottleSettings{
		"Multiplier is 0.5":  {Multiplier: 0.5},
		"Multiplier is NaN":  {Multiplier: math.NaN()},
		"Multiplier is 101":  {Multiplier: 101},
		"Window is 1ms":      {Window: time.Millisecond},
		"Window is 2h":       {Window: 2 * time.Hour},
		"MinRequests is -1":  {MinRequests: -1},
		"MinRequests is 201": {MinRequests: 201},
	} {
		_, err := retry.NewThrottle(s)
		if !errors.Is(err, retry.ErrInvalidConfig) || !strings.Contains(strings.ReplaceAll(fmt.Sprint(err), "h0m0s", "h"), field) {
			t.Errorf("%s: error %v", field, err)
		}
	}
}
