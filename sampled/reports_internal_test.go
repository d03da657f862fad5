package sampled

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/limiter"
)

// reports is a hook in the place of a server: it answers reports as the test says, and notes them.
type reports struct {
	fleet       float64 // what the fleet is asked for, as so many times what this process is
	alive, dead int64   // what a report learns
	more        int64   // how many calls it takes to bury one
	then        []int64 // who is dead beside the one that is buried
	fails       func(nr int) bool
	takes       time.Duration // a call that fails

	mu     sync.Mutex
	calls  int
	sent   []map[string]int64 // the rates of each report, by encoded id
	buried []string           // process/dead or process/leaves
}

func (r *reports) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *reports) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) (err error) {
		for _, cmd := range cmds {
			err = errors.Join(err, r.ProcessHook(nil)(ctx, cmd))
		}
		return err
	}
}

func (r *reports) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		sha, _ := args[1].(string)
		set, ok := cmd.(interface{ SetVal([]int64) })
		if !ok {
			return nil
		}
		r.mu.Lock()
		r.calls++
		nr := r.calls
		r.mu.Unlock()
		if r.fails != nil && r.fails(nr) {
			time.Sleep(r.takes)
			err := errors.New("no connection")
			cmd.SetErr(err)
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		rest := args[3+args[2].(int)+1:] // after the keys and the time
		switch lua.Known(sha) {
		case "sampled":
			out, sent := []int64{r.alive, r.dead}, map[string]int64{}
			for i := 2; i < len(rest); i += 2 {
				rate := rest[i+1].(int64)
				sent[rest[i].(string)] = rate
				out = append(out, int64(float64(rate)*r.fleet))
			}
			r.sent = append(r.sent, sent)
			set.SetVal(out)
		case "sampled_bury":
			r.buried = append(r.buried, fmt.Sprint(rest[0], map[any]string{0: "/leaves", 1: "/dead"}[rest[1]]))
			out := []int64{1, 0}
			switch {
			case r.more > 0:
				r.more--
				out[0] = 2
			case len(r.then) > 0:
				out[1], r.then = r.then[0], r.then[1:]
			}
			set.SetVal(out)
		}
		return nil
	}
}

// reset forgets what was noted.
func (r *reports) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls, r.sent, r.buried = 0, nil, nil
}

// reporting runs a test in a bubble, with a limiter of 60 units in an interval of a second that the test ends, whose reports
// the hook answers.
func reporting(t *testing.T, r *reports, test func(t *testing.T, s *Limiter), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = rdb.Close() })
		rdb.AddHook(r)
		s := turning(t, rdb, limiter.PerSecond(60), append([]Option{WithInterval(time.Second)}, opts...)...)
		s.ticks.End()
		test(t, s)
	})
}

func allow(t *testing.T, s *Limiter, key string, n int) {
	t.Helper()
	if _, err := s.AllowN(t.Context(), key, n); err != nil {
		t.Fatal(err)
	}
}

// TestPauses: how often a process reports, by how many there are and how many calls a report takes.
func TestPauses(t *testing.T) {
	reporting(t, &reports{alive: 1}, func(t *testing.T, s *Limiter) {
		for _, c := range []struct {
			n, calls    int64
			least, most time.Duration
		}{
			{1, 0, time.Second, time.Second}, {2500, 0, time.Second, time.Second}, {5000, 0, 2 * time.Second, 2500 * time.Millisecond},
			{100_000, 3, 120 * time.Second, 150 * time.Second}, {1_000_000, 1, 200 * time.Second, 250 * time.Second},
		} {
			s.redis.Counted(c.n)
			if c.calls > 0 {
				s.reporter.calls.Store(c.calls)
			}
			if least, most := s.reporter.pause(); least != c.least || most != c.most {
				t.Errorf("%d processes, %d calls: a report every %v to %v", c.n, c.calls, least, most)
			}
		}
	})
}

// TestReportsAreDue: of a small fleet in every interval, of a large one after a pause that differs, to half an interval.
func TestReportsAreDue(t *testing.T) {
	r := &reports{alive: 1}
	reporting(t, r, func(t *testing.T, s *Limiter) {
		if s.reporter.report(t.Context(), nil, false); !s.reporter.due() {
			t.Error("the next one of a small fleet is not due")
		}
		r.alive = 10_000 // a report in 4 s to 5 s
		var least, most time.Duration = time.Hour, 0
		for range 100 {
			if !s.reporter.report(t.Context(), nil, false) {
				t.Fatal("it failed")
			}
			pause := time.Duration(s.reporter.next.Load()) - s.redis.Now()
			least, most = min(least, pause), max(most, pause)
			time.Sleep(pause - s.interval/2 - 1)
			if s.reporter.due() {
				t.Errorf("it is due %v early", s.interval/2+1)
			}
			if time.Sleep(1); !s.reporter.due() {
				t.Error("it is not due half an interval early")
			}
		}
		if least < 4*time.Second || least > 4300*time.Millisecond || most < 4700*time.Millisecond || most > 5*time.Second {
			t.Errorf("pauses of %v to %v", least, most)
		}
		r.fails = func(int) bool { return true }
		if s.reporter.report(t.Context(), nil, false) || s.reporter.due() {
			t.Error("after a report that failed the next one is due at once")
		}
	})
}

// TestStaleReports: from three pauses without a report on, and before the first one.
func TestStaleReports(t *testing.T) {
	r := &reports{alive: 1}
	reporting(t, r, func(t *testing.T, s *Limiter) {
		if !s.reporter.stale() {
			t.Error("nothing was reported")
		}
		time.Sleep(time.Hour)
		for _, alive := range []int64{1, 10_000} {
			r.alive, r.fails = alive, nil
			s.reporter.report(t.Context(), nil, false)
			r.fails = func(int) bool { return true }
			s.reporter.report(t.Context(), nil, false)
			_, most := s.reporter.pause()
			if time.Sleep(staleReports * most); s.reporter.stale() {
				t.Errorf("stale after three pauses of %v", most)
			}
			if time.Sleep(1); !s.reporter.stale() {
				t.Errorf("not stale after more than three pauses of %v", most)
			}
		}
	})
}

// TestBurials: a report that may buries who is dead, one after the other, in as many calls as each takes, but not in more than
// twenty.
func TestBurials(t *testing.T) {
	for i, c := range []struct {
		r      *reports
		buries bool
		want   []string
	}{
		{&reports{}, true, nil}, {&reports{dead: 1}, false, nil}, {&reports{dead: 1}, true, []string{"1/dead"}},
		{&reports{dead: 7, then: []int64{9, 8}}, true, []string{"7/dead", "9/dead", "8/dead"}}, {&reports{dead: 7, more: 2, then: []int64{9}}, true, []string{"7/dead", "7/dead", "7/dead", "9/dead"}},
		{&reports{dead: 7, more: 100}, true, slices.Repeat([]string{"7/dead"}, buriesPerReport)},
		{&reports{dead: 7, then: []int64{9, 8}, fails: func(nr int) bool { return nr == 3 }}, true, []string{"7/dead"}}, {&reports{dead: 7, fails: func(nr int) bool { return nr == 1 }}, true, nil},
	} {
		r := c.r
		r.alive = 1
		reporting(t, r, func(t *testing.T, s *Limiter) {
			ok := s.reporter.report(t.Context(), nil, c.buries)
			if !slices.Equal(r.buried, c.want) || ok != (r.fails == nil || !r.fails(1)) {
				t.Errorf("%d: %v, want %v", i, r.buried, c.want)
			}
		})
	}
}

// TestLeaving: a process takes itself out of the sums, in as many calls as that takes, when it closes and when no key is asked
// for any more; who else is dead is for those who stay.
func TestLeaving(t *testing.T) {
	for _, closes := range []bool{true, false} {
		r := &reports{alive: 1, more: 30, then: []int64{9}}
		reporting(t, r, func(t *testing.T, s *Limiter) {
			if closes {
				_ = s.Close()
			} else if s.tick(t.Context()) {
				t.Error("there is another interval without a key")
			}
			own := fmt.Sprint(s.reporter.number.Load(), "/leaves")
			if want := slices.Repeat([]string{own}, 31); !slices.Equal(r.buried, want) {
				t.Errorf("closes %v: %v", closes, r.buried)
			}
			if r.more, r.buried, r.calls = 30, nil, 0; !closes { // a call that fails is the last one
				r.fails = func(nr int) bool { return nr == 4 } // of which the first is a report
				if s.tick(t.Context()); len(r.buried) != 2 {
					t.Errorf("%v", r.buried)
				}
			}
		})
	}
}

// TestRegistration: the first key that is tracked makes the process known, and the first one after a pause does again.
func TestRegistration(t *testing.T) {
	r := &reports{alive: 1, dead: 7}
	reporting(t, r, func(t *testing.T, s *Limiter) {
		for range 2 {
			for _, key := range []string{"a", "b", "c"} {
				allow(t, s, key, 1)
				synctest.Wait()
			}
			if len(r.sent) != 1 || len(r.sent[0]) != 0 || !slices.Equal(r.buried, []string{"7/dead"}) {
				t.Errorf("%v, %v", r.sent, r.buried)
			}
			for s.tick(t.Context()) {
				time.Sleep(time.Second)
			}
			r.reset()
		}
		if n := s.table.count.Load(); n != 0 {
			t.Errorf("%d keys", n)
		}
		_ = s.Close()
		r.reset()
		if s.begin(); r.calls != 0 {
			t.Errorf("%d calls after Close", r.calls)
		}
	})
}

// TestCallsOfAReport: one for each 500 keys, of which no call has more, and one at least.
func TestCallsOfAReport(t *testing.T) {
	for _, c := range []struct{ keys, calls int }{{0, 1}, {1, 1}, {499, 1}, {500, 1}, {501, 2}, {1000, 2}, {1001, 3}, {1002, 3}} {
		r := &reports{alive: 1, fleet: 1}
		reporting(t, r, func(t *testing.T, s *Limiter) {
			for i := range c.keys {
				allow(t, s, fmt.Sprint("k", i), 1)
			}
			synctest.Wait()
			r.reset()
			s.turn(t.Context(), s.interval)
			all := map[string]bool{}
			for i, sent := range r.sent {
				if len(sent) > lua.MaxAsked || len(sent) < lua.MaxAsked && i < len(r.sent)-1 {
					t.Errorf("%d keys: %d in call %d", c.keys, len(sent), i)
				}
				for id := range sent {
					all[id] = true
				}
			}
			if len(r.sent) != c.calls || len(all) != c.keys || s.reporter.calls.Load() != int64(c.calls) {
				t.Errorf("%d keys: %d in %d calls, a report takes %d", c.keys, len(all), len(r.sent), s.reporter.calls.Load())
			}
			for _, k := range s.table.all() {
				if k.local.Load() || !k.demand.known {
					t.Errorf("%d keys: %s has no plan", c.keys, k.key)
				}
			}
		}, WithTopKeys(2000))
	}
}

// TestCallsThatFail: after one that failed soon the others are made; after one that has taken an interval they are not.
func TestCallsThatFail(t *testing.T) {
	for takes, want := range map[time.Duration][2]int{0: {3, 2}, time.Second - 1: {3, 2}, time.Second: {1, 0}, 2 * time.Second: {1, 0}} { // calls, and those that were answered
		r := &reports{alive: 1, fleet: 1, takes: takes}
		reporting(t, r, func(t *testing.T, s *Limiter) {
			for i := range 1001 {
				allow(t, s, fmt.Sprint("k", i), 1)
			}
			synctest.Wait()
			r.reset()
			r.fails = func(nr int) bool { return nr == 1 }
			s.turn(t.Context(), s.interval)
			if r.calls != want[0] || len(r.sent) != want[1] {
				t.Errorf("the first call fails after %v: %d calls, %d are answered", takes, r.calls, len(r.sent))
			}
			for _, k := range s.table.all() { // also those of which nothing was sent have a plan
				if k.plan.most == 0 || k.plan.own != 1 {
					t.Errorf("%s: %+v", k.key, k.plan)
				}
			}
		}, WithTopKeys(2000))
	}
}

// TestRatesOfAReport: what a key was asked for in an interval, in units per 1000 s, also where the interval was longer or ended
// at once; and what the fleet is asked for, as the plan has it.
func TestRatesOfAReport(t *testing.T) {
	for elapsed, rate := range map[time.Duration]int64{2 * time.Second: 2500, time.Second: 5000, 500 * time.Millisecond: 10_000, 0: 50_000} {
		r := &reports{alive: 1, fleet: 3}
		reporting(t, r, func(t *testing.T, s *Limiter) {
			allow(t, s, "k", 4)
			allow(t, s, "k", 1)
			synctest.Wait()
			r.reset()
			s.turn(t.Context(), elapsed)
			k, _ := s.table.find("k")
			if len(r.sent) != 1 || r.sent[0]["k"] != rate || !near(k.demand.own, float64(rate)/1000) || !near(k.demand.fleet, 3*float64(rate)/1000) {
				t.Errorf("after %v: %v, %+v", elapsed, r.sent, k.demand)
			}
			if s.counts[1].Load() != 5 || s.counts[0].Load() != 0 {
				t.Errorf("%d by the share, %d by Redis", s.counts[1].Load(), s.counts[0].Load())
			}
			allow(t, s, "k", 2)
			if s.turn(t.Context(), elapsed); s.counts[0].Load() != 2 {
				t.Errorf("%d by Redis", s.counts[0].Load())
			}
		})
	}
	// In an interval of two seconds, too.
	r := &reports{alive: 1, fleet: 3}
	reporting(t, r, func(t *testing.T, s *Limiter) {
		allow(t, s, "k", 5)
		synctest.Wait()
		r.reset()
		s.turn(t.Context(), s.interval)
		k, _ := s.table.find("k")
		if r.sent[0]["k"] != 2500 || !near(k.demand.own, 5) || !near(k.demand.fleet, 15) {
			t.Errorf("%v, %+v", r.sent, k.demand)
		}
	}, WithInterval(2*time.Second))
}

// TestIdleKeys: one that was not asked for in ten intervals is not tracked any more, and one unit is a reason to go on.
func TestIdleKeys(t *testing.T) {
	r := &reports{alive: 1, fleet: 1}
	reporting(t, r, func(t *testing.T, s *Limiter) {
		allow(t, s, "k", 1)
		synctest.Wait()
		for i := range 2 {
			s.turn(t.Context(), s.interval) // in which it was asked for
			for range idleIntervals - 1 {
				s.turn(t.Context(), s.interval)
			}
			if s.table.count.Load() != 1 {
				t.Fatalf("%d: it is gone after %d intervals", i, idleIntervals-1)
			}
			if i == 0 {
				allow(t, s, "k", 1)
			}
		}
		if r.reset(); idleIntervals != 10 {
			t.Error("not ten")
		}
		s.turn(t.Context(), s.interval)
		if s.table.count.Load() != 0 || r.sent[0]["k"] != 0 || len(r.sent[0]) != 1 {
			t.Errorf("%d keys after ten intervals, %v", s.table.count.Load(), r.sent)
		}
	})
}

// TestUnreportedKeysAreBounded: keys that are not tracked any more are reported again until Redis knows of it, and in an outage, in
// which there may be ever more of them, the process takes another number instead.
func TestUnreportedKeysAreBounded(t *testing.T) {
	r := &reports{alive: 1, fleet: 1}
	reporting(t, r, func(t *testing.T, s *Limiter) {
		turns := func(n int) {
			for range n {
				s.turn(t.Context(), s.interval)
			}
		}
		allow(t, s, "k", 1)
		synctest.Wait()
		turns(10)
		r.fails = func(int) bool { return true }
		turns(1)
		r.fails = nil
		r.reset()
		number := s.reporter.number.Load()
		if turns(2); len(r.sent[0]) != 1 || r.sent[0]["k"] != 0 || len(r.sent[1]) != 0 || s.reporter.number.Load() != number {
			t.Errorf("after a report that failed: %v", r.sent)
		}
		allow(t, s, "again", 1)
		turns(10)
		r.fails = func(int) bool { return true }
		turns(1)
		r.fails = nil
		r.reset()
		allow(t, s, "again", 1)
		if turns(1); r.sent[0]["again"] != 1000 {
			t.Errorf("a key that is tracked again: %v", r.sent)
		}
		r.fails = func(int) bool { return true }
		for i := range 3 {
			allow(t, s, fmt.Sprint(i), 1)
			turns(11)
			time.Sleep(staleReports*s.interval + 1)
			if turns(1); len(s.unreported) != 0 || s.reporter.number.Load() == number {
				t.Errorf("in an outage: %d keys", len(s.unreported))
			}
			number = s.reporter.number.Load()
			if turns(1); s.reporter.number.Load() != number {
				t.Error("another number though no key is left behind")
			}
		}
	})
}

// TestPlansWithoutAnAnswer: one report that fails leaves what was known of the fleet, and of a key of which nothing is known the
// share; when reports are stale, nothing is known.
func TestPlansWithoutAnAnswer(t *testing.T) {
	r := &reports{alive: 4, fleet: 4}
	reporting(t, r, func(t *testing.T, s *Limiter) {
		allow(t, s, "known", 20)
		synctest.Wait()
		s.turn(t.Context(), s.interval)
		allow(t, s, "new", 1)
		r.fails = func(int) bool { return true }
		allow(t, s, "known", 20)
		s.turn(t.Context(), s.interval)
		known, _ := s.table.find("known")
		other, _ := s.table.find("new")
		if known.local.Load() || !near(known.demand.fleet, 80) || !near(known.plan.quota, 15) {
			t.Errorf("known: %v, %+v, %+v", known.local.Load(), known.demand, known.plan)
		}
		if !other.local.Load() || other.demand.known || other.plan != (plan{own: 1, quota: 15, most: 16}) {
			t.Errorf("new: %v, %+v, %+v", other.local.Load(), other.demand, other.plan)
		}
		time.Sleep(staleReports*s.interval + 1)
		s.turn(t.Context(), s.interval)
		if !known.local.Load() || known.demand.known || !near(known.plan.quota, 15) {
			t.Errorf("without Redis: %v, %+v, %+v", known.local.Load(), known.demand, known.plan)
		}
	})
}

// TestIntervalsBetweenReports: a process of a large fleet begins them without a report, with what it has of the limit; what a
// candidate was asked for is of all intervals since the last report.
func TestIntervalsBetweenReports(t *testing.T) {
	r := &reports{alive: 10_000, fleet: 1}
	reporting(t, r, func(t *testing.T, s *Limiter) {
		allow(t, s, "k", 1)
		synctest.Wait()
		k, h := s.table.find("k")
		k.begin(plan{own: 1, quota: 3, most: 5}, false)
		r.reset()
		for range 3 {
			time.Sleep(time.Second)
			k.left.Store(0)
			if s.turn(t.Context(), s.interval); k.left.Load() != 3 || len(r.sent) != 0 {
				t.Errorf("%d left, %d reports", k.left.Load(), len(r.sent))
			}
		}
		for round, elapsed := range []time.Duration{time.Second, 0} { // of which the last one counts as a tenth
			time.Sleep(5 * time.Second)
			s.candidates.Load().Add(h+1, fmt.Sprint("candidate", round), 41)
			s.turn(t.Context(), elapsed)
			found, _ := s.table.find(fmt.Sprint("candidate", round))
			if want := []float64{41 * candidateEvery / 4., 41 * candidateEvery / 0.1}[round]; found == nil || len(r.sent) != round+1 || !near(found.demand.own, want) {
				t.Errorf("%+v, want %v", found, want)
			}
		}
	})
}

// TestClosedKeysAreAskedFor: while nothing is admitted without Redis, what is asked for is counted all the same, so that the key
// is tracked until Redis is back.
func TestClosedKeysAreAskedFor(t *testing.T) {
	reporting(t, &reports{fails: func(int) bool { return true }}, func(t *testing.T, s *Limiter) {
		s.unanswered.Store(true)
		for _, key := range []string{"k", "k", "beyond"} {
			if res, err := s.AllowN(t.Context(), key, 3); !errors.Is(err, limiter.ErrUnavailable) || res != (limiter.Result{Limit: s.limit, RetryAfter: time.Second, Source: limiter.SourceClosed}) {
				t.Errorf("%s: %+v, %v", key, res, err)
			}
		}
		if k, _ := s.table.find("k"); k.asked.Load() != 6 || s.table.count.Load() != 1 {
			t.Errorf("asked for %d, %d keys", k.asked.Load(), s.table.count.Load())
		}
	}, WithTopKeys(1), limiter.WithFallback(fallback.Closed))
}

// TestUnitsOfAKey: the first ones, with what is below a unit; who is denied by chance is told that nothing remains; the largest
// cost for which there were too few is noted; and a peek tracks nothing.
func TestUnitsOfAKey(t *testing.T) {
	reporting(t, &reports{alive: 1}, func(t *testing.T, s *Limiter) {
		s.units = 2.5
		allow(t, s, "peeked", 0)
		if s.table.count.Load() != 0 {
			t.Error("a key that was peeked at is tracked")
		}
		k := s.track("k")
		if k.left.Load() != 2 || !near(float64(k.carry), 0.5) {
			t.Errorf("%d and %v of 2.5 units", k.left.Load(), k.carry)
		}
		for _, n := range []int{10, 7, 12, 12} {
			if res, err := s.AllowN(t.Context(), "k", n); err != nil || res.Allowed || res.Remaining != 2 || res.RetryAfter != s.interval {
				t.Errorf("%d: %+v, %v", n, res, err)
			}
			if want := map[int]int64{10: 10, 7: 10, 12: 12}[n]; k.denied.Load() != want {
				t.Errorf("%d: %d is noted, want %d", n, k.denied.Load(), want)
			}
		}
		k.admit(0)
		if res, err := s.Allow(t.Context(), "k"); err != nil || res.Allowed || res.Remaining != 0 || k.denied.Load() != 12 {
			t.Errorf("%+v, %v", res, err)
		}
	}, limiter.WithShare(1))
}

// TestBurstOfSlowRates: a rate below one unit in an interval admits one at once; a period of any whole number of microseconds is
// taken.
func TestBurstOfSlowRates(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	for period, burst := range map[time.Duration]int{24 * time.Hour: 1, time.Second + time.Microsecond: 60} {
		if s := turning(t, rdb, limiter.Per(1, period), limiter.WithPrefix(fmt.Sprint("p", burst))); s.Limit().Burst() != burst {
			t.Errorf("1 in %v: %v", period, s.Limit())
		}
	}
}
