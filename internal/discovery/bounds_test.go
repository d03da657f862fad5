package discovery

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/admission"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// TestPacedBounds: which limit a quota is paced by, at the bounds between them.
func TestPacedBounds(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		q    quota
		want limiter.Limit
	}{
		"one":             {quota{limit: 1, window: time.Second}, limiter.SlidingWindowLog(limiter.Per(1, 1050*time.Millisecond))},
		"a long window":   {quota{limit: 5, window: time.Minute}, limiter.SlidingWindowLog(limiter.Per(5, time.Minute+maxLag))},
		"the largest log": {quota{limit: 1000, window: time.Minute}, limiter.SlidingWindowLog(limiter.Per(1000, time.Minute+maxLag))},
		"more":            {quota{limit: 1001, window: time.Minute}, limiter.GCRA(limiter.Per(952, time.Minute+maxLag), 50)},
		"a part":          {quota{limit: 100, window: time.Minute, alone: true, part: part{of: 0.5, since: now}}, limiter.GCRA(limiter.PerMinute(50), 2)},
		"a small part":    {quota{limit: 10, window: time.Minute, alone: true, part: part{of: 0.01, since: now}}, limiter.GCRA(limiter.Per(1, 10*time.Minute), 1)},
		"of a fleet":      {quota{limit: 100, window: time.Minute, part: part{of: 0.5, since: now}}, limiter.SlidingWindowLog(limiter.Per(50, time.Minute+maxLag))},
		"others have 30":  {quota{limit: 100, window: time.Minute, taken: 30, until: now.Add(1)}, limiter.SlidingWindowLog(limiter.Per(70, time.Minute+maxLag))},
		"others had 30":   {quota{limit: 100, window: time.Minute, taken: 30, until: now}, limiter.SlidingWindowLog(limiter.Per(100, time.Minute+maxLag))},
		"others have all": {quota{limit: 100, window: time.Minute, taken: 100, until: now.Add(1)}, limiter.SlidingWindowLog(limiter.Per(1, time.Minute+maxLag))},
	} {
		if got, ok := c.q.paced(now); !ok || got != c.want {
			t.Errorf("%s: %v %v, want %v", name, got, ok, c.want)
		}
	}
	for limit, want := range map[int64]bool{0: false, 1: true, 1000: true, 1001: false} {
		if q := (quota{limit: limit, window: 1}); q.logged() != want {
			t.Errorf("a limit of %d is counted one by one: %v", limit, !want)
		}
	}
	if q := (quota{limit: 1}); q.logged() {
		t.Error("without a window")
	}
}

// TestShorterWindow: after four windows and twenty responses, and when more was admitted than
// they have room for, the window is the longest reset that was seen.
func TestShorterWindow(t *testing.T) {
	for name, c := range map[string]struct {
		responses int
		each      time.Duration
		used      int64
		reset     time.Duration
		want      time.Duration
	}{
		"too few":              {19, 30 * time.Second, 1, 10 * time.Second, time.Minute},
		"enough":               {20, 30 * time.Second, 1, 10 * time.Second, 10 * time.Second},
		"not four windows":     {80, 3 * time.Second, 1, 10 * time.Second, time.Minute},
		"four windows":         {82, 3 * time.Second, 1, 10 * time.Second, 10 * time.Second},
		"nearly as long":       {100, 5 * time.Second, 1, 48 * time.Second, time.Minute},
		"a fifth shorter":      {100, 5 * time.Second, 1, 47 * time.Second, 47 * time.Second},
		"as many as have room": {81, 5 * time.Second, 13, 10 * time.Second, time.Minute},
	} {
		q := quota{limit: 100, window: time.Minute}
		now := time.Now()
		for range c.responses {
			q.observe(said(100, 100-c.used, c.reset, 0), now, now, false)
			q.answered(now, false)
			now = now.Add(c.each)
		}
		if q.window != c.want {
			t.Errorf("%s: %v, want %v", name, q.window, c.want)
		}
	}
}

// TestLeft: what a decision has left is compared with what the server says, also when the
// limit has changed in between.
func TestLeft(t *testing.T) {
	now := time.Now()
	q := quota{limit: 100, window: time.Minute, left: 80, alone: true, taken: 10, until: now.Add(time.Minute)}
	q.observe(said(50, 29, time.Second, time.Minute), now, now, false)
	if q.left != 30 || q.taken != 0 {
		t.Errorf("50 less: %+v", q)
	}
	q.observe(said(10, 9, time.Second, time.Minute), now, now, false)
	if q.left != 0 {
		t.Errorf("less than was sent: %+v", q)
	}
	q = quota{limit: 100, window: time.Minute, left: -1}
	if q.observe(said(200, 9, time.Second, time.Minute), now, now, false); q.left != -1 {
		t.Errorf("before a decision: %+v", q)
	}
	// Others count from a tenth of the limit on, beyond what is known of them.
	for _, c := range []struct {
		left, taken, remaining int64
		want                   bool
	}{
		{60, 0, 50, false}, {61, 0, 50, true}, {81, 20, 50, true}, {80, 20, 50, false}, {0, 0, -20, true}, {-1, 0, 0, false},
	} {
		q := quota{limit: 100, left: c.left, taken: c.taken, until: now.Add(1)}
		if got := q.others(c.remaining, now); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
		if q.until = now; c.taken > 0 && !q.others(c.remaining, now) {
			t.Errorf("%+v: those of an earlier window count", c)
		}
	}
	q = quota{limit: 100, taken: 30, until: now.Add(1)}
	if q.note(50, now); q.left != 80 {
		t.Errorf("left beside others: %d", q.left)
	}
	if q.note(50, now.Add(1)); q.left != 50 {
		t.Errorf("left after others: %d", q.left)
	}
}

// TestAdopt: what the fleet knows replaces what this process does, but not a later cut of its
// part.
func TestAdopt(t *testing.T) {
	now := time.Now()
	var q quota
	q.adopt(lua.LearntQuota{Name: guess, Limit: 10, Window: 1e6, Stretch: 2000, Cut: 5e6}, now)
	if !q.guessed || q.known != time.Second || q.part.of != 0.5 || !q.part.since.Equal(now.Add(-5*time.Second)) || !q.part.cut.Equal(q.part.since) {
		t.Errorf("%+v", q)
	}
	q.adopt(lua.LearntQuota{Name: 5, Limit: 10, Window: 1e6, Stretch: 4000, Cut: 6e6}, now)
	if q.guessed || q.part.of != 0.5 {
		t.Errorf("an earlier cut: %+v", q.part)
	}
	q.adopt(lua.LearntQuota{Name: 5, Limit: 10, Window: 1e6, Stretch: 4000, Cut: 4e6}, now)
	if q.part.of != 0.25 {
		t.Errorf("a later cut: %+v", q.part)
	}
	q.adopt(lua.LearntQuota{Name: 5, Limit: 10, Window: 1e6}, now)
	if q.part != (part{}) {
		t.Errorf("no cut: %+v", q.part)
	}

	e := entry{quotas: []quota{{name: 5, limit: 10, window: time.Second, left: 3}}}
	record := []lua.LearntQuota{{Name: 5, Limit: 10, Window: 1e6}}
	if e.adopt(record, now) || e.quotas[0].left != 3 {
		t.Errorf("the same: %+v", e.quotas)
	}
	for _, other := range []lua.LearntQuota{{Name: 5, Limit: 11, Window: 1e6}, {Name: 5, Limit: 11, Window: 2e6}, {Name: 6, Limit: 11, Window: 2e6}} {
		if !e.adopt([]lua.LearntQuota{other}, now) {
			t.Errorf("%+v is no change", other)
		}
	}
	if e.quotas[0].left != -1 {
		t.Errorf("of one that is new, %d are left", e.quotas[0].left)
	}
	many := make([]lua.LearntQuota, 9)
	if e.adopt(many, now); len(e.quotas) != retry.MaxQuotas {
		t.Errorf("%d quotas", len(e.quotas))
	}
}

// TestAskedAgainInAnHour: whatever a server says, and all that it says then is new.
func TestAskedAgainInAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		admitted(t, d, "k", 1)
		observe(t, d, said(1, 0, 20*24*time.Hour, 20*24*time.Hour))
		time.Sleep(10 * time.Minute)
		if res, _ := d.AllowN(t.Context(), "k", 1); res.Allowed || res.RetryAfter != admission.Max-10*time.Minute {
			t.Errorf("%+v", res)
		}
		time.Sleep(50*time.Minute - 1)
		if res, _ := d.AllowN(t.Context(), "k", 1); res.Allowed || res.RetryAfter != 1 {
			t.Errorf("%+v", res)
		}
		time.Sleep(1)
		if n := admitted(t, d, "k", 1); n != 1 {
			t.Error("not asked again")
		}
		if e := d.keys.Get("k"); len(e.quotas) != 0 || e.answered {
			t.Errorf("%+v", e)
		}
	})
}

// TestGuessIsOver: a guess grows to twice what it was, and is made anew by another rejection.
func TestGuessIsOver(t *testing.T) {
	now := time.Now()
	q := quota{guessed: true, limit: 10, window: guessWindow, part: part{of: 1, since: now}}
	if q.over(now) || q.share(now) != 1 {
		t.Error("over at once")
	}
	if later := now.Add(time.Hour); !q.over(later) || q.share(later) != 2 {
		t.Errorf("after an hour: %v", q.share(later))
	}
	if q.guessed = false; q.over(now.Add(time.Hour)) || q.share(now.Add(time.Hour)) != 1 {
		t.Error("one that was said")
	}
	r := quota{name: 1, limit: 10, window: time.Second, taken: 3, until: now.Add(time.Second)}.recordAt(now)
	if r != (lua.LearntQuota{Name: 1, Limit: 10, Window: 1e6, Taken: 3, Left: 1e6}) {
		t.Errorf("%+v", r)
	}
	r = quota{name: 1, limit: 10, window: time.Second, taken: 3, until: now}.recordAt(now)
	if r != (lua.LearntQuota{Name: 1, Limit: 10, Window: 1e6}) {
		t.Errorf("others of an earlier window: %+v", r)
	}
}

func (q quota) recordAt(now time.Time) lua.LearntQuota { return q.record(now) }
