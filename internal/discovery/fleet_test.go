package discovery

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/admission"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// memory is a shelf in memory, which several processes share.
type memory struct {
	mu           sync.Mutex
	all          []lua.LearntQuota
	at           time.Time
	life         time.Duration
	loads, saves int
	away         bool // nothing is saved
}

func (m *memory) Load(context.Context, string) ([]lua.LearntQuota, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loads++
	aged := slices.Clone(m.all)
	for i := range aged {
		aged[i].Cut += time.Since(m.at).Microseconds()
		aged[i].Left = max(0, aged[i].Left-time.Since(m.at).Microseconds())
	}
	return aged, nil
}

func (m *memory) Save(_ context.Context, _ string, all []lua.LearntQuota, life time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return errors.New("away")
	}
	m.all, m.at, m.life = all, time.Now(), life
	m.saves++
	return nil
}
func (m *memory) Processes() int { return 2 }
func (m *memory) Close()         {}

// fleetOf returns processes that share a limiter and what they learn.
func fleetOf(t *testing.T, n int) (m *memory, fleet []*Discovery) {
	t.Helper()
	lim, err := limiter.NewLocal(Scouting)
	if err != nil {
		t.Fatal(err)
	}
	m = new(memory)
	for range n {
		fleet = append(fleet, Of(lim, m))
	}
	return m, fleet
}

func observe(t *testing.T, d *Discovery, q retry.Quota) (paced bool) {
	return d.Observe(t.Context(), "k", []retry.Quota{q}, false, time.Now())
}

// TestFleetLearns: what a process learns holds for another one, which has heard nothing, and a
// change reaches it within a second.
func TestFleetLearns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, fleet := fleetOf(t, 2)
		a, b := fleet[0], fleet[1]
		if n := admitted(t, a, "k", 3) + admitted(t, b, "k", 3); n != 1 {
			t.Errorf("%d were sent before anything was known", n)
		}
		ten := said(10, 9, time.Minute, time.Minute)
		if !observe(t, a, ten) || m.saves != 1 || m.life != minLife {
			t.Errorf("%+v", m)
		}
		time.Sleep(100 * time.Millisecond)
		if n, k := admitted(t, a, "k", 3), admitted(t, b, "k", 20); n != 3 || k != 6 {
			t.Errorf("%d and %d after the first, of 10", n, k)
		}
		time.Sleep(2 * time.Minute)
		observe(t, b, said(4, 3, time.Minute, time.Minute))
		if m.saves != 2 {
			t.Errorf("saved %d times", m.saves)
		}
		if n, k := admitted(t, b, "k", 1), admitted(t, a, "k", 20); n != 1 || k != 3 {
			t.Errorf("%d and %d of 4", n, k)
		}
		// What is known is not saved again, until half of its life is over.
		saves := m.saves
		for range 20 {
			observe(t, a, said(4, 3, time.Minute, time.Minute))
		}
		if m.saves != saves {
			t.Errorf("saved %d times more", m.saves-saves)
		}
		time.Sleep(minLife/2 + time.Second)
		if observe(t, a, said(4, 3, time.Minute, time.Minute)); m.saves != saves+1 {
			t.Errorf("saved %d times after half of its life", m.saves-saves)
		}
	})
}

// TestFleetIsCut: a rejection of one process lowers the part of all.
func TestFleetIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, fleet := fleetOf(t, 2)
		a, b := fleet[0], fleet[1]
		admitted(t, a, "k", 1)
		observe(t, a, said(100, 99, time.Minute, time.Minute))
		time.Sleep(time.Second)
		q := said(100, 0, 30*time.Second, time.Minute)
		a.Observe(t.Context(), "k", []retry.Quota{q}, true, time.Now())
		if len(m.all) != 1 || m.all[0].Stretch != 1111 {
			t.Fatalf("%+v", m.all)
		}
		time.Sleep(2 * time.Minute)
		// Nine tenths, which have grown by the root of what 90 requests allow, at most to all.
		if n := admitted(t, b, "k", 200); n < 90 || n > 100 {
			t.Errorf("%d of 200", n)
		}
		// Where nothing is said, the fleet sends seven tenths of what its processes sent.
		m.all = nil
		for range 100 {
			admitted(t, a, "silent", 1)
			a.Observe(t.Context(), "silent", nil, false, time.Now())
		}
		a.Observe(t.Context(), "silent", nil, true, time.Now())
		if len(m.all) != 1 || m.all[0].Name != guess || m.all[0].Limit < 130 || m.all[0].Limit > 140 || m.all[0].Window != guessWindow.Microseconds() {
			t.Errorf("%+v", m.all)
		}
	})
}

// TestGuessCountsTwoWindows: what is cut is the most of two windows before the rejection.
func TestGuessCountsTwoWindows(t *testing.T) {
	for sleep, want := range map[time.Duration]int64{0: 70, guessWindow - 1: 70, guessWindow: 70, 2*guessWindow - 1: 70, 2 * guessWindow: 3} {
		synctest.Test(t, func(t *testing.T) {
			d, err := New(nil)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			send := func(n int) {
				for range n {
					admitted(t, d, "k", 1)
					d.Observe(t.Context(), "k", nil, false, time.Now())
				}
			}
			send(100)
			time.Sleep(sleep)
			send(5)
			if sleep < guessWindow {
				want = 73
			}
			d.Observe(t.Context(), "k", nil, true, time.Now())
			e := d.keys.Get("k")
			if len(e.quotas) != 1 || !e.quotas[0].guessed || !e.quotas[0].alone || e.quotas[0].limit != want {
				t.Errorf("after %v: %+v, want %d", sleep, e.quotas, want)
			}
		})
	}
}

// TestTightestQuotaIsReported, and a denial takes nothing from the others.
func TestTightestQuotaIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		a, b, c := said(100, 99, time.Minute, time.Minute), said(5, 4, time.Minute, time.Minute), said(50, 49, time.Minute, time.Minute)
		a.Name, b.Name, c.Name = "a", "b", "c"
		if !d.Observe(t.Context(), "k", []retry.Quota{a, b, c}, false, time.Now()) {
			t.Error("not paced by all")
		}
		for left := 3; left >= 0; left-- {
			if res, _ := d.AllowN(t.Context(), "k", 1); !res.Allowed || res.Remaining != left {
				t.Errorf("%+v, want %d left", res, left)
			}
		}
		res, _ := d.AllowN(t.Context(), "k", 1)
		if res.Allowed || res.RetryAfter < time.Minute || res.RetryAfter > 64*time.Second {
			t.Errorf("%+v", res)
		}
		time.Sleep(res.RetryAfter)
		if res, _ := d.AllowN(t.Context(), "k", 1); !res.Allowed || res.Remaining != 4 {
			t.Errorf("when the window is over: %+v", res)
		}
		// One that cannot be kept request by request does not stop for what it says is left.
		large := said(5000, 0, time.Minute, time.Minute)
		if d.Observe(t.Context(), "large", []retry.Quota{large}, false, time.Now()) {
			t.Error("a large quota is kept request by request")
		}
		if d.Observe(t.Context(), "none", nil, false, time.Now()) {
			t.Error("paced by nothing")
		}
	})
}

// TestUsualLengths: what is just below a usual length of a window is it.
func TestUsualLengths(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		time.Second: time.Second, 901 * time.Millisecond: time.Second, 900 * time.Millisecond: 900 * time.Millisecond,
		4600 * time.Millisecond: 5 * time.Second, 14 * time.Second: 15 * time.Second, 28 * time.Second: 30 * time.Second, 25 * time.Second: 25 * time.Second,
		54 * time.Second: 54 * time.Second, 55 * time.Second: time.Minute, time.Minute: time.Minute, time.Minute + 1: time.Minute + 1,
		118 * time.Second: 2 * time.Minute, 9*time.Minute + 30*time.Second: 10 * time.Minute, 19 * time.Minute: 20 * time.Minute, 59 * time.Minute: time.Hour,
		170 * time.Minute: 3 * time.Hour, 23 * time.Hour: 24 * time.Hour, 700 * time.Hour: 30 * 24 * time.Hour, maxWindow: maxWindow,
	} {
		if got := round(d); got != want {
			t.Errorf("%v: %v, want %v", d, got, want)
		}
	}
}

// TestGrowingWindow: that of a bucket grows with each request, and the fleet hears of it when
// it is a tenth longer.
func TestGrowingWindow(t *testing.T) {
	var q quota
	now := time.Now()
	told := []time.Duration{}
	for s := 101; s <= 160; s++ {
		now = now.Add(time.Second)
		if changed, _ := q.observe(said(100, 99, time.Duration(s)*100*time.Millisecond, 0), now, now, false); changed {
			told = append(told, q.window)
		}
	}
	// 10.1 and more are not just below a usual length until 13.6, which is 15.
	want := []time.Duration{10100 * time.Millisecond, 11200 * time.Millisecond, 12400 * time.Millisecond, 15 * time.Second}
	if !slices.Equal(told, want) || q.window != 16*time.Second {
		t.Errorf("told %v and is %v", told, q.window)
	}
	for _, none := range []time.Duration{0, -1, maxWindow + 1} {
		if q.observe(said(100, 99, none, 0), now, now, false); q.window != 16*time.Second {
			t.Errorf("a reset of %v: %v", none, q.window)
		}
	}
	if q.observe(said(100, 99, maxWindow, 0), now, now, false); q.window != maxWindow {
		t.Errorf("%v", q.window)
	}
}

// TestLifeOfWhatIsLearnt is four windows, within bounds.
func TestLifeOfWhatIsLearnt(t *testing.T) {
	for window, want := range map[time.Duration]time.Duration{
		time.Second: minLife, minLife / 4: minLife, time.Hour: 4 * time.Hour, 12 * time.Hour: 48 * time.Hour, 30 * 24 * time.Hour: 48 * time.Hour, 1<<63 - 1: 48 * time.Hour,
	} {
		e := entry{quotas: []quota{{window: time.Second}, {window: window}}}
		if got := e.life(); got != want {
			t.Errorf("%v: %v, want %v", window, got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		e := entry{asked: time.Now()}
		time.Sleep(minLife - 1)
		if !e.used() {
			t.Error("forgotten too soon")
		}
		time.Sleep(1)
		if e.used() {
			t.Error("not forgotten")
		}
	})
}

// slowShelf takes a while, and asks nothing for a caller who has left.
type slowShelf struct{ *memory }

func (s slowShelf) Load(ctx context.Context, key string) ([]lua.LearntQuota, error) {
	time.Sleep(50 * time.Millisecond)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return s.memory.Load(ctx, key)
}

func (s slowShelf) Save(ctx context.Context, key string, all []lua.LearntQuota, life time.Duration) error {
	time.Sleep(50 * time.Millisecond)
	return s.memory.Save(ctx, key, all, life)
}

// TestCallerLeavesWhileItIsSaved: what a response says is saved also when its caller's time is over, and the caller does not wait for that.
func TestCallerLeavesWhileItIsSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, err := limiter.NewLocal(Scouting)
		if err != nil {
			t.Fatal(err)
		}
		shelf := slowShelf{new(memory)}
		d := Of(lim, shelf)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		began := time.Now()
		d.Observe(ctx, "k", []retry.Quota{said(5, 4, 10*time.Second, 10*time.Second)}, false, began)
		if took := time.Since(began); took != 10*time.Millisecond {
			t.Errorf("left after %v", took)
		}
		time.Sleep(100 * time.Millisecond) // it asks Redis first
		synctest.Wait()
		if shelf.saves != 1 {
			t.Errorf("saved %d times", shelf.saves)
		}
	})
}

// TestRequestsFromBeforeAreCounted: those that were decided before the quota became known, by a response or from the
// fleet, also where they are sent later; and no others.
func TestRequestsFromBeforeAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := []retry.Quota{said(10, 9, time.Minute, time.Minute)}
		answer := func(d *Discovery, has admission.Taken) {
			if _, save := d.Learn("k", quota, false, time.Now(), has); save != nil {
				save(t.Context())
			}
		}
		for name, by := range map[string]int{"by a response": 0, "from the fleet": 1} {
			_, fleet := fleetOf(t, 2)
			left := func(want int) (has admission.Taken) {
				t.Helper()
				res, has := fleet[0].Take(t.Context(), "k")
				if !res.Allowed || res.Remaining != want {
					t.Errorf("%s: %v, and %d are left, want %d", name, res.Allowed, res.Remaining, want)
				}
				return has
			}
			_, before := fleet[0].Take(t.Context(), "k")
			time.Sleep(time.Second)
			_, other := fleet[by].Take(t.Context(), "k")
			answer(fleet[by], other)
			time.Sleep(refresh)
			counted := left(8)
			answer(fleet[0], before)
			left(6)
			answer(fleet[0], counted)
			left(5)
		}
	})
}

// TestFirstRequestsWaitForTheFleet: of those that come at once to a process that knows nothing all wait for the
// answer of Redis, also when the caller leaves that has asked.
func TestFirstRequestsWaitForTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, err := limiter.NewLocal(Scouting)
		if err != nil {
			t.Fatal(err)
		}
		shelf := slowShelf{new(memory)}
		_ = shelf.memory.Save(t.Context(), "k", []lua.LearntQuota{{Name: hash(""), Limit: 10, Window: 60e6}}, time.Hour)
		d := Of(lim, shelf)
		leaves, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 4 {
			ctx := t.Context()
			if i == 0 {
				ctx = leaves
			}
			wg.Go(func() {
				if res, has := d.Take(ctx, "k"); i > 0 && (!res.Allowed || !has.(*units).from(hash(""))) {
					t.Errorf("%v, by what the fleet knows: %v", res.Allowed, has)
				}
			})
			synctest.Wait()
		}
		leave()
		wg.Wait()
		if shelf.loads != 1 {
			t.Errorf("Redis was asked %d times", shelf.loads)
		}
	})
}

// TestWhatIsNotSavedYetCounts: what Redis has does not take the place of what a response has said since, which is not there
// yet: neither another limit nor that others have taken the rest, also where Redis was asked before.
func TestWhatIsNotSavedYetCounts(t *testing.T) {
	for name, quota := range map[string]retry.Quota{
		"another limit": said(1, 0, time.Minute, time.Minute), "others": said(100, 0, time.Minute, time.Minute),
	} {
		for when, asked := range map[string]bool{"asked before": true, "asked after": false} {
			t.Run(name+", "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { notSavedYet(t, quota, asked) })
			})
		}
	}
}

func notSavedYet(t *testing.T, quota retry.Quota, asked bool) {
	lim, err := limiter.NewLocal(Scouting)
	if err != nil {
		t.Fatal(err)
	}
	d := Of(lim, slowShelf{new(memory)})
	admitted(t, d, "k", 1)
	observe(t, d, said(100, 99, time.Minute, time.Minute))
	time.Sleep(2 * time.Minute)
	_, has := d.Take(t.Context(), "k")
	sent := time.Now()
	time.Sleep(2 * refresh)
	if asked {
		go d.Take(t.Context(), "k")
		synctest.Wait()
	}
	_, save := d.Learn("k", []retry.Quota{quota}, false, sent, has)
	time.Sleep(100 * time.Millisecond)
	if n := admitted(t, d, "k", 50); n != 0 {
		t.Errorf("%d are sent beyond the quota", n)
	}
	save(t.Context())
}

// TestFirstResponseKeepsWhatTheFleetKnows: a process learns a quota from a response before it has asked Redis, as that of a
// resource whose name it did not know. It says how long it is until the reset, of a window that the fleet knows to be longer.
func TestFirstResponseKeepsWhatTheFleetKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, fleet := fleetOf(t, 2)
		a, b := fleet[0], fleet[1]
		_, has := a.Take(t.Context(), "k")
		learn := func(d *Discovery, q retry.Quota, has admission.Taken) {
			_, save := d.Learn("k", []retry.Quota{q}, false, time.Now(), has)
			save(t.Context())
		}
		learn(a, said(10, 9, time.Minute, 0), has)
		time.Sleep(57 * time.Second)
		if n := admitted(t, a, "k", 8); n != 8 {
			t.Fatalf("%d of 8", n)
		}
		learn(b, said(10, 0, 3*time.Second, 0), nil)
		if len(m.all) != 1 || m.all[0].Window != time.Minute.Microseconds() {
			t.Errorf("the fleet knows %+v", m.all)
		}
		time.Sleep(3*time.Second + refresh)
		for i, d := range fleet {
			if n := admitted(t, d, "k", 20); n != 1-i {
				t.Errorf("process %d sends %d, where 9 of 10 were sent within the minute", i, n)
			}
		}
	})
}

// TestAskedAgainDespiteTheFleet: what a server says that is asked again after an hour counts, not what Redis has, also where
// Redis is asked before it answers.
func TestAskedAgainDespiteTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, fleet := fleetOf(t, 1)
		d := fleet[0]
		admitted(t, d, "k", 1)
		observe(t, d, said(1, 0, 20*24*time.Hour, 0))
		res, has := d.Take(t.Context(), "k")
		for !res.Allowed {
			time.Sleep(res.RetryAfter)
			res, has = d.Take(t.Context(), "k")
		}
		sent := time.Now()
		time.Sleep(2 * first)
		d.Take(t.Context(), "k")
		time.Sleep(first)
		_, save := d.Learn("k", []retry.Quota{said(100, 99, time.Minute, 0)}, false, sent, has)
		save(t.Context())
		time.Sleep(2 * refresh)
		if n := admitted(t, d, "k", 50); n != 50 {
			t.Errorf("%d of 50 are sent, of 100 in a minute", n)
		}
	})
}

// TestOneLoadAtATime: Redis is not asked again about a key before it has answered.
func TestOneLoadAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, err := limiter.NewLocal(Scouting)
		if err != nil {
			t.Fatal(err)
		}
		shelf := frozenShelf{new(memory)}
		d := Of(lim, shelf)
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), first)
			d.Take(ctx, "k")
			cancel()
		}
		synctest.Wait()
		if n := shelf.loads; n != 1 {
			t.Errorf("Redis is asked %d times at a time", n)
		}
		time.Sleep(time.Minute)
	})
}

// frozenShelf answers late.
type frozenShelf struct{ *memory }

func (s frozenShelf) Load(ctx context.Context, key string) ([]lua.LearntQuota, error) {
	all, err := s.memory.Load(ctx, key)
	time.Sleep(time.Minute)
	return all, err
}

// TestUnsentRequestsAreGivenBack to each quota, which then has room for as many others, and knows it.
func TestUnsentRequestsAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		a, b := said(10, 9, time.Minute, time.Minute), said(5, 4, time.Minute, time.Minute)
		a.Name, b.Name = "a", "b"
		d.Observe(t.Context(), "k", []retry.Quota{a, b}, false, time.Now())
		for range 20 {
			res, has := d.Take(t.Context(), "k")
			if !res.Allowed || res.Remaining != 3 || has == nil {
				t.Fatalf("%+v", res)
			}
			has.Back(t.Context())
			has.Back(t.Context()) // only once
		}
		e := d.keys.Get("k")
		for i, left := range []int64{9, 4} {
			if got := e.quotas[i].left; got != left {
				t.Errorf("quota %d has %d left, want %d", i, got, left)
			}
		}
		if n := admitted(t, d, "k", 20); n != 4 {
			t.Errorf("%d were admitted, of 4", n)
		}
		if _, has := d.Take(t.Context(), "k"); has != nil {
			t.Error("a denied request is given back")
		}
		d.Observe(t.Context(), "one", []retry.Quota{a}, false, time.Now())
		if _, has := d.Take(t.Context(), "one"); has == nil {
			t.Error("a request of a single quota cannot be given back")
		}
		for range 3 { // what the first quota has granted is given back where the second one denies
			d.Take(t.Context(), "k")
		}
		if got := e.quotas[0].left; got != 5 {
			t.Errorf("%d are left of the first, want 5", got)
		}
	})
}

// TestUnsentRequestsAreNotCounted as sent: a rejection would be taken for one of a higher rate.
func TestUnsentRequestsAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := alone(t)
		said := []retry.Quota{said(10, 9, time.Minute, time.Minute)}
		for i, c := range []struct {
			quotas            []retry.Quota
			others, remaining int
		}{{nil, 0, math.MaxInt32}, {said, 0, 8}, {said, 3, 5}} {
			key := strconv.Itoa(i)
			d.Observe(t.Context(), key, c.quotas, false, time.Now())
			e := d.keys.Get(key)
			for range c.others {
				d.Take(t.Context(), key)
			}
			before, was := e.sent, slices.Clone(e.quotas)
			res, has := d.Take(t.Context(), key)
			if !res.Allowed || res.Remaining != c.remaining || e.sent != before+1 {
				t.Errorf("%+v, %d counted", res, e.sent-before)
			}
			has.Back(t.Context())
			if e.sent != before {
				t.Errorf("%d counted", e.sent-before)
			}
			for k, q := range e.quotas {
				if q.sent.now != was[k].sent.now || q.part.sent != was[k].part.sent {
					t.Errorf("%v counted, and %d, want %v and %d", q.sent.now, q.part.sent, was[k].sent.now, was[k].part.sent)
				}
			}
		}
	})
}

// TestCutThatWasNotSavedIsSavedLater: a process that was rejected while nothing could be saved lets the fleet know
// once it can. Until then it and the others would send by limits of their own, together more than the server admits.
func TestCutThatWasNotSavedIsSavedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, fleet := fleetOf(t, 2)
		a, b := fleet[0], fleet[1]
		ten := said(10, 9, time.Minute, time.Minute)
		observe(t, a, ten)
		admitted(t, b, "k", 1)
		reject := func(d *Discovery) { d.Observe(t.Context(), "k", nil, true, time.Now()) }
		reject(a) // that one is known to all
		time.Sleep(10 * time.Second)
		admitted(t, b, "k", 1)
		m.away = true
		reject(b)
		m.away = false
		for _, d := range []*Discovery{b, a} {
			time.Sleep(2 * refresh)
			admitted(t, d, "k", 1)
			d.Observe(t.Context(), "k", []retry.Quota{said(10, 5, time.Minute, time.Minute)}, false, time.Now())
		}
		of := func(d *Discovery) float64 {
			e := d.keys.Get("k")
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.quotas[0].share(time.Now())
		}
		if pa, pb := of(a), of(b); math.Abs(pa-pb) > 0.01 || pb == 1 { // Redis has thousandths
			t.Errorf("they send by %v and %v of the limit", pa, pb)
		}
		saves := m.saves
		time.Sleep(2 * refresh)
		admitted(t, b, "k", 1)
		d, more := b.Learn("k", nil, false, time.Now(), nil)
		if more != nil || m.saves != saves {
			t.Errorf("%v: it is saved again", d)
		}
	})
}

// TestWhatRedisHasLostIsSavedAgain with the next response: else processes keep to parts of their own for minutes, and to
// limits of their own.
func TestWhatRedisHasLostIsSavedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, fleet := fleetOf(t, 2)
		a, b := fleet[0], fleet[1]
		ten := said(10, 9, time.Minute, time.Minute)
		admitted(t, a, "k", 1)
		observe(t, a, ten)
		a.Observe(t.Context(), "k", nil, true, time.Now().Add(2*settle)) // a rejection
		admitted(t, b, "k", 1)
		time.Sleep(2 * refresh)
		m.all = nil
		for range 2 {
			admitted(t, a, "k", 1)
			synctest.Wait()
			observe(t, a, ten)
		}
		if len(m.all) != 1 || m.all[0].Stretch == 0 || m.saves != 3 {
			t.Errorf("saved %d times, %+v", m.saves, m.all)
		}
	})
}

// TestNoKindOfLimitForgets: what was sent with a part that is less than one request for each window counts also when
// that is over.
func TestNoKindOfLimitForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, fleet := fleetOf(t, 1)
		d := fleet[0]
		one := said(1, 0, 10*time.Second, 10*time.Second)
		admitted(t, d, "k", 1)
		observe(t, d, one)
		time.Sleep(time.Minute)
		m.all[0].Stretch, m.all[0].Taken, m.at = 2000, 0, time.Now()
		if n := admitted(t, d, "k", 1); n != 1 {
			t.Fatal("not admitted")
		}
		m.all[0].Stretch = 0
		time.Sleep(refresh)
		if n := admitted(t, d, "k", 1); n != 0 {
			t.Error("a second one is admitted at once")
		}
	})
}

// TestQuotaThatIsNotNamedIsForgottenByAll: two windows, of at least a minute, after a response has named it last, and
// the fleet hears that with the next response that names others.
func TestQuotaThatIsNotNamedIsForgottenByAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, fleet := fleetOf(t, 1)
		short, long := said(100, 99, time.Second, time.Second), said(50, 49, time.Hour, time.Hour)
		short.Name, long.Name = "short", "long"
		fleet[0].Observe(t.Context(), "k", []retry.Quota{short, long}, false, time.Now())
		for _, c := range []struct {
			after time.Duration
			left  int
		}{{2 * calm, 2}, {1, 1}} {
			before := m.saves
			time.Sleep(c.after)
			fleet[0].Observe(t.Context(), "k", []retry.Quota{long}, false, time.Now())
			if e := fleet[0].keys.Get("k"); len(e.quotas) != c.left || len(m.all) != c.left || m.saves-before != 2-c.left {
				t.Errorf("%d of this process and %d of the fleet, saved %d times, want %d", len(e.quotas), len(m.all), m.saves-before, c.left)
			}
		}
	})
}
