package discovery

import (
	"math"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/retry"
)

// TestPartIsLearntBeforeTheFirstRejection: a process whose requests are a tenth of what a server counts
// takes a tenth, before the first rejection.
func TestPartIsLearntBeforeTheFirstRejection(t *testing.T) {
	for name, c := range map[string]struct {
		all  int64 // what the server counts for each response
		late bool  // that of a request from before the first response
		want float64
	}{
		"ten processes": {all: 10, want: cutTo * 0.1},
		"alone":         {all: 1, want: 1},
		"two":           {all: 2, want: cutTo * 0.5},
		// Responses overtake each other, and those of an earlier window say more than is used.
		"late": {all: 50, late: true, want: 1},
	} {
		now := time.Now()
		q := quota{limit: 1000, window: time.Second, alone: true}
		first := now
		for used := int64(1); used < 900; used += c.all {
			q.count(now)
			sent := now
			if c.late {
				sent = first
			}
			now = now.Add(time.Millisecond)
			q.observe(said(1000, 1000-used, time.Second, time.Second), sent, now, false)
			if q.part.of != 0 {
				break
			}
		}
		if got := q.share(now); math.Abs(got-c.want) > 0.02*c.want {
			t.Errorf("%s: %.3f, want %.3f", name, got, c.want)
		}
	}
}

// TestRejectedProcessKeepsWhatItHad: the first rejection shows which part of the limit is ours.
func TestRejectedProcessKeepsWhatItHad(t *testing.T) {
	now := time.Now()
	q := quota{limit: 100, window: time.Minute, alone: true}
	for range 12 {
		q.count(now)
	}
	for range 9 {
		q.answered(now, false)
	}
	q.answered(now, true)
	q.rejected(now, now)
	// 9 were admitted, 1 was not, and of 2 that are under way one will be.
	if got := q.share(now); math.Abs(got-cutTo*0.1) > 1e-9 {
		t.Errorf("%v", got)
	}
	// Where there is less than a request for each window, half of it is left, but a request in
	// three minutes.
	q = quota{limit: 10, window: time.Minute, alone: true, part: part{of: 0.08, since: now}}
	q.rejected(now, now)
	if got := q.share(now); got != 0.04 {
		t.Errorf("%v, want half", got)
	}
	for range 20 {
		now = now.Add(2 * time.Second)
		q.rejected(now, now)
	}
	if got := q.share(now); math.Abs(got-1.0/30) > 1e-9 {
		t.Errorf("%v, want a request in three minutes", got)
	}
	if l, _ := q.paced(now); l.Rate().Per/time.Duration(l.Rate().N) != rarest {
		t.Errorf("%v", l)
	}
}

// TestUnusedLimitIsTaken: while a server says that much is left, a part grows; in windows so
// short that a reset in whole seconds says nothing, only when several responses say so.
func TestUnusedLimitIsTaken(t *testing.T) {
	for name, c := range map[string]struct {
		window time.Duration
		limit  int64
		said   func(i int) retry.Quota
		grows  bool
	}{
		"half of a minute's window is left at its end": {time.Minute, 100, func(int) retry.Quota { return said(100, 50, time.Second, time.Minute) }, true},
		"all is used at its end":                       {time.Minute, 100, func(int) retry.Quota { return said(100, 1, time.Second, time.Minute) }, false},
		"as much is used as time has passed":           {time.Minute, 100, func(int) retry.Quota { return said(100, 50, 30*time.Second, time.Minute) }, false},
		"too early to say":                             {time.Minute, 100, func(int) retry.Quota { return said(100, 98, time.Minute, time.Minute) }, false},
		"half of each second":                          {time.Second, 100, func(i int) retry.Quota { return said(100, 50+int64(i%50), time.Second, time.Second) }, true},
		"all of each second, seldom seen":              {time.Second, 100, func(i int) retry.Quota { return said(100, int64(i*13%100), time.Second, time.Second) }, false},
	} {
		now := time.Now()
		q := quota{limit: c.limit, window: c.window, alone: true, part: part{of: 0.1, since: now}}
		now = now.Add(c.window)
		for i := range 200 {
			now = now.Add(50 * time.Millisecond)
			q.observe(c.said(i), now, now, false)
			if q.part.of > 0.1 {
				break
			}
		}
		switch got := q.part.of; {
		case !c.grows && got != 0.1, c.grows && (got < 0.15 || got > growth*0.1):
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestWhatIsUnderWayIsOurs: a process that sends alone, and much at once, takes what it has sent
// for another's.
func TestWhatIsUnderWayIsOurs(t *testing.T) {
	now := time.Now()
	q := quota{limit: 100, window: time.Second, alone: true}
	for range 50 {
		q.count(now)
	}
	old := now
	for _, used := range []int64{10, 20, 30, 40} {
		now = now.Add(time.Millisecond)
		q.observe(said(100, 100-used, time.Second, time.Second), old, now, false)
	}
	q.count(now)
	q.observe(said(100, 49, time.Second, time.Second), now, now.Add(20*time.Millisecond), false)
	if q.part.of != 0 {
		t.Errorf("it left %v to others", 1-q.part.of)
	}
}

// TestPartDoesNotGrowByChance: a part does not grow by what may be chance.
func TestPartDoesNotGrowByChance(t *testing.T) {
	for name, c := range map[string]struct {
		window, age, step time.Duration // the window, how old the part is, and between responses
		said              retry.Quota
	}{
		"three responses in windows of a second": {time.Second, time.Minute, 2 * time.Second, said(100, 90, time.Second, time.Second)},
		"two requests in a third of a window":    {time.Minute, time.Hour, time.Millisecond, said(10, 8, 43*time.Second, time.Minute)},
		"it has just grown":                      {time.Minute, 6 * time.Second, time.Millisecond, said(10, 9, time.Second, time.Minute)},
	} {
		now := time.Now()
		q := quota{limit: c.said.Limit, window: c.window, alone: true, part: part{of: 0.1, since: now.Add(-c.age), used: 1}}
		for range 3 {
			now = now.Add(c.step)
			q.observe(c.said, now, now, false)
		}
		if q.part.of != 0.1 {
			t.Errorf("%s: %v", name, q.part.of)
		}
	}
}
