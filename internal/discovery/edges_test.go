package discovery

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/admission"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// TestLeftOfAnotherLimit: what is left moves with the limit, and is not known at first where others may have some.
func TestLeftOfAnotherLimit(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		q     quota
		limit int64
		want  int64
	}{
		"first, of a fleet":    {quota{}, 10, -1},
		"first, of one":        {quota{alone: true}, 10, 9},
		"larger, nothing left": {quota{limit: 10, window: time.Second}, 12, 2},
		"smaller":              {quota{limit: 10, window: time.Second, left: 3}, 5, 0},
		"not known":            {quota{limit: 10, window: time.Second, left: -1}, 12, -1},
	} {
		if c.q.observe(retry.Quota{Name: "q", Limit: c.limit, Remaining: -1, Window: time.Second}, now, now, false); c.q.left != c.want {
			t.Errorf("%s: %d are left, want %d", name, c.q.left, c.want)
		}
	}
}

// TestNothingLeftIsSaid: a response that says that nothing is left says as much as any other.
func TestNothingLeftIsSaid(t *testing.T) {
	now := time.Now()
	alone := quota{limit: 10, window: time.Second, alone: true, left: -1}
	if alone.observe(said(10, 0, time.Second, time.Second), now, now, false); !alone.part.since.Equal(now) {
		t.Error("others are not looked for")
	}
	for _, limit := range []int64{1, 10} {
		q := quota{limit: limit, window: time.Second, left: -1, part: part{of: 0.5, since: now}}
		if q.observe(said(limit, 0, time.Second, time.Second), now, now, false); q.part.loads != 1 {
			t.Errorf("its load of a limit of %d is not noted", limit)
		}
	}
	whole := quota{limit: 10, window: time.Second, left: -1, part: part{of: 1, since: now}}
	if _, more := whole.observe(said(10, 0, time.Second, time.Second), now, now, false); !more || whole.taken != 10 {
		t.Errorf("that others have all of it is not for the fleet: %+v", whole)
	}
}

// TestNothingLeftDenies: where this process has counted what is used itself, it denies requests until there is more;
// else they have to be stopped.
func TestNothingLeftDenies(t *testing.T) {
	now := time.Now()
	for left, want := range map[int64]bool{-1: false, 0: true, 1: false} {
		q := quota{limit: 10, window: time.Minute, left: left}
		if got := q.paces(said(10, 0, time.Minute, time.Minute), now); got != want {
			t.Errorf("with %d left by its own count: %v", left, got)
		}
		if !q.paces(said(10, 1, time.Minute, time.Minute), now) {
			t.Errorf("with %d left by its own count, and one by the server's", left)
		}
	}
	half := quota{limit: 10, window: time.Minute, part: part{of: 0.5, since: now}}
	if half.paces(said(10, 0, time.Minute, time.Minute), now) {
		t.Error("a part of the limit is used up")
	}
}

// TestFleetCountsWhatItUsed: where a response says that nothing is left, the limiter says whether the fleet has used
// that; a block, another limit, a part of one, and a process alone say nothing of it.
func TestFleetCountsWhatItUsed(t *testing.T) {
	none := []retry.Quota{said(100, 0, time.Minute, time.Minute)}
	for name, c := range map[string]struct {
		used   int
		before func(a, b *Discovery)
		want   bool
	}{
		"all":                   {used: 100, want: true},
		"all but one":           {used: 99},
		"a block":               {used: 99, before: func(_, b *Discovery) { _ = b.Block(t.Context(), "k", time.Second) }},
		"a part":                {used: 99, before: func(a, _ *Discovery) { a.keys.Get("k").quotas[0].part.set(0.5, time.Now(), 0) }},
		"nothing of that name":  {used: 100, before: func(a, _ *Discovery) { a.keys.Get("k").quotas[0].name++ }},
		"too large to count":    {used: 100, before: func(a, _ *Discovery) { a.keys.Get("k").quotas[0].limit = maxLogged + 1 }},
		"the limiter is closed": {used: 100, before: func(a, _ *Discovery) { _ = a.pacer.Close() }},
		"alone":                 {used: 100, before: func(a, _ *Discovery) { a.keys.Get("k").quotas[0].alone = true }},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, fleet := fleetOf(t, 2)
			a, b := fleet[0], fleet[1]
			admitted(t, a, "k", 1)
			observe(t, a, said(100, 99, time.Minute, time.Minute))
			time.Sleep(time.Second) // b asks what a has learnt
			admitted(t, a, "k", 89)
			admitted(t, b, "k", c.used-90)
			if c.before != nil {
				c.before(a, b)
			}
			if got := a.Counted(t.Context(), "k", none); got != c.want {
				t.Errorf("%s: %v", name, got)
			}
			if left := a.keys.Get("k").quotas[0].left; (left == 0) != c.want {
				t.Errorf("%s: %d are left", name, left)
			}
			if a.Counted(t.Context(), "another key", none) {
				t.Errorf("%s: a key of which nothing is known", name)
			}
		})
	}
}

// TestWindowsAreBounded, and a response without a reset says nothing of one.
func TestWindowsAreBounded(t *testing.T) {
	now, q := time.Now(), quota{limit: 10}
	if q.observe(retry.Quota{Limit: 10, Window: 1000 * 24 * time.Hour}, now, now, false); q.window != maxWindow+time.Microsecond {
		t.Errorf("a window of %v", q.window)
	}
	q = quota{limit: 10}
	if q.learnWindow(retry.Quota{Limit: 10}, now, false) || q.peaks != 0 {
		t.Errorf("no reset: %+v", q)
	}
	q.learnWindow(retry.Quota{Limit: 10, Remaining: 10, Reset: time.Second}, now, false)
	if q.most != 0 || q.peaks != 1 {
		t.Errorf("nothing used: %+v", q)
	}
	if q.learnWindow(retry.Quota{Limit: 10, Reset: time.Second}, now, false); q.most != 10 {
		t.Errorf("all used: %+v", q)
	}
}

// TestLongestOfLateIsTheWindow: a window is forgotten when no reset was nearly as long for a while, for the longest there was since.
func TestLongestOfLateIsTheWindow(t *testing.T) {
	now := time.Now()
	for passed, want := range map[int64]time.Duration{25: time.Minute, 26: 20 * time.Second} { // 5 in each of 5.02 windows
		q := quota{limit: 10, window: time.Minute, known: time.Minute}
		for i := range forgetResponses {
			reset, at := 10*time.Second, now
			if i == 0 {
				reset = 20 * time.Second
			}
			if i == forgetResponses-1 {
				at, q.passed = now.Add(241*time.Second), passed
			}
			changed := q.learnWindow(retry.Quota{Limit: 10, Remaining: 5, Reset: reset}, at, false)
			if changed != (i == forgetResponses-1 && want < time.Minute) {
				t.Errorf("%d: response %d: changed %v", passed, i, changed)
			}
		}
		if q.window != want {
			t.Errorf("%d: %v, want %v", passed, q.window, want)
		}
	}
}

// TestNothingIsCountedWithoutAWindow.
func TestNothingIsCountedWithoutAWindow(t *testing.T) {
	var q quota
	q.count(time.Now())
	q.answered(time.Now(), false)
	if q.part.sent != 0 || q.passed != 0 {
		t.Errorf("%+v", q)
	}
}

// TestRecordOfNow: what was cut now, and what others have of a window.
func TestRecordOfNow(t *testing.T) {
	now := time.Now()
	for want, q := range map[lua.LearntQuota]quota{
		{Window: 1e6, Stretch: 2000}:       {window: time.Second, part: part{of: 0.5, since: now}},
		{Window: 1e6}:                      {window: time.Second, until: now.Add(time.Second)},
		{Window: 1e6, Taken: 1, Left: 1e6}: {window: time.Second, taken: 1, until: now.Add(time.Second)},
	} {
		if got := q.record(now); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	q := quota{part: part{since: now}}
	if q.adopt(lua.LearntQuota{Limit: 10, Window: 1e6, Stretch: 2000, Cut: 4e6}, now); q.part.of != 0.5 {
		t.Errorf("the first part: %+v", q.part)
	}
}

// TestPartBeginsAnew: nothing that was seen of an earlier part counts.
func TestPartBeginsAnew(t *testing.T) {
	now := time.Now()
	p := part{most: 0.7, loads: 3}
	if p.set(0.5, now, 5); p.most != 0 || p.loads != 0 {
		t.Errorf("%+v", p)
	}
	p = part{of: 0.5, since: now.Add(-time.Hour)}
	for i := range 1000 {
		if p.more(0.5, 2, 5, time.Minute, now.Add(time.Duration(i)*time.Second)) {
			t.Fatal("larger under load")
		}
		if p.loads == 0 && i > 0 {
			return
		}
	}
	t.Errorf("%+v", p)
}

// TestCounterRolls at the end of a window, and forgets at the end of the next.
func TestCounterRolls(t *testing.T) {
	now := time.Now()
	var c counter
	for range 4 {
		c.add(now, time.Second)
	}
	c.add(now.Add(time.Second), time.Second)
	if got := c.in(now.Add(1500*time.Millisecond), time.Second); got != 3 { // 1, and half of 4
		t.Errorf("%v after one and a half", got)
	}
	if got := c.in(now.Add(3*time.Second), time.Second); got != 0 {
		t.Errorf("%v after three", got)
	}
}

// deaf is a pacer that decides nothing.
type deaf struct{ Pacer }

func (deaf) Reserve(context.Context, string, ...limiter.CallOption) (*limiter.Reservation, error) {
	return nil, limiter.ErrUnavailable
}

// TestWithoutADecision a request is sent.
func TestWithoutADecision(t *testing.T) {
	d := Of(deaf{}, nil)
	d.entry("k").quotas = []quota{{name: 1, limit: 1, window: time.Hour}}
	if n := admitted(t, d, "k", 3); n != 3 {
		t.Errorf("%d were sent", n)
	}
}

// TestLeastOfSeveral: what is left is that of the quota with the least, in whatever order.
func TestLeastOfSeveral(t *testing.T) {
	for _, limits := range [][2]int64{{5, 3}, {3, 5}} {
		d, err := New(nil)
		if err != nil {
			t.Fatal(err)
		}
		d.entry("k").quotas = []quota{{name: 1, limit: limits[0], window: time.Hour}, {name: 2, limit: limits[1], window: time.Hour}}
		if res, _ := d.AllowN(t.Context(), "k", 1); !res.Allowed || res.Remaining != 2 {
			t.Errorf("%v: %+v", limits, res)
		}
		_ = d.Close()
	}
}

// TestRequestsAreCounted in windows of ten seconds, of which two are known.
func TestRequestsAreCounted(t *testing.T) {
	now := time.Now()
	e := entry{second: now, sent: 3}
	for i, c := range []struct {
		at        time.Duration
		was, sent int64
	}{{guessWindow - 1, 0, 4}, {guessWindow, 4, 1}, {guessWindow + 1, 4, 2}, {4 * guessWindow, 0, 1}} {
		if e.count(now.Add(c.at)); e.was != c.was || e.sent != c.sent {
			t.Errorf("%d: %d before, %d now", i, e.was, e.sent)
		}
	}
}

// TestTooManyKeys: of one for which there is no room nothing is learnt.
func TestTooManyKeys(t *testing.T) {
	d, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for i := range maxKeys {
		d.entry(fmt.Sprint(i))
	}
	if observe(t, d, said(5, 4, time.Second, time.Second)) {
		t.Error("it is paced")
	}
	if res, has := d.Take(t.Context(), "k"); !res.Allowed || res.Remaining != math.MaxInt32 || has != nil {
		t.Errorf("%+v", res)
	}
}

// TestWhatIsSaved: the first that is learnt; and a limit that has changed is the reason of a rejection.
func TestWhatIsSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, fleet := fleetOf(t, 1)
		d := fleet[0]
		admitted(t, d, "k", 1)
		if observe(t, d, said(10, 9, time.Minute, time.Minute)); m.saves != 1 {
			t.Errorf("saved %d times", m.saves)
		}
		time.Sleep(time.Second)
		if observe(t, d, retry.Quota{Name: "other", Limit: 7, Remaining: 6, Reset: time.Minute, Window: time.Minute}); m.saves != 2 {
			t.Errorf("with another quota: saved %d times", m.saves)
		}
		d.Observe(t.Context(), "k", []retry.Quota{said(5, 0, time.Minute, time.Minute)}, true, time.Now())
		if q := d.keys.Get("k").quotas[0]; q.limit != 5 || q.part.of != 0 {
			t.Errorf("a part of another limit: %+v", q)
		}
	})
}

// TestRequestsBeforeTheFirstResponse are counted when theirs comes, which says nothing new.
func TestRequestsBeforeTheFirstResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, fleet := fleetOf(t, 2)
		var sent []time.Time
		for _, d := range fleet {
			admitted(t, d, "k", 1)
			sent = append(sent, time.Now())
			time.Sleep(200 * time.Millisecond)
		}
		for i, d := range fleet {
			d.Observe(t.Context(), "k", []retry.Quota{said(5, 4, time.Minute, time.Minute)}, false, sent[i])
		}
		// The same process hears of the other request, too.
		fleet[0].Observe(t.Context(), "k", []retry.Quota{said(5, 4, time.Minute, time.Minute)}, false, sent[1])
		if n := admitted(t, fleet[0], "k", 5); n != 2 {
			t.Errorf("%d of 5 were sent after three", n)
		}
	})
}

// empty is a shelf that has lost everything, or does not answer, of one process.
type empty struct {
	*memory
	err error
}

func (e empty) Load(context.Context, string) ([]lua.LearntQuota, error) { return nil, e.err }
func (empty) Processes() int                                            { return 1 }

// TestWhatIsKnownStays where Redis does not answer, or has lost it.
func TestWhatIsKnownStays(t *testing.T) {
	for _, err := range []error{nil, errors.New("no Redis")} {
		synctest.Test(t, func(t *testing.T) {
			_, fleet := fleetOf(t, 1)
			d := fleet[0]
			admitted(t, d, "k", 1)
			observe(t, d, said(5, 4, time.Minute, time.Minute))
			d.shelf = empty{new(memory), err}
			time.Sleep(2 * time.Second)
			if n := admitted(t, d, "k", 9); n != 4 {
				t.Errorf("%v: %d more of 5", err, n)
			}
		})
	}
}

// TestLeastGuess: of one request that was rejected one is left, of one process.
func TestLeastGuess(t *testing.T) {
	for sent, want := range map[int]int64{1: 1, 10: 7} {
		synctest.Test(t, func(t *testing.T) {
			_, fleet := fleetOf(t, 1)
			d := Of(fleet[0].pacer, empty{memory: new(memory)})
			d.entry("k").answered = true
			admitted(t, d, "k", sent)
			d.Observe(t.Context(), "k", nil, true, time.Now())
			if got := d.entry("k").quotas[0].limit; got != want {
				t.Errorf("%d of %d, want %d", got, sent, want)
			}
		})
	}
}

// TestGuessEnds: a guess that was made when little was sent, and that no other rejection follows, does not keep a key at
// twice that while it is in use.
func TestGuessEnds(t *testing.T) {
	for _, shared := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			_, fleet := fleetOf(t, 1)
			d := fleet[0]
			if !shared {
				d = Of(d.pacer, nil)
			}
			admitted(t, d, "k", 1)
			d.Observe(t.Context(), "k", nil, true, time.Now())
			for range 5 {
				time.Sleep(time.Minute)
				admitted(t, d, "k", 1)
				d.Observe(t.Context(), "k", nil, false, time.Now())
			}
			if n := admitted(t, d, "k", 100); n != 100 {
				t.Errorf("shared %v: %d of 100 requests five minutes after the only rejection", shared, n)
			}
		})
	}
}

// TestGuesses: a rejection of a server that says nothing leaves 0.7 of what was sent, for all processes; another one after
// the guess has doubled begins anew.
func TestGuesses(t *testing.T) {
	for _, shared := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m, fleet := fleetOf(t, 1)
			d, want := fleet[0], int64(14)
			if !shared {
				d, want = Of(d.pacer, nil), 7
			}
			e := d.entry("k")
			e.answered = true
			admitted(t, d, "k", 10)
			d.Observe(t.Context(), "k", nil, true, time.Now())
			if q := e.quotas[0]; q.limit != want || q.part.of != 1 {
				t.Errorf("shared %v: %+v", shared, q)
			}
			if shared && m.saves != 1 {
				t.Errorf("saved %d times", m.saves)
			}
			time.Sleep(time.Hour)
			admitted(t, d, "k", 3)
			d.Observe(t.Context(), "k", nil, true, time.Now())
			if q := e.quotas[0]; q.limit >= want {
				t.Errorf("shared %v, anew: %+v", shared, q)
			}
		})
	}
}

// TestNewQuotaIsNeverStale: a quota that is not known yet is learnt from any response, also from one to a request that was sent
// before another quota was learnt.
func TestNewQuotaIsNeverStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := alone(t)
		a, b := said(100, 98, time.Minute, time.Minute), said(3, 2, time.Minute, time.Minute)
		a.Name, b.Name = "a", "b"
		_, first := d.Take(t.Context(), "k")
		time.Sleep(time.Second)
		_, second := d.Take(t.Context(), "k")
		sent := time.Now()
		time.Sleep(time.Second)
		for _, of := range []struct {
			has  admission.Taken
			said []retry.Quota
		}{{first, []retry.Quota{a}}, {second, []retry.Quota{a, b}}} {
			if _, save := d.Learn("k", of.said, false, sent, of.has); save != nil {
				save(t.Context())
			}
			time.Sleep(time.Millisecond)
		}
		if n := admitted(t, d, "k", 50); n != 2 {
			t.Errorf("%d are sent after the first, of 3", n)
		}
	})
}
