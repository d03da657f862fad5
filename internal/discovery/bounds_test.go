package discovery

import (
	"math"
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
		"half of many":    {quota{limit: 2000, window: time.Minute, part: part{of: 0.5, since: now}}, limiter.GCRA(limiter.Per(951, time.Minute+maxLag), 50)},
		"less than one":   {quota{limit: 10, window: time.Minute, part: part{of: 0.05, since: now}}, limiter.SlidingWindowLog(limiter.Per(1, 120500*time.Millisecond))},
		"the longest":     {quota{limit: 1, window: 30 * 24 * time.Hour, part: part{of: 0.5, since: now}}, limiter.SlidingWindowLog(limiter.Per(1, maxWindow))},
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
	if changed, later := e.adopt(record, now); changed || later || e.quotas[0].left != 3 {
		t.Errorf("the same: %+v", e.quotas)
	}
	for _, other := range []lua.LearntQuota{{Name: 5, Limit: 11, Window: 1e6}, {Name: 5, Limit: 11, Window: 2e6}, {Name: 6, Limit: 11, Window: 2e6}} {
		if changed, _ := e.adopt([]lua.LearntQuota{other}, now); !changed {
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
		if res, _ := d.AllowN(t.Context(), "k", 1); res.Allowed || res.RetryAfter != admission.Max {
			t.Errorf("%+v", res)
		}
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

// TestIdleIsNotStopped: a process that has sent nothing for hours waits for its turn as any other.
func TestIdleIsNotStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, fleet := fleetOf(t, 2)
		admitted(t, fleet[0], "k", 1)
		observe(t, fleet[0], said(5, 4, 10*time.Second, 10*time.Second))
		admitted(t, fleet[1], "k", 1)
		for range 3 {
			time.Sleep(2 * time.Hour)
			if n := admitted(t, fleet[0], "k", 5); n != 5 {
				t.Fatalf("%d admitted", n)
			}
			observe(t, fleet[0], said(5, 0, 10*time.Second, 10*time.Second))
			if n := admitted(t, fleet[1], "k", 5); n != 0 {
				t.Errorf("%d beyond the quota", n)
			}
			if res, _ := fleet[1].AllowN(t.Context(), "k", 1); res.RetryAfter > 11*time.Second {
				t.Errorf("%+v", res)
			}
		}
	})
}

// TestGuessOfTheFleetEnds: what others have guessed is forgotten when a response says a quota; what they have learnt is
// remembered as long as what it has learnt itself.
func TestGuessOfTheFleetEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, left := range map[int64]int{guess: 1, 5: 2} {
			d, err := New(nil)
			if err != nil {
				t.Fatal(err)
			}
			e := d.entry("k")
			e.adopt([]lua.LearntQuota{{Name: name, Limit: 10, Window: 60e6}}, time.Now())
			d.Observe(t.Context(), "k", []retry.Quota{said(10, 9, time.Minute, time.Minute)}, false, time.Now())
			if len(e.quotas) != left || e.quotas[left-1].guessed {
				t.Errorf("beside one of the name %d: %+v", name, e.quotas)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
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

func about(got, want float64) bool { return math.Abs(got-want) < 1e-6 }

// TestCounter counts what was added in a window that slides.
func TestCounter(t *testing.T) {
	const window = 10 * time.Second
	t0 := time.Now()
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	var c counter
	for range 4 {
		c.add(t0, window)
	}
	for _, step := range []struct {
		s    int
		want float64
	}{{0, 4}, {9, 4}, {10, 4}, {15, 2}} {
		if got := c.in(at(step.s), window); !about(got, step.want) {
			t.Errorf("after %d s: %v, want %v", step.s, got, step.want)
		}
	}
	c.add(at(15), window)
	for _, step := range []struct {
		s    int
		want float64
	}{{15, 3}, {20, 1}, {25, 0.5}, {40, 0}, {45, 0}} {
		if got := c.in(at(step.s), window); !about(got, step.want) {
			t.Errorf("after %d s: %v, want %v", step.s, got, step.want)
		}
	}
	c.add(at(65), window)
	if got := c.in(at(70), window); !about(got, 1) { // the window began with it
		t.Errorf("one in a new window: %v", got)
	}
}

// TestLoad: what all send, by what is used and how much of the window is over, and no less than
// by what has grown since the last change.
func TestLoad(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		used, was    int64
		reset, since time.Duration
		want         float64
	}{
		{50, 0, 30 * time.Second, time.Hour, (50 + 29*math.Sqrt(50)/60) / 31 * 60 / 100},
		{50, 0, 0, time.Hour, 0.5},
		{4, 0, time.Minute, time.Hour, (4 + 59.0/60*2) * 60 / 100},
		{4, 0, 2 * time.Minute, time.Hour, (4 + 59.0/60*2) * 60 / 100},
		{50, 40, 0, 30 * time.Second, 0.72},
		{50, 60, 0, 30 * time.Second, 0.52},
		{50, 40, 0, time.Minute, 0.5},
	} {
		p := part{since: now.Add(-c.since), used: c.was}
		if got := p.load(c.used, 100, time.Minute, c.reset, now); !about(got, c.want) {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestLess: what a rejection leaves of a part.
func TestLess(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		share, ours float64
		window, cut time.Duration // since the last cut
		want        float64
	}{
		{1, 20, time.Minute, time.Hour, 0.18},
		{1, 0, time.Minute, time.Hour, 0.0045}, // one request that is under way may be admitted
		{1, -1, time.Minute, time.Hour, 0.9},
		{1, -1, time.Minute, time.Second, 0.75},
		{0.5, 5, time.Minute, time.Hour, 0.5 * (0.9 - 0.4/50)},
		{0.5, 5, time.Minute, 4*time.Minute - 1, 0.375},
		{0.5, 5, time.Minute, 4 * time.Minute, 0.5 * (0.9 - 0.4/50)},
		{0.5, 5, 100 * time.Millisecond, 4*time.Second - 1, 0.375},
		{0.5, 5, 100 * time.Millisecond, 4 * time.Second, 0.5 * (0.9 - 0.4/50)},
		{0.01, 1, time.Minute, time.Hour, 0.005},
		{0.004, 1, time.Minute, time.Hour, 1.0 / 300}, // once in 3 minutes
		{0.002, 1, time.Minute, time.Hour, 0.002},
		{0.002, -1, time.Minute, time.Hour, 0.001},
	} {
		p := part{of: c.share, cut: now.Add(-c.cut)}
		p.less(c.share, c.ours, 100, c.window, now)
		if !about(p.of, c.want) || !p.cut.Equal(now) || !p.since.Equal(now) || p.used != 100 {
			t.Errorf("%+v: %+v", c, p)
		}
	}
}

// TestMore: what a load below the limit adds to a part, once it was watched for long enough.
func TestMore(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		share, load float64
		since       time.Duration
		want        float64 // 0 is no change
	}{
		{0.1, 0.5, 5 * time.Second, 0.1 / 0.525},
		{0.1, 0.5, 5*time.Second - 1, 0},
		{0.1, 0.2, time.Minute, 0.3},
		{0.1, 0.95, time.Minute, 0.1 / 0.975},
		{0.1, 0.951, time.Minute, 0},
		{0.6, 0.5, time.Minute, 1},
	} {
		p := part{of: c.share, since: now.Add(-c.since)}
		changed := p.more(c.share, c.load, 7, time.Minute, now)
		if changed != (c.want != 0) || changed && (!about(p.of, c.want) || p.used != 7) || !changed && p.of != c.share {
			t.Errorf("%+v: %v %+v", c, changed, p)
		}
	}
	// In windows of a second, the most load of nine responses in four seconds.
	for _, c := range []struct {
		responses int
		each      time.Duration
		want      bool
	}{{9, 500 * time.Millisecond, true}, {8, time.Second, false}, {9, 499 * time.Millisecond, false}, {100, 50 * time.Millisecond, true}, {80, 50 * time.Millisecond, false}} {
		p, at, changed := part{of: 0.1, since: now.Add(-time.Hour)}, now, false
		for i := range c.responses {
			load := 0.5
			if i == 3 {
				load = 0.8
			}
			changed = p.more(0.1, load, 7, time.Second, at) || changed
			at = at.Add(c.each)
		}
		if changed != c.want || changed && !about(p.of, 0.1/0.825) {
			t.Errorf("%+v: %v %+v", c, changed, p)
		}
	}
}

// TestOthersOfAPart: four responses that say that half of the limit is used, and twice of what we
// sent, show which part is ours.
func TestOthersOfAPart(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		used    []int64
		sent    int64 // ours, of which one is answered first
		each    time.Duration
		late    bool
		want    float64
		restart bool
	}{
		"four":              {used: []int64{60, 60, 60, 60}, sent: 3, want: 0.9 * 3 / 59},
		"three":             {used: []int64{60, 60, 60}, sent: 3},
		"just half":         {used: []int64{50, 50, 50, 50}, sent: 3, want: 0.9 * 3 / 49},
		"less than half":    {used: []int64{49, 49, 49, 49}, sent: 3},
		"half of it is us":  {used: []int64{61, 61, 61, 61}, sent: 31, want: 0.9 * 17 / 60},
		"more of it is us":  {used: []int64{60, 60, 60, 60}, sent: 31},
		"from before":       {used: []int64{60, 60, 60, 60}, sent: 3, late: true},
		"a window later":    {used: []int64{60, 60, 60, 60}, sent: 3, each: 15 * time.Second, want: 0.9 * 3 / 59},
		"in another window": {used: []int64{60, 60, 60, 60}, sent: 3, each: 15*time.Second + 1, restart: true},
	} {
		p := part{sent: c.sent}
		if p.others(1, 100, time.Minute, now, now) || p.sent != c.sent-1 || p.answered != 0 || p.used != 1 {
			t.Errorf("%s: the first: %+v", name, p)
		}
		at, shown := now, false
		for _, used := range c.used {
			at = at.Add(c.each)
			sent := at.Add(1)
			if c.late {
				sent = now
			}
			if shown = p.others(used, 100, time.Minute, sent, at); shown {
				break
			}
		}
		if shown != (c.want != 0) || shown && (!about(p.of, c.want) || !p.cut.Equal(at)) || c.restart != (!shown && p.since.Equal(at) && c.each > 0) {
			t.Errorf("%s: %v %+v", name, shown, p)
		}
	}
	// Less than half of what was used before is another window.
	for used, restart := range map[int64]bool{19: true, 20: false} {
		p := part{since: now, used: 40, sent: 5, answered: 2}
		if p.others(used, 100, time.Minute, now.Add(1), now.Add(2)); restart != p.since.Equal(now.Add(2)) {
			t.Errorf("%d: %+v", used, p)
		}
	}
}

// TestWhatARejectionCuts: once for each second, and nothing of what is not known.
func TestWhatARejectionCuts(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		q    quota
		sent time.Duration // since the last cut
		want bool
	}{
		"no limit":        {quota{window: time.Minute}, time.Hour, false},
		"no window":       {quota{limit: 10}, time.Hour, false},
		"the first":       {quota{limit: 10, window: time.Minute}, 0, true},
		"the same excess": {quota{limit: 10, window: time.Minute, part: part{cut: now}}, settle - 1, false},
		"another":         {quota{limit: 10, window: time.Minute, part: part{cut: now}}, settle, true},
	} {
		at := now.Add(c.sent)
		if got := c.q.rejected(at, at); got != c.want || got != c.q.part.cut.Equal(at) && c.sent > 0 {
			t.Errorf("%s: %v %+v", name, got, c.q.part)
		}
	}
	// More rejections than requests, as after a restart, are no less than none.
	q := quota{limit: 100, window: time.Minute, alone: true}
	q.answered(now, true)
	if q.rejected(now, now); !about(q.part.of, 0.0045) {
		t.Errorf("%+v", q.part)
	}
}

// TestTaken: the fleet hears of others once, and only of what says a number and a time.
func TestTaken(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		q     quota
		said  retry.Quota
		stale bool
		more  bool
		taken int64
	}{
		"others":              {q: quota{limit: 100, window: time.Minute, left: 90, alone: true}, said: said(100, 50, time.Second, time.Minute), more: true, taken: 40},
		"all":                 {q: quota{limit: 100, window: time.Minute, left: 90}, said: said(100, 0, time.Second, time.Minute), more: true, taken: 100},
		"all, as is known":    {q: quota{limit: 100, window: time.Minute, left: 90, taken: 100, until: now.Add(1)}, said: said(100, 0, time.Second, time.Minute), taken: 100},
		"nine tenths of ours": {q: quota{limit: 100, window: time.Minute, left: 10}, said: said(100, 0, time.Second, time.Minute)},
		"late":                {q: quota{limit: 100, window: time.Minute, left: 90, alone: true}, said: said(100, 50, time.Second, time.Minute), stale: true},
		"no number":           {q: quota{limit: 100, window: time.Minute, left: 90, alone: true}, said: said(100, -1, time.Second, time.Minute)},
		"no time":             {q: quota{limit: 100, window: time.Minute, left: 90, alone: true}, said: said(100, 50, 0, time.Minute)},
		"large":               {q: quota{limit: 5000, window: time.Minute, left: 4000, alone: true}, said: said(5000, 50, time.Second, time.Minute)},
		"with a part":         {q: quota{limit: 100, window: time.Minute, left: 90, part: part{of: 0.5, since: now}}, said: said(100, 0, time.Second, time.Minute)},
	} {
		if more := c.q.learnTaken(c.said, now, c.stale); more != c.more || c.q.taken != c.taken {
			t.Errorf("%s: %v %+v", name, more, c.q)
		}
	}
}
