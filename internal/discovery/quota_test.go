package discovery

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

func said(limit, remaining int64, reset, window time.Duration) retry.Quota {
	return retry.Quota{Name: "q", Limit: limit, Remaining: remaining, Reset: reset, Window: window}
}

// TestQuotaLearns: what each sequence of responses leaves of a quota.
func TestQuotaLearns(t *testing.T) {
	t0 := time.Now()
	const no = -1 * time.Nanosecond // a reset that is not said
	for name, c := range map[string]struct {
		said   []retry.Quota
		limit  int64
		window time.Duration
	}{
		"limit and window":               {[]retry.Quota{said(100, 99, no, time.Minute)}, 100, time.Minute},
		"up at once":                     {[]retry.Quota{said(100, 99, no, time.Minute), said(500, 499, no, time.Minute)}, 500, time.Minute},
		"down at once":                   {[]retry.Quota{said(100, 99, no, time.Minute), said(5, 4, no, time.Minute)}, 5, time.Minute},
		"window down at once":            {[]retry.Quota{said(100, 99, no, time.Minute), said(100, 99, no, time.Second)}, 100, time.Second},
		"longest reset":                  {[]retry.Quota{said(100, 99, 7*time.Second, 0), said(100, 99, 41*time.Second, 0), said(100, 98, 12*time.Second, 0)}, 100, 41 * time.Second},
		"reset just below a minute":      {[]retry.Quota{said(100, 99, 57*time.Second, 0)}, 100, time.Minute},
		"no limit, but what remains":     {[]retry.Quota{said(0, 40, 10*time.Second, 0), said(0, 30, 9*time.Second, 0)}, 41, 10 * time.Second},
		"nothing of time":                {[]retry.Quota{said(100, 99, no, 0)}, 100, 0},
		"a reset beyond what waits help": {[]retry.Quota{said(100, 99, math.MaxInt64, 0)}, 100, 0},
	} {
		var q quota
		for i, s := range c.said {
			q.observe(s, t0, t0.Add(time.Duration(i)*time.Second), false)
		}
		if q.limit != c.limit || q.window != c.window {
			t.Errorf("%s: %d per %v, want %d per %v", name, q.limit, q.window, c.limit, c.window)
		}
	}
}

// TestLateResponseChangesNothing: a response to a request from before the limit was known may
// say the limit of that time, and what remained then.
func TestLateResponseChangesNothing(t *testing.T) {
	var q quota
	now := time.Now()
	q.observe(said(50, 49, time.Minute, time.Minute), now, now, false)
	before := q
	if changed, more := q.observe(said(100, 0, time.Minute, time.Hour), now, now, true); changed || more || q.limit != before.limit || q.window != before.window || q.taken != 0 {
		t.Errorf("%v %v: %+v", changed, more, q)
	}
}

// TestWindowIsForgotten: a window that has become shorter without a word is found after a
// while, and not after one short reset.
func TestWindowIsForgotten(t *testing.T) {
	var q quota
	now := time.Now()
	q.observe(said(10, 9, time.Minute, 0), now, now, false)
	for i := range 120 {
		now = now.Add(5 * time.Second)
		q.observe(said(10, 8, 10*time.Second, 0), now, now, false)
		q.answered(now, false)
		if i == 2 && q.window != time.Minute {
			t.Fatal("forgotten at once")
		}
	}
	if q.window != 10*time.Second {
		t.Errorf("%v", q.window)
	}
}

// TestSlidingWindowIsKept: where requests are sent evenly, the oldest of a sliding window is
// always about to leave it, and a reset says only when.
func TestSlidingWindowIsKept(t *testing.T) {
	for _, each := range []time.Duration{time.Second, 5 * time.Second, 20 * time.Second} {
		var q quota
		now := time.Now()
		q.observe(said(100, 0, time.Minute, 0), now, now, false) // after a burst
		used := int64(time.Minute / each)
		for i := range 500 {
			now = now.Add(each)
			rejected := i%3 == 0 && each == time.Second // others are there, too
			q.observe(said(100, 100-used, each, 0), now, now, false)
			q.answered(now, rejected)
		}
		if q.window != time.Minute {
			t.Errorf("a request each %v: the window is %v", each, q.window)
		}
	}
}

// TestPacedIsSafe: of n+1 consecutive requests that the limit admits, the first and the last are
// a window of the server apart, whatever it is.
func TestPacedIsSafe(t *testing.T) {
	now := time.Now()
	for _, n := range []int64{1, 2, 10, 60, 999, 1000, 1001, 5000, 1_000_000} {
		for _, w := range []time.Duration{time.Second, 10 * time.Second, time.Minute, time.Hour, 24 * time.Hour, maxWindow} {
			q := quota{limit: n, window: w}
			l, ok := q.paced(now)
			if !ok {
				t.Fatalf("%d per %v is not paced", n, w)
			}
			if _, err := limiter.NewLocal(l); err != nil {
				t.Errorf("%d per %v: %v: %v", n, w, l, err)
			}
			// n+1 requests, of which a burst comes at once and each other one at its time.
			span := l.Rate().Per.Seconds()
			if l.Algorithm() == "gcra" {
				span *= float64(n+1-int64(l.Burst())) / float64(l.Rate().N)
			}
			if span < 0.999*w.Seconds() || span > 1.1*w.Seconds() {
				t.Errorf("%d per %v: %v admits %d in %v s", n, w, l, n+1, span)
			}
		}
	}
	for _, q := range []quota{{}, {limit: 10}, {window: time.Second}, {limit: maxLimit + 1, window: time.Second}, {limit: 1, window: maxWindow + 1}} {
		if l, ok := q.paced(now); ok {
			t.Errorf("%+v: %v", q, l)
		}
	}
}

// TestRejectionsCut: rejections cut once for each excess, more where one follows soon, and what
// was cut comes back.
func TestRejectionsCut(t *testing.T) {
	now := time.Now()
	q := quota{limit: 100, window: time.Second}
	rate := func() int { l, _ := q.paced(now); return l.Rate().N }
	if !q.rejected(now, now) || q.rejected(now, now) || rate() != 90 {
		t.Errorf("first %d", rate())
	}
	now = now.Add(2 * time.Second)
	if !q.rejected(now, now) || rate() != 67 {
		t.Errorf("second %d", rate())
	}
	for range 60 {
		now = now.Add(2 * time.Second)
		q.rejected(now, now)
	}
	if l, _ := q.paced(now); l.Rate().N != 1 || l.Rate().Per < 900*time.Second {
		t.Errorf("a server that always rejects: %v", l)
	}
	q.part.set(0.5, now, 0)
	if now = now.Add(2 * calm); rate() != 84 {
		t.Errorf("after two calm minutes %d", rate())
	}
	if now = now.Add(2 * calm); rate() != 100 {
		t.Errorf("after four calm minutes %d", rate())
	}
}

// TestOthers: what others take of a quota is left to them until it is reset.
func TestOthers(t *testing.T) {
	now := time.Now()
	q := quota{limit: 100, window: time.Minute, left: 90, alone: true} // 10 are ours
	q.observe(said(100, 50, 20*time.Second, time.Minute), now, now, false)
	// 10 of the limit and the 50 that are left.
	if l, _ := q.paced(now); l.Rate().N != 60 {
		t.Errorf("%v", l)
	}
	if l, _ := q.paced(now.Add(21 * time.Second)); l.Rate().N != 100 {
		t.Errorf("after the reset %v", l)
	}
	// In a fleet, what is missing may be the others': the next decision knows.
	for left, want := range map[int64]int{89: 61, 70: 80, 55: 100} {
		q = quota{limit: 100, window: time.Minute, left: 90}
		if _, more := q.observe(said(100, 50, 20*time.Second, time.Minute), now, now, false); more {
			t.Error("others are known before a decision")
		}
		q.note(left, now.Add(time.Second))
		if l, _ := q.paced(now); l.Rate().N != want {
			t.Errorf("%d are left by the next decision: %v, want %d", left, l, want)
		}
		_, more := q.observe(said(100, 50, 20*time.Second, time.Minute), now, now, false)
		if more != (want < 100) {
			t.Errorf("%d are left by the next decision: the fleet is told: %v", left, more)
		}
		if _, more = q.observe(said(100, 50, 20*time.Second, time.Minute), now, now, false); more {
			t.Error("it is told twice")
		}
	}
	q = quota{limit: 100, window: time.Minute, left: 90}
	q.observe(said(100, 50, 20*time.Second, time.Minute), now, now, false)
	if q.note(89, now.Add(21*time.Second)); q.taken != 0 {
		t.Errorf("after the reset: %+v", q)
	}
	q = quota{limit: 100, window: time.Minute, left: 90}
	q.observe(said(100, 0, 20*time.Second, time.Minute), now, now, false)
	if !q.none(now) || q.none(now.Add(21*time.Second)) {
		t.Errorf("%+v", q)
	}
	q = quota{} // one of a fleet, whose first response counts what the others have sent
	q.observe(said(100, 40, 20*time.Second, time.Minute), now, now, false)
	if l, _ := q.paced(now); l.Rate().N != 100 {
		t.Errorf("before a decision: %v", l)
	}
	q = quota{}
	q.observe(said(100, 0, 20*time.Second, time.Minute), now, now, false)
	if !q.none(now) {
		t.Errorf("nothing is left, before a decision: %+v", q)
	}
	q = quota{alone: true}
	q.observe(said(100, 40, 20*time.Second, time.Minute), now, now, false)
	if l, _ := q.paced(now); l.Rate().N != 41 {
		t.Errorf("a process alone: %v", l)
	}
	q = quota{limit: 100, window: time.Minute, left: 0} // all are ours
	q.observe(said(100, 0, 20*time.Second, time.Minute), now, now, false)
	if q.taken != 0 {
		t.Errorf("%+v", q)
	}
}

// TestRecord: what Redis keeps is what was learnt.
func TestRecord(t *testing.T) {
	now := time.Now()
	q := quota{name: 5, limit: 100, window: time.Minute, part: part{of: 0.5, since: now.Add(-time.Second)}, taken: 30, until: now.Add(time.Second)}
	var p quota
	p.adopt(q.record(now), now)
	if a, b := fmt.Sprint(q.paced(now)), fmt.Sprint(p.paced(now)); a != b {
		t.Errorf("%s, %s", a, b)
	}
	p.adopt(lua.LearntQuota{Window: math.MaxInt64, Cut: math.MaxInt64, Left: math.MaxInt64}, now) // must not overflow
	if _, ok := p.paced(now); ok {
		t.Errorf("%+v", p)
	}
}

// FuzzQuota: whatever servers say, a limit that results is valid, and waits are bounded.
func FuzzQuota(f *testing.F) {
	f.Add(int64(100), int64(5), int64(7e9), int64(0), uint8(3), true)
	f.Add(int64(math.MaxInt64), int64(-1), int64(math.MaxInt64), int64(math.MaxInt64), uint8(0), false)
	f.Add(int64(1), int64(0), int64(1), int64(1), uint8(255), true)
	f.Fuzz(func(t *testing.T, limit, remaining, reset, window int64, times uint8, rejected bool) {
		var q quota
		now := time.Now()
		for range times {
			q.observe(retry.Quota{Limit: max(0, limit), Remaining: max(-1, remaining), Reset: time.Duration(max(-1, reset)), Window: time.Duration(max(0, window))}, now, now, false)
			if rejected {
				q.rejected(now, now)
			}
			now = now.Add(2 * time.Second)
		}
		l, ok := q.paced(now)
		if !ok {
			return
		}
		if _, err := limiter.NewLocal(l); err != nil {
			t.Errorf("%v: %v", l, err)
		}
		if q.until.Sub(now) > maxWindow {
			t.Errorf("stops until %v", q.until)
		}
	})
}

// TestUncount: a request that is not sent leaves no trace, and what was counted before it stays.
func TestUncount(t *testing.T) {
	now := time.Now()
	for before := range 3 {
		q := quota{window: time.Minute}
		for range before {
			q.count(now)
		}
		want := q
		q.count(now)
		q.uncount()
		if q.sent.now != want.sent.now || q.part.sent != want.part.sent {
			t.Errorf("%v and %d of %d", q.sent.now, q.part.sent, before)
		}
	}
}
