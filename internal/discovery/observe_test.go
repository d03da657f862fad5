package discovery

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/retry"
)

// alone returns a discovery of one process.
func alone(t *testing.T) *Discovery {
	t.Helper()
	d, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// TestLateResponse: a response to a request that was sent before a limit was learnt, by a
// response or from the fleet, does not bring the old limit back.
func TestLateResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, fleet := fleetOf(t, 2)
		a, b := fleet[0], fleet[1]
		old, less := said(10, 9, time.Minute, time.Minute), said(4, 3, time.Minute, time.Minute)
		admitted(t, a, "k", 1)
		observe(t, a, old)
		time.Sleep(time.Second)
		admitted(t, b, "k", 1) // b has the limit
		sent := time.Now()
		time.Sleep(2 * time.Minute)
		observe(t, a, less)
		time.Sleep(time.Second)
		admitted(t, b, "k", 1)
		for _, d := range fleet {
			d.Observe(t.Context(), "k", []retry.Quota{old}, false, sent)
			if q := d.keys.Get("k").quotas[0]; q.limit != 4 {
				t.Errorf("a limit of %d", q.limit)
			}
		}
	})
}

// TestSavedOnce: what came from the fleet is not saved again before half of its life is over, and
// nothing is saved of a server that says nothing.
func TestSavedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, fleet := fleetOf(t, 2)
		a, b := fleet[0], fleet[1]
		a.Observe(t.Context(), "k", nil, false, time.Now())
		time.Sleep(time.Hour)
		if a.Observe(t.Context(), "k", nil, false, time.Now()); m.saves != 0 {
			t.Fatalf("%+v", m)
		}
		ten := said(10, 9, time.Minute, time.Minute)
		observe(t, a, ten)
		time.Sleep(minLife/2 - time.Minute)
		admitted(t, b, "k", 1)
		if observe(t, a, ten); m.saves != 1 {
			t.Errorf("saved %d times within half of its life", m.saves)
		}
		saves := m.saves
		for range 3 {
			time.Sleep(minLife / 6)
			observe(t, b, ten)
		}
		if m.saves != saves {
			t.Errorf("saved %d times by a process that has it from another", m.saves-saves)
		}
		time.Sleep(1)
		if observe(t, b, ten); m.saves != saves+1 {
			t.Errorf("saved %d times after half of its life", m.saves-saves)
		}
		if len(m.all) != 1 || m.all[0].Limit != 10 {
			t.Errorf("%+v", m.all)
		}
	})
}

// TestRejectedProcessesComeBackApart: after a cut, the next request of a process without a fleet
// waits for one to two of its intervals.
func TestRejectedProcessesComeBackApart(t *testing.T) {
	var least, most float64 = 9, 0
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			d := alone(t)
			admitted(t, d, "k", 1)
			observe(t, d, said(100, 99, time.Minute, time.Minute))
			admitted(t, d, "k", 9)
			time.Sleep(time.Second)
			d.Observe(t.Context(), "k", nil, true, time.Now())
			e := d.keys.Get("k")
			rate := e.paced(time.Now())[0].limit.Rate()
			one := rate.Per / time.Duration(rate.N)
			res, err := d.AllowN(t.Context(), "k", 1)
			if err != nil || res.Allowed || one < 10*time.Second {
				t.Fatalf("%+v, %v, one in %v", res, err, one)
			}
			x := float64(res.RetryAfter) / float64(one)
			least, most = min(least, x), max(most, x)
		})
	}
	if least < 1 || most > 2.001 || most-least < 0.1 {
		t.Errorf("after %.2f to %.2f intervals", least, most)
	}
}

// TestOthersEndWithTheirWindow: who is denied because of what others have taken waits no longer
// than these count.
func TestOthersEndWithTheirWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := alone(t)
		admitted(t, d, "k", 1)
		observe(t, d, said(10, 4, 20*time.Second, time.Minute)) // five are of others
		if n := admitted(t, d, "k", 9); n != 4 {
			t.Errorf("%d of what is left", n)
		}
		time.Sleep(5 * time.Second)
		if res, _ := d.AllowN(t.Context(), "k", 1); res.Allowed || res.RetryAfter != 15*time.Second {
			t.Errorf("%+v", res)
		}
		time.Sleep(15 * time.Second)
		if n := admitted(t, d, "k", 9); n != 5 {
			t.Errorf("%d when the others are over", n)
		}
	})
}

// TestFirstRequestIsCounted: the request that a limit is learnt by is one of ours, and others
// under way with it are not known.
func TestFirstRequestIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := alone(t)
		sent := time.Now()
		admitted(t, d, "k", 1)
		time.Sleep(time.Millisecond)
		for i := range 2 {
			d.Observe(t.Context(), "k", []retry.Quota{said(100, 99, time.Minute, time.Minute)}, false, sent)
			if q := d.keys.Get("k").quotas[0]; q.sent.now != 1 || int(q.admitted.now) != i+1 {
				t.Errorf("%v sent and %v admitted", q.sent.now, q.admitted.now)
			}
		}
		// Of the limit, 88 are left by these two and ten more; the server has 40 less.
		admitted(t, d, "k", 10)
		observe(t, d, said(100, 48, time.Minute, time.Minute))
		if q := d.keys.Get("k").quotas[0]; q.sent.now != 11 || q.taken != 40 {
			t.Errorf("%v sent, and others have %d", q.sent.now, q.taken)
		}
	})
}

// TestFewQuotas: those beyond a few are not kept, whether they come at once or one by one, and
// what is not kept is not paced.
func TestFewQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := alone(t)
		for i := range retry.MaxQuotas + 2 {
			q := said(10, 9, time.Minute, time.Minute)
			q.Name = string(rune('a' + i))
			if got := observe(t, d, q); got != (i < retry.MaxQuotas) {
				t.Errorf("%d: paced is %v", i, got)
			}
		}
		if n := len(d.keys.Get("k").quotas); n != retry.MaxQuotas {
			t.Errorf("%d quotas", n)
		}
	})
}

// TestPartGrowsByWhatIsSaid: only a response that says what remains and until when, of now, and
// nothing of a record without a window.
func TestPartGrowsByWhatIsSaid(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		remaining int64
		reset     time.Duration
		stale     bool
		grows     bool
	}{
		"unused":    {90, 10 * time.Second, false, true},
		"at an end": {90, 0, false, true},
		"late":      {90, 10 * time.Second, true, false},
		"no number": {-1, 10 * time.Second, false, false},
		"no time":   {90, -1, false, false},
	} {
		q := quota{limit: 100, window: time.Minute, alone: true, part: part{of: 0.1, since: now.Add(-time.Hour), cut: now.Add(-time.Hour)}}
		q.part.of = 0.1 / q.share(now) * 0.1 // grown by now to a tenth
		before := q.part.of
		if q.observe(said(100, c.remaining, c.reset, time.Minute), now, now, c.stale); (q.part.of != before) != c.grows {
			t.Errorf("%s: %+v", name, q.part)
		}
	}
	var q quota
	q.adopt(lua.LearntQuota{Name: 1, Limit: 10, Stretch: 2000}, now)
	q.observe(said(10, 5, 0, 0), now, now, false)
	if q.part.of != 0.5 {
		t.Errorf("without a window: %+v", q.part)
	}
	if q.observe(said(1e15-1, 5, 0, time.Second), now, now, false); q.limit != maxLimit+1 {
		t.Errorf("a limit of %d", q.limit)
	}
	// A part below one request for each window recovers by less.
	p := part{of: 0.001, since: now}
	if got := p.at(now.Add(time.Minute), 90, time.Minute, 1); math.Abs(got/0.001-(1+recovery*0.3)) > 1e-9 {
		t.Errorf("%v", got)
	}
	// What others had in a window that is over is not known of the present one.
	q = quota{limit: 100, left: 61, taken: 5, until: now}
	if !q.others(50, now) {
		t.Error("11 of others are too few of 100")
	}
	if q = (quota{limit: 5, left: 4}); !q.others(2, now) {
		t.Error("2 of others are too few of 5")
	}
}

// TestWhatTheFleetHears: a change of one quota of several, and a cut; and it is asked once a
// second about a key whose server has answered without a quota.
func TestWhatTheFleetHears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, fleet := fleetOf(t, 1)
		d := fleet[0]
		a, b := said(100, 99, time.Minute, time.Minute), said(50, 49, time.Hour, time.Hour)
		a.Name, b.Name = "a", "b"
		hears := func(what string, rejected bool, all ...retry.Quota) {
			t.Helper()
			before := m.saves
			time.Sleep(2 * time.Second)
			admitted(t, d, "k", 1)
			if d.Observe(t.Context(), "k", all, rejected, time.Now()); m.saves != before+1 {
				t.Errorf("%s: saved %d times", what, m.saves-before)
			}
		}
		hears("both", false, a, b)
		a.Limit = 90
		hears("the first", false, a, b)
		b.Limit = 40
		hears("the second", false, a, b)
		hears("a rejection", true)
		if len(m.all) != 2 || m.all[0].Stretch != 1111 || m.all[1].Stretch == 0 {
			t.Errorf("%+v", m.all)
		}
		m.all = nil
		admitted(t, d, "silent", 1)
		d.Observe(t.Context(), "silent", nil, false, time.Now())
		before := m.loads
		for range 29 {
			time.Sleep(100 * time.Millisecond)
			admitted(t, d, "silent", 1)
		}
		if n := m.loads - before; n != 2 {
			t.Errorf("asked %d times in 2.9 s", n)
		}
	})
}

// TestKeyInUseIsKept: what is learnt of a key is not forgotten while requests are sent.
func TestKeyInUseIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := alone(t)
		observe(t, d, said(100, 99, time.Minute, time.Minute))
		for range 5 {
			time.Sleep(minLife - 1)
			admitted(t, d, "k", 1)
			if !d.keys.Get("k").used() {
				t.Fatal("forgotten")
			}
		}
	})
}

// TestPartIsOfThePresentLimit: a change of the limit begins the count of others anew, and a part
// that leaves others what they take is not lessened by what they were seen to have.
func TestPartIsOfThePresentLimit(t *testing.T) {
	now := time.Now()
	q := quota{limit: 100, window: time.Minute, alone: true, left: 97, part: part{since: now, used: 1, sent: 2, answered: 3}}
	if q.observe(said(200, 90, time.Minute, time.Minute), now.Add(1), now.Add(2), false); q.part.of != 0 || q.part.used != 110 {
		t.Errorf("by the counts of another limit: %+v", q.part)
	}
	q = quota{limit: 100, window: time.Minute, alone: true, left: 97, taken: 30, until: now.Add(time.Minute), part: part{since: now, used: 1, sent: 2, answered: 3}}
	if _, more := q.observe(said(100, 40, time.Minute, time.Minute), now.Add(1), now.Add(2), false); !more || q.part.of == 0 || q.taken != 0 {
		t.Errorf("%v %+v", more, q)
	}
	// What a decision has shown once is not asked again.
	q = quota{limit: 100, window: time.Minute, doubt: 30, doubtUntil: now.Add(time.Minute)}
	if q.note(30, now); q.taken != 0 {
		t.Errorf("%+v", q)
	}
	if q.note(90, now); q.taken != 0 {
		t.Errorf("%+v", q)
	}
}
