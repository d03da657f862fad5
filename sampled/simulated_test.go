package sampled_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/sampled"
)

// process is a limiter of a process of its own.
func process(t *testing.T, r *sim.Redis, name string, rate limiter.Rate, opts ...sampled.Option) *sampled.Limiter {
	t.Helper()
	rdb := r.Client(name, redis.Options{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return newSampled(t, rdb, rate, append([]sampled.Option{limiter.WithProcess(name)}, opts...)...)
}

// ask asks for a key so often in a second, evenly, and returns how much was admitted in each of some seconds.
func ask(t *testing.T, s *sampled.Limiter, key string, perSecond, seconds int) (admitted []int) {
	for range seconds {
		got := 0
		for range perSecond {
			began := time.Now()
			res, err := s.Allow(t.Context(), key)
			if took := time.Since(began); took != 0 || err != nil && !errors.Is(err, limiter.ErrUnavailable) {
				t.Errorf("%+v, %v after %v", res, err, took)
			}
			if res.Allowed {
				got++
			}
			time.Sleep(time.Second / time.Duration(perSecond))
		}
		admitted = append(admitted, got)
	}
	return admitted
}

func sumOf(all []int) (sum int) {
	for _, n := range all {
		sum += n
	}
	return sum
}

// TestSampledFleet: eight processes that are asked for four times the limit, some for
// much more than others, admit the limit together, without a call per decision.
func TestSampledFleet(t *testing.T) {
	const processes, seconds = 8, 5
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		got := make([][]int, processes)
		var wg sync.WaitGroup
		for i := range processes {
			rate := 150
			if i < 2 {
				rate = 550
			}
			s := process(t, r, fmt.Sprint("p", i), limiter.PerSecond(500), sampled.WithInterval(250*time.Millisecond))
			wg.Go(func() { got[i] = ask(t, s, "k", rate, seconds+1) })
		}
		wg.Wait()
		// The first second is the start, by shares that are yet to be learnt.
		steady := 0
		for _, admitted := range got {
			steady += sumOf(admitted[1:seconds])
		}
		mean := float64(steady) / (seconds - 1) / 500
		if mean < 0.95 || mean > 1.05 {
			t.Errorf("%.0f %% of the limit in a steady state: %v", 100*mean, got)
		}
		// Four reports a second and process, and one to join; a connection says who it is.
		if n := r.Commands(); n > processes*(4*(seconds+1)+4) {
			t.Errorf("%d commands of %d processes in %d s", n, processes, seconds+1)
		}
	})
}

// TestFleetSharesTheRate: what processes admit together is the rate when they are asked for more, each in
// proportion to what it is asked for, and all of it when they are not.
func TestFleetSharesTheRate(t *testing.T) {
	for name, asked := range map[string][]int{"even": {100, 100, 100}, "uneven": {400, 50, 10}, "less": {40, 20, 10}, "alone": {300}} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			got := make([]int, len(asked))
			var wg sync.WaitGroup
			var all []*sampled.Limiter
			for i, perSecond := range asked {
				s := process(t, r, fmt.Sprint("p", i), limiter.PerSecond(100))
				all = append(all, s)
				wg.Go(func() {
					ask(t, s, "k", perSecond, 10)
					got[i] = sumOf(ask(t, s, "k", perSecond, 60))
				})
			}
			wg.Wait()
			sum, total := 0, 0
			for i, n := range got {
				sum, total = sum+n, total+60*asked[i]
			}
			want := min(6000, total)
			if float64(sum) < 0.95*float64(want) || float64(sum) > 1.04*float64(want) {
				t.Errorf("%s: %d admitted of %d, want about %d", name, sum, total, want)
			}
			for i, n := range got {
				if part := float64(want) * float64(60*asked[i]) / float64(total); math.Abs(float64(n)-part) > 0.1*part+40 {
					t.Errorf("%s: process %d admitted %d, want about %v", name, i, n, part)
				}
			}
			for _, s := range all {
				h := s.Health()
				if h.Processes != len(asked) || h.Share != 1/float64(len(asked)) || h.ShareOrigin != "learnt" || h.LocalKeys < 1 || h.LocalKeys > 2 || len(h.Servers) != 1 {
					t.Errorf("%s: %+v", name, h)
				}
			}
			if h := all[0].Health(); math.Abs(float64(h.Decisions[limiter.SourceSampled]+h.Decisions[limiter.SourceLocal])-float64(70*asked[0])) > float64(asked[0])+20 || h.Decisions[limiter.SourceLocal] > uint64(5*asked[0]) {
				t.Errorf("%s: %v of %d", name, h.Decisions, 70*asked[0])
			}
		})
	}
}

// TestSampledResults: what results and errors say.
func TestSampledResults(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		var told []limiter.DecisionInfo
		s := process(t, r, "a", limiter.PerSecond(10), sampled.WithInterval(2*time.Second), limiter.WithShare(1),
			limiter.WithHooks(limiter.Hooks{Decision: func(_ context.Context, d limiter.DecisionInfo) { told = append(told, d) }}))
		if s.Limit() != limiter.TokenBucket(limiter.PerSecond(10), 20) {
			t.Error(s.Limit())
		}
		ended, end := context.WithCancel(t.Context())
		end()
		for _, c := range []struct {
			ctx context.Context
			key string
			n   int
			err error
		}{
			{t.Context(), "", 1, limiter.ErrInvalidKey}, {t.Context(), "k", -1, limiter.ErrInvalidCost},
			{t.Context(), "k", 21, limiter.ErrCostExceedsLimit}, {ended, "k", 1, context.Canceled},
			{ended, "k", 21, limiter.ErrCostExceedsLimit}, {t.Context(), "big", 20, nil},
		} {
			if res, err := s.AllowN(c.ctx, c.key, c.n); !errors.Is(err, c.err) || res.Allowed != (c.err == nil) {
				t.Errorf("%q, %d: %+v, %v, want %v", c.key, c.n, res, err, c.err)
			}
		}
		if len(told) != 6 || told[5].Key != "big" || told[5].Cost != 20 || !told[5].Result.Allowed || told[2].Err == nil {
			t.Errorf("%+v", told)
		}
		told = nil
		if res, err := s.AllowN(t.Context(), "peeked", 0); err != nil || res.Allowed && res.Remaining != 20 || len(told) != 0 {
			t.Errorf("a peek: %+v, %v; %d told", res, err, len(told))
		}
		for i := range 21 {
			res, err := s.Allow(t.Context(), "k")
			want := limiter.Result{Allowed: i < 20, Limit: s.Limit(), Remaining: max(0, 19-i), ResetAfter: 2 * time.Second, Source: limiter.SourceLocal}
			if want.Admitted = 1; i == 20 {
				want.Admitted, want.RetryAfter = 0, 2*time.Second
			}
			if err != nil || res != want {
				t.Errorf("%d: %+v, %v, want %+v", i, res, err, want)
			}
		}
		if res, err := s.AllowN(t.Context(), "k", 0); err != nil || res.Remaining != 0 || res.RetryAfter != 0 && res.Allowed {
			t.Errorf("a peek: %+v, %v", res, err)
		}
		ask(t, s, "k", 30, 9)
		if res, err := s.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceSampled {
			t.Errorf("%+v, %v", res, err)
		}
		must(t, s.Close())
		if _, err := s.Allow(t.Context(), "k"); !errors.Is(err, limiter.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestSampledOutages: without Redis each policy holds from three reports on, and until Redis answers again.
func TestSampledOutages(t *testing.T) {
	for policy, c := range map[fallback.Policy]struct {
		source      limiter.Source
		least, most int // of 100 a second, by a rate of 40 and a share of a half
	}{
		fallback.Local:  {limiter.SourceLocal, 18, 22},
		fallback.Open:   {limiter.SourceOpen, 100, 100},
		fallback.Closed: {limiter.SourceClosed, 0, 0},
	} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			var all []*sampled.Limiter
			var wg sync.WaitGroup
			for i := range 2 {
				all = append(all, process(t, r, fmt.Sprint("p", i), limiter.PerSecond(40), sampled.WithTopKeys(2), limiter.WithFallback(policy)))
			}
			both := func(seconds int) (got [2][]int) {
				for i, s := range all {
					wg.Go(func() { got[i] = ask(t, s, "k", 100, seconds) })
				}
				wg.Wait()
				return got
			}
			mean := func(all []int) float64 { return float64(sumOf(all)) / float64(len(all)) }
			for round := range 2 {
				got := both(10)
				if m := mean(got[0][4:]) + mean(got[1][4:]); m < 36 || m > 43 {
					t.Errorf("%v: %v a second by Redis", policy, m)
				}
				if round == 1 {
					break
				}
				for i := range 2 {
					r.SetPath(fmt.Sprint("p", i), func(p *sim.Path) { p.Refused = true })
				}
				both(5)
				got = both(20)
				for i := range 2 {
					if m := mean(got[i]); m < float64(c.least) || m > float64(c.most) {
						t.Errorf("%v: %v a second of process %d in the outage", policy, m, i)
					}
				}
				res, err := all[0].Allow(t.Context(), "k")
				if res.Source != c.source || errors.Is(err, limiter.ErrUnavailable) != (policy == fallback.Closed) || policy == fallback.Closed && res.RetryAfter != time.Second {
					t.Errorf("%v: %+v, %v", policy, res, err)
				}
				// A key that was never asked for is no exception.
				admitted, first := 0, map[fallback.Policy]int{fallback.Local: 20, fallback.Open: 50}[policy]
				for range 50 {
					if res, _ := all[1].Allow(t.Context(), "new"); res.Allowed && (res.Source == c.source) {
						admitted++
					}
				}
				if admitted != first {
					t.Errorf("%v: %d of a new key, want %d", policy, admitted, first)
				}
				if by := all[1].Health().Decisions; by[limiter.SourceOpen] >= 2000 != (policy == fallback.Open) {
					t.Errorf("%v: %v", policy, by)
				}
				for i := range 2 {
					r.SetPath(fmt.Sprint("p", i), func(p *sim.Path) { p.Refused = false })
				}
				both(10)
			}
		})
	}
}

// TestPartsOfARateAreOne: in an outage, what a process uses of keys that it neither tracks nor remembers stays used when it
// learns that it is one of more processes.
func TestPartsOfARateAreOne(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		var processes atomic.Int64
		processes.Store(2)
		s := process(t, r, "a", limiter.PerMinute(60), sampled.WithInterval(time.Minute), sampled.WithTopKeys(1), sampled.WithMaxLocalKeys(1),
			limiter.WithPeerCount(func(context.Context) (int, error) { return int(processes.Load()), nil }))
		synctest.Wait() // the first count is known
		r.SetPath("a", func(p *sim.Path) { p.Refused = true })
		most, admitted := 30.0, 0
		for ; processes.Load() < 12; processes.Add(1) {
			for range 60 {
				ask(t, s, "tracked", 10, 1)
				for range 2 {
					_, err := s.Allow(t.Context(), "remembered")
					must(t, err)
				}
				res, err := s.Allow(t.Context(), "k")
				must(t, err)
				if res.Allowed {
					admitted++
				}
				most += s.Health().Share
			}
		}
		if n := s.Health().Processes; n < 10 || float64(admitted) > most+1 || float64(admitted) < most-3 {
			t.Errorf("one of 2 to %d processes admitted %d, %.1f claimed", n, admitted, most)
		}
	})
}

// TestFarSampled: a report may take as long as the budget, as no caller waits for it; also after an outage, where the first
// one shows that Redis is back. The client goes on dialing when the budget is over, which four round trips would be.
func TestFarSampled(t *testing.T) {
	for name, c := range map[string]struct {
		there time.Duration // one way
		of    redis.Options
		opts  []sampled.Option
	}{
		"almost the budget":         {22 * time.Millisecond, redis.Options{}, nil},
		"calls end at the deadline": {22 * time.Millisecond, redis.Options{ContextTimeoutEnabled: true}, nil},
		"one connection":            {20 * time.Millisecond, redis.Options{PoolSize: 1}, nil},
		"another continent":         {90 * time.Millisecond, redis.Options{}, []sampled.Option{limiter.WithBudget(250 * time.Millisecond)}},
	} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			r.SetPath("p", func(p *sim.Path) { p.Delay = c.there })
			c.of.MaxRetries = -1
			rdb := r.Client("p", c.of)
			t.Cleanup(func() { _ = rdb.Close() })
			s := newSampled(t, rdb, limiter.PerSecond(40), c.opts...)
			ask(t, s, "k", 100, 30) // also where calls end at the deadline, there is a connection
			for _, when := range []string{"", " after an outage"} {
				before := s.Health().Decisions[limiter.SourceLocal]
				ask(t, s, "k", 100, 60)
				if n := s.Health().Decisions[limiter.SourceLocal] - before; n != 0 {
					t.Errorf("%s%s: %d of 6,000 decisions by the share", name, when, n)
				}
				r.SetPath("p", func(p *sim.Path) { p.Refused = true })
				ask(t, s, "k", 100, 20)
				if st := s.Health().Servers[0].State; st == breaker.Closed {
					t.Errorf("%s: the breaker is %v in an outage", name, st)
				}
				r.SetPath("p", func(p *sim.Path) { p.Refused = false })
				ask(t, s, "k", 100, 30)
			}
		})
	}
}

// TestKeysBeyondTheTop: they have the rate of a share from the local state, and the ones that are asked for most become
// those that are tracked.
func TestKeysBeyondTheTop(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		s := process(t, r, "a", limiter.PerSecond(20), sampled.WithTopKeys(2), limiter.WithShare(1))
		for _, key := range []string{"x", "y"} {
			ask(t, s, key, 1, 1)
		}
		time.Sleep(100 * time.Millisecond) // no interval ends, and takes a new key, while it asks
		for i := range 25 {
			res, err := s.Allow(t.Context(), "beyond")
			if err != nil || res.Source != limiter.SourceLocal || res.Allowed != (i < 20) || res.Limit != s.Limit() || res.Remaining != max(0, 19-i) || res.Allowed != (res.RetryAfter == 0) || res.RetryAfter > 50*time.Millisecond || res.ResetAfter <= 0 {
				t.Errorf("%d: %+v, %v", i, res, err)
			}
		}
		if h := s.Health(); h.LocalKeys < 3 || h.Decisions[limiter.SourceLocal] < 25 {
			t.Errorf("%+v", h)
		}
		var wg sync.WaitGroup
		for key, perSecond := range map[string]int{"hot": 300, "warm": 200, "x": 1, "y": 1, "cold": 3} {
			wg.Go(func() { ask(t, s, key, perSecond, 40) })
		}
		wg.Wait()
		for _, key := range []string{"hot", "warm"} {
			if res, _ := s.Allow(t.Context(), key); res.Source != limiter.SourceSampled {
				t.Errorf("%s is not tracked: %+v", key, res)
			}
		}
		if res, _ := s.Allow(t.Context(), "cold"); res.Source != limiter.SourceLocal {
			t.Errorf("cold is tracked: %+v", res)
		}
	})
}

// TestNoReportsWithoutTraffic: they end when no key is asked for any more, and begin with the next call.
func TestNoReportsWithoutTraffic(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		s := process(t, r, "a", limiter.PerSecond(20))
		for range 2 {
			ask(t, s, "k", 10, 5)
			before := r.Commands()
			ask(t, s, "k", 10, 20)
			if n := r.Commands() - before; n < 18 || n > 22 {
				t.Errorf("%d commands in 20 s", n)
			}
			time.Sleep(2 * time.Minute)
			before = r.Commands()
			time.Sleep(time.Hour)
			if n := r.Commands() - before; n != 0 {
				t.Errorf("%d commands without traffic", n)
			}
			if h := s.Health(); h.LocalKeys > 1 {
				t.Errorf("%+v", h)
			}
		}
	})
}

// TestProcessThatDiesLeavesTheSums: what it was asked for counts for three reports, and the others have the rate then.
func TestProcessThatDiesLeavesTheSums(t *testing.T) {
	for _, closes := range []bool{false, true} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			lives, dies := process(t, r, "lives", limiter.PerSecond(50)), process(t, r, "dies", limiter.PerSecond(50))
			var wg sync.WaitGroup
			wg.Go(func() { ask(t, dies, "k", 100, 10) })
			got := sumOf(ask(t, lives, "k", 100, 10)[5:])
			wg.Wait()
			if got < 100 || got > 150 {
				t.Errorf("%d admitted in 5 s by one of two", got)
			}
			if closes {
				must(t, dies.Close())
			} else {
				r.SetPath("dies", func(p *sim.Path) { p.Lost, p.Gone = true, true })
			}
			after := ask(t, lives, "k", 100, 20)
			if soon := sumOf(after[2:4]); closes && soon < 85 {
				t.Errorf("%d admitted in 2 s after the other one has left: %v", soon, after)
			}
			if n := sumOf(after[10:]); n < 480 || n > 520 {
				t.Errorf("%d admitted in 10 s by the one that is left: %v", n, after)
			}
			if h := lives.Health(); h.Processes != 1 {
				t.Errorf("%d processes", h.Processes)
			}
		})
	}
}

// TestDeadAreBuriedOnce: a process that lives needs one call to take one that died out of the sums.
func TestDeadAreBuriedOnce(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lives, dies := process(t, r, "lives", limiter.PerSecond(50)), process(t, r, "dies", limiter.PerSecond(50))
		var wg sync.WaitGroup
		wg.Go(func() { ask(t, dies, "k", 10, 10) })
		ask(t, lives, "k", 10, 10)
		wg.Wait()
		r.SetPath("dies", func(p *sim.Path) { p.Lost, p.Gone = true, true })
		time.Sleep(500 * time.Millisecond)
		before := r.Commands()
		ask(t, lives, "k", 10, 20)
		if n := r.Commands() - before; n < 20 || n > 23 {
			t.Errorf("%d commands in 20 s, with a report each", n)
		}
		if h := lives.Health(); h.Processes != 1 {
			t.Errorf("%d processes", h.Processes)
		}
	})
}

// TestBeyondTheTopByPolicy: only fallback.Open admits all of what is not tracked, and it says so.
func TestBeyondTheTopByPolicy(t *testing.T) {
	for policy, source := range map[fallback.Policy]limiter.Source{fallback.Local: limiter.SourceLocal, fallback.Closed: limiter.SourceLocal, fallback.Open: limiter.SourceOpen} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			s := process(t, r, "a", limiter.PerSecond(20), sampled.WithTopKeys(1), limiter.WithFallback(policy))
			ask(t, s, "top", 1, 2)
			time.Sleep(100 * time.Millisecond) // no interval ends, and takes a new key, while it asks
			admitted := 0
			for range 30 {
				res, err := s.Allow(t.Context(), "beyond")
				if err != nil || res.Source != source || res.Limit != s.Limit() || policy == fallback.Open && (res.Remaining != 20 || res.RetryAfter != 0) {
					t.Errorf("%v: %+v, %v", policy, res, err)
				}
				if res.Allowed {
					admitted++
				}
				if res.Allowed != (res.Admitted == 1) {
					t.Errorf("%v: %+v", policy, res)
				}
			}
			if want := map[bool]int{true: 30, false: 20}[policy == fallback.Open]; admitted != want {
				t.Errorf("%v: %d admitted, want %d", policy, admitted, want)
			}
		})
	}
}

// TestOneKeyIsReplaced: the one key that is tracked makes room for another that is asked for more, also where what is not
// tracked is admitted.
func TestOneKeyIsReplaced(t *testing.T) {
	for _, policy := range []fallback.Policy{fallback.Local, fallback.Open} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			s := process(t, r, "a", limiter.PerSecond(20), sampled.WithTopKeys(1), limiter.WithFallback(policy))
			var wg sync.WaitGroup
			wg.Go(func() { ask(t, s, "first", 5, 20) })
			time.Sleep(time.Second)
			wg.Go(func() { ask(t, s, "hot", 300, 20) })
			wg.Wait()
			if res, err := s.Allow(t.Context(), "hot"); err != nil || res.Source != limiter.SourceSampled {
				t.Errorf("%v: %+v, %v", policy, res, err)
			}
			if by := s.Health().Decisions; by[limiter.SourceOpen] > 0 != (policy == fallback.Open) {
				t.Errorf("%v: %v", policy, by)
			}
		})
	}
}

// TestOutageThatEndsWithoutTraffic: a process that was asked for nothing when Redis came back knows of it from its first call,
// and not an interval later.
func TestOutageThatEndsWithoutTraffic(t *testing.T) {
	for _, policy := range []fallback.Policy{fallback.Open, fallback.Closed} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			s := process(t, r, "a", limiter.PerSecond(20), limiter.WithFallback(policy))
			r.SetPath("a", func(p *sim.Path) { p.Refused = true })
			ask(t, s, "k", 10, 10)
			time.Sleep(time.Minute)
			r.SetPath("a", func(p *sim.Path) { p.Refused = false })
			time.Sleep(time.Minute)
			_, _ = s.Allow(t.Context(), "k")
			time.Sleep(100 * time.Millisecond)
			if res, err := s.Allow(t.Context(), "k"); err != nil || res.Source == limiter.SourceOpen {
				t.Errorf("%v: %+v, %v", policy, res, err)
			}
		})
	}
}

// TestDroppedKeysLeaveTheSums: what a process was asked for of a key does not count for good where the report that takes it
// out is lost: in an outage after which it is back first, and of a key that another one replaces.
func TestDroppedKeysLeaveTheSums(t *testing.T) {
	for name, c := range map[string]struct {
		topKeys, other int // how often a second it is asked for another key afterwards
		away           time.Duration
		outage         bool // of the other process, too, for five seconds more
	}{
		"in an outage":      {1000, 100, 20 * time.Second, true},
		"by a lost report":  {1, 500, 1500 * time.Millisecond, false},
		"by three of these": {1, 500, 4500 * time.Millisecond, false},
	} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			all := [2]*sampled.Limiter{process(t, r, "p0", limiter.PerSecond(40), sampled.WithTopKeys(c.topKeys)), process(t, r, "p1", limiter.PerSecond(40))}
			refuse := func(refused bool, name string) {
				r.SetPath(name, func(p *sim.Path) { p.Refused = refused })
			}
			var wg sync.WaitGroup
			for _, s := range all {
				wg.Go(func() { ask(t, s, "k", 100, 10) })
			}
			wg.Wait()
			var got []int
			wg.Go(func() { ask(t, all[0], "other", c.other, 55) })
			wg.Go(func() { got = ask(t, all[1], "k", 100, 55) })
			refuse(true, "p0")
			refuse(c.outage, "p1")
			time.Sleep(c.away)
			refuse(false, "p0")
			time.Sleep(5 * time.Second)
			refuse(false, "p1")
			wg.Wait()
			if n := sumOf(got[45:]); n < 380 || n > 420 {
				t.Errorf("%s: %d of 400 in ten seconds: %v", name, n, got)
			}
		})
	}
}

// TestEvictedSums: a fleet of whose reports Redis loses a part admits the rate again, whichever of the keys that is, also where
// one of the processes has died before.
func TestEvictedSums(t *testing.T) {
	const sums, processes = "holdfast:v1:sampled:{all}", "holdfast:v1:sampled:{all}:p"
	for _, lost := range []string{"the sums", "the processes", "what one has in them", "what the dead one has in them", "what all have in them", "all"} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			var all []*sampled.Limiter
			for _, name := range []string{"dies", "p1", "p2", "p3", "p4"} {
				all = append(all, process(t, r, name, limiter.PerSecond(100)))
			}
			round := func(seconds int) (admitted int) {
				got := make([]int, len(all))
				var wg sync.WaitGroup
				for i, s := range all {
					wg.Go(func() { got[i] = sumOf(ask(t, s, "k", 100, seconds)) })
				}
				wg.Wait()
				return sumOf(got)
			}
			round(10)
			keys := map[string][]string{"the sums": {sums}, "the processes": {processes}, "all": {sums, processes}}
			dead := ""
			for number := range r.Members(processes) {
				keys["what one has in them"] = []string{sums + ":" + number}
				keys["what all have in them"] = append(keys["what all have in them"], sums+":"+number)
				keys["all"] = append(keys["all"], sums+":"+number)
			}
			r.SetPath("dies", func(p *sim.Path) { p.Lost, p.Gone = true, true })
			all = all[1:]
			round(1)
			// The one that reports no more is the one whose time to live ends first.
			first := int64(math.MaxInt64)
			for number, until := range r.Members(processes) {
				if until < first {
					first, dead = until, number
				}
			}
			keys["what the dead one has in them"] = []string{sums + ":" + dead}
			rdb := r.Client("operator", redis.Options{})
			must(t, rdb.Del(t.Context(), keys[lost]...).Err())
			must(t, rdb.Close())
			round(20)
			if n := round(20); n < 1900 || n > 2100 {
				t.Errorf("%s: %d of 2000 in 20 s", lost, n)
			}
		})
	}
}

// TestSharesWhenItIsRegistered: a process begins with a tenth, as one of ten, and has the rest when it knows that it is alone; it
// counts as alive for three intervals and a second.
func TestSharesWhenItIsRegistered(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := r.Client("a", redis.Options{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = rdb.Close() })
		s, err := sampled.New(rdb, limiter.PerSecond(100), quiet)
		must(t, err)
		t.Cleanup(func() { _ = s.Close() })
		for i, want := range []int{10, 90} {
			admitted := 0
			for range 200 {
				if res, err := s.Allow(t.Context(), "k"); err != nil {
					t.Error(err)
				} else if res.Allowed {
					admitted++
				}
			}
			if admitted != want {
				t.Errorf("%d: %d admitted, want %d", i, admitted, want)
			}
			time.Sleep(20 * time.Millisecond)
		}
		for _, until := range r.Members("holdfast:v1:sampled:{all}:p") {
			if d := time.Duration(until-time.Now().UnixMicro()) * time.Microsecond; d < 3900*time.Millisecond || d > 4*time.Second {
				t.Errorf("it counts as alive for %v", d)
			}
		}
	})
}

// TestAdmittedAllTheTime: what is admitted in an interval is spread over it, and not what comes first.
func TestAdmittedAllTheTime(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		s := process(t, r, "a", limiter.PerSecond(20))
		ask(t, s, "k", 100, 10)
		var quarters [4]int
		for i := range 20 * 100 {
			if res, err := s.Allow(t.Context(), "k"); err != nil {
				t.Error(err)
			} else if res.Allowed {
				quarters[i%100/25]++
			}
			time.Sleep(10 * time.Millisecond)
		}
		some := 0
		for _, n := range quarters {
			if n >= 10 { // of about 100
				some++
			}
		}
		if some < 3 {
			t.Errorf("admitted by quarters of a second: %v", quarters)
		}
	})
}

// TestSampledBounds: the least and the most that is taken, and the next.
func TestSampledBounds(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2})
	defer rdb.Close()
	for i, c := range []struct {
		opt sampled.Option
		ok  bool
	}{
		{sampled.WithInterval(100 * time.Millisecond), true}, {sampled.WithInterval(100*time.Millisecond - 1), false},
		{sampled.WithInterval(time.Minute), true}, {sampled.WithInterval(time.Minute + 1), false},
		{sampled.WithTopKeys(0), false}, {sampled.WithTopKeys(1), true}, {sampled.WithTopKeys(100_000), true}, {sampled.WithTopKeys(100_001), false},
	} {
		s, err := sampled.New(rdb, limiter.PerSecond(1), c.opt)
		if (err == nil) != c.ok {
			t.Errorf("%d: %v", i, err)
		}
		if err == nil {
			must(t, s.Close())
		}
	}
	s, err := sampled.New(rdb, limiter.PerSecond(math.MaxInt32), sampled.WithInterval(2*time.Second))
	must(t, err)
	if s.Limit().Burst() != math.MaxInt32 {
		t.Errorf("%v", s.Limit())
	}
	must(t, s.Close())
	if _, err := sampled.New(rdb, limiter.Per(1, time.Second+1)); !errors.Is(err, limiter.ErrInvalidConfig) {
		t.Error(err)
	}
}

// TestSlowReportsAreReports: one that takes nearly the budget opens no breaker, as no caller waits for it; one that takes longer does.
func TestSlowReportsAreReports(t *testing.T) {
	for delay, want := range map[time.Duration]breaker.State{20 * time.Millisecond: breaker.Closed, 30 * time.Millisecond: breaker.Open} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			s := process(t, r, "p", limiter.PerSecond(100))
			ask(t, s, "k", 10, 3) // it is connected
			r.SetPath("p", func(p *sim.Path) { p.Delay = delay })
			for range 30 { // more often than a breaker needs
				ask(t, s, "k", 10, 1)
				if got := s.Health().Servers[0].State; want == breaker.Closed && got != want {
					t.Fatalf("%v each way: the breaker is %v", delay, got)
				}
			}
			if got := s.Health().Servers[0].LastFailure; (got != breaker.ClassOK) != (want == breaker.Open) {
				t.Errorf("%v each way: the last failure is %v", delay, got)
			}
		})
	}
}
