package limiter_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// cut takes the Redis of a process away, until its limiters ask no more.
func cut(t *testing.T, r *sim.Redis, process string, lims ...*limiter.Limiter) {
	t.Helper()
	r.SetPath(process, func(p *sim.Path) { p.Refused = true })
	for _, lim := range lims {
		for i := 0; len(lim.Health().Servers) == 0 || lim.Health().Servers[0].State != breaker.Open; i++ {
			if i == 100 {
				t.Fatal("the breaker stays closed")
			}
			_, _ = lim.Allow(t.Context(), "one of an outage")
			time.Sleep(time.Millisecond)
		}
	}
}

// decisionsOf is how many are counted.
func decisionsOf(lim *limiter.Limiter) (n uint64) {
	for _, k := range lim.Health().Decisions {
		n += k
	}
	return n
}

// TestCostsBeyondWhatIsHeld: what is missing is asked for alone, also later, and what Redis says of it holds for what is
// spent then.
func TestCostsBeyondWhatIsHeld(t *testing.T) {
	lease, byRedis, cache := limiter.SourceLease, limiter.SourceRedis, limiter.SourceCache
	limit := limiter.FixedWindow(limiter.Per(100, 300*time.Hour))
	opts := []limiter.Option{limiter.WithShare(1), limiter.WithLease(40, 10*time.Minute)}
	left := func(t *testing.T, other *limiter.Limiter, when string, want int) {
		t.Helper()
		if res, err := other.Peek(t.Context(), "k"); err != nil || res.Remaining != want {
			t.Errorf("%s: %+v, %v; want %d left for others", when, res, err, want)
		}
	}
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim, _ := simulatedLimiter(t, r, "a", limit, opts...)
		other, _ := simulatedLimiter(t, r, "b", limit, opts...)
		decide(t, lim, "missing", asks{1, false, 1, byRedis, 99}, asks{43, false, 43, byRedis, 56})
		left(t, other, "four were missing", 56)
		decide(t, lim, "more", asks{1, false, 1, byRedis, 55})
		left(t, other, "a lease more", 16)
		decide(t, lim, "more than half of it", asks{20, false, 20, lease, 35})
		left(t, other, "as many as there were", 0)
		decide(t, lim, "all", asks{35, false, 35, lease, 0})
	})
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim, _ := simulatedLimiter(t, r, "a", limit, opts...)
		other, _ := simulatedLimiter(t, r, "b", limit, opts...)
		decide(t, lim, "a lease", asks{1, false, 1, byRedis, 99})
		if res, err := other.AllowN(t.Context(), "k", 60); err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
		before := r.Commands()
		decide(t, lim, "two are missing", asks{41, false, 0, byRedis, 39}, asks{41, false, 0, cache, 39}, asks{41, false, 0, cache, 39})
		if n := r.Commands() - before; n != 1 {
			t.Errorf("%d commands for what is known", n)
		}
		decide(t, lim, "held", asks{1, false, 1, lease, 38}, asks{60, true, 38, lease, 0})
	})
	sim.Test(t, func(t *testing.T, r *sim.Redis) { // a lease of one unit
		lim, _ := simulatedLimiter(t, r, "a", limit, limiter.WithShare(1), limiter.WithLease(1, time.Minute))
		decide(t, lim, "one unit", asks{1, false, 1, byRedis, 99}, asks{2, false, 2, byRedis, 97})
	})
	sim.Test(t, func(t *testing.T, r *sim.Redis) { // room for one lease, which no peek takes
		lim, _ := simulatedLimiter(t, r, "a", limit, limiter.WithShare(1), limiter.WithLease(40, time.Minute), limiter.WithMaxLocalKeys(1))
		if _, err := lim.Peek(t.Context(), "another"); err != nil {
			t.Error(err)
		}
		decide(t, lim, "after a peek", asks{1, false, 1, byRedis, 99}, asks{1, false, 1, lease, 98})
	})
	sim.Test(t, func(t *testing.T, r *sim.Redis) { // a bucket that is full again
		lim, _ := simulatedLimiter(t, r, "a", limiter.GCRA(limiter.PerSecond(10), 200), limiter.WithShare(1), limiter.WithLease(40, 10*time.Second))
		decide(t, lim, "a bucket", asks{1, false, 1, byRedis, 99})
		time.Sleep(6 * time.Second)
		if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != lease || res.ResetAfter != time.Microsecond {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// TestHeldAndClaimed: without Redis, what is held and what the claim has are one: of a cost that is too large nothing is
// taken, of at most so many all there is; what is given back goes to what is held first.
func TestHeldAndClaimed(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim, _ := simulatedLimiter(t, r, "a", limiter.FixedWindow(limiter.Per(100, 300*time.Hour)), limiter.WithShare(0.1), limiter.WithLease(40, time.Hour), hasty(time.Hour))
		for _, key := range []string{"all", "denied", "few", "back"} {
			if res, err := lim.Allow(t.Context(), key); err != nil || res.Remaining != 99 {
				t.Errorf("%+v, %v", res, err)
			}
		}
		cut(t, r, "a", lim)
		// Each decision is counted once.
		of := func(key string, opt limiter.CallOption) *limiter.Reservation {
			t.Helper()
			before := decisionsOf(lim)
			res, err := lim.Reserve(t.Context(), key, opt)
			must(t, err)
			if n := decisionsOf(lim) - before; n != 1 {
				t.Errorf("%s: counted %d times", key, n)
			}
			return res
		}
		const held = 39
		claim := of("all", limiter.AtMost(1000)).Admitted - held
		if claim < 2 || claim > 10 {
			t.Fatalf("a claim of %d units", claim)
		}
		if res := of("all", limiter.AtMost(1000)); res.Allowed {
			t.Errorf("more than all: %+v", res)
		}

		if res := of("denied", limiter.Cost(held+claim+1)); res.Allowed || res.Source != limiter.SourceLocal {
			t.Errorf("too large: %+v", res.Result)
		}
		if res := of("denied", limiter.Cost(1)); res.Source != limiter.SourceLease || res.Remaining != 60+held-1 {
			t.Errorf("what is held: %+v", res.Result)
		}

		first := of("few", limiter.Cost(held+claim-1))
		must(t, first.Settle(t.Context(), held+claim-1-3)) // three are held, and the claim has one
		second := of("few", limiter.AtMost(9))
		if second.Admitted != 4 {
			t.Errorf("three and one: %+v", second.Result)
		}
		must(t, second.Settle(t.Context(), 3))
		if res := of("few", limiter.AtMost(9)); res.Admitted != 1 || res.Source != limiter.SourceLease {
			t.Errorf("the one that is held: %+v", res.Result)
		}
		if res := of("few", limiter.AtMost(9)); res.Allowed || res.Admitted != 0 {
			t.Errorf("nothing: %+v", res.Result)
		}

		must(t, of("back", limiter.Cost(held+claim)).Settle(t.Context(), claim-1))
		if res := of("back", limiter.AtMost(1000)); res.Admitted != held+1 {
			t.Errorf("what was given back: %+v", res.Result)
		}
	})
}

// TestCallForMoreUnderWay: who comes while a call for more is under way waits for it for half of its budget, then asks
// itself; and when Redis denies, because that call has it all, for the rest.
func TestCallForMoreUnderWay(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		units       int           // of the limit
		there, back time.Duration // the way of the first call
		source      limiter.Source
		after       time.Duration
		remaining   int
	}{
		"it comes soon":              {200, 10 * ms, 400 * ms, limiter.SourceLease, 410 * ms, 198},
		"there is more":              {200, 600 * ms, 20 * ms, limiter.SourceRedis, 540 * ms, 199},
		"the other one has it all":   {40, 10 * ms, 700 * ms, limiter.SourceLease, 710 * ms, 38},
		"the other one comes late":   {40, 10 * ms, 1100 * ms, limiter.SourceRedis, time.Second, 0},
		"in the last moments of all": {40, 10 * ms, 960 * ms, limiter.SourceLease, 970 * ms, 38},
	} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			lim, _ := simulatedLimiter(t, r, "a", limiter.FixedWindow(limiter.Per(c.units, 300*time.Hour)), limiter.WithShare(1), limiter.WithLease(40, time.Minute),
				limiter.WithBudget(time.Second), limiter.WithBreaker(breaker.Settings{SlowCall: time.Minute, MinRequests: 1e6, ConsecutiveFailures: 1e6}))
			for i := range 3 { // connections
				go func() { _, _ = lim.Peek(t.Context(), fmt.Sprint("other", i)) }()
			}
			time.Sleep(100 * ms)
			before := decisionsOf(lim)
			delay := func(d time.Duration) { r.SetPath("a", func(p *sim.Path) { p.Delay = d }) }
			delay(c.there)
			go func() { _, _ = lim.Allow(t.Context(), "k") }()
			synctest.Wait()
			delay(c.back)
			began := time.Now()
			time.AfterFunc(max(c.there, 10*ms)+5*ms, func() { delay(10 * ms) })
			res, err := lim.Allow(t.Context(), "k")
			if took := time.Since(began); err != nil || res.Source != c.source || res.Remaining != c.remaining || res.Allowed != (c.remaining > 0) || took < c.after-5*ms || took > c.after+20*ms {
				t.Errorf("%s: %+v, %v, after %v", name, res, err, took)
			}
			time.Sleep(2 * time.Second)
			if n := decisionsOf(lim) - before; n != 2 {
				t.Errorf("%s: two decisions are counted as %d", name, n)
			}
		})
	}
}

// TestLeaseAfterAFailure: a call for more that fails, and one that is not made because the key is blocked here alone, are
// not the last.
func TestLeaseAfterAFailure(t *testing.T) {
	limit := limiter.FixedWindow(limiter.Per(100, 300*time.Hour))
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim, _ := simulatedLimiter(t, r, "a", limit, limiter.WithShare(1), limiter.WithLease(40, time.Hour))
		decide(t, lim, "before", asks{1, false, 1, limiter.SourceRedis, 99}, asks{18, false, 18, limiter.SourceLease, 81})
		r.SetPath("a", func(p *sim.Path) { p.Refused = true })
		decide(t, lim, "the call fails", asks{1, false, 1, limiter.SourceLease, 80}, asks{1, false, 1, limiter.SourceLease, 79})
		r.SetPath("a", func(p *sim.Path) { p.Refused = false })
		time.Sleep(10 * time.Second)
		before := r.Commands()
		decide(t, lim, "again", asks{1, false, 1, limiter.SourceLease, 78})
		if r.Commands() == before {
			t.Error("no call for more")
		}
		decide(t, lim, "more is held", asks{30, false, 30, limiter.SourceLease, 48})
	})
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim, _ := simulatedLimiter(t, r, "a", limit, limiter.WithShare(1), limiter.WithLease(40, time.Hour))
		if _, err := lim.Peek(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		r.SetPath("a", func(p *sim.Path) { p.Refused = true })
		if err := lim.Block(t.Context(), "k", time.Hour); !errors.Is(err, limiter.ErrUnavailable) {
			t.Error(err)
		}
		if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Allowed || res.Source != limiter.SourceLocal {
			t.Errorf("%+v, %v", res, err)
		}
		r.SetPath("a", func(p *sim.Path) { p.Refused = false })
		time.Sleep(10 * time.Second)
		must(t, lim.Reset(t.Context(), "k"))
		decide(t, lim, "after the block", asks{1, false, 1, limiter.SourceRedis, 99}, asks{1, false, 1, limiter.SourceLease, 98})
	})
}

// TestDenialsOfWhatIsMissing: that one unit is missing to a cost says nothing of what is held: a Multi spends it, and a
// reservation that ends gives it back.
func TestDenialsOfWhatIsMissing(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim, _ := simulatedLimiter(t, r, "a", limiter.FixedWindow(limiter.Per(40, 300*time.Hour)), limiter.WithShare(1), limiter.WithLease(40, time.Hour))
		decide(t, lim, "all is held", asks{1, false, 1, limiter.SourceRedis, 39}, asks{40, false, 0, limiter.SourceRedis, 39})
		m := newMulti(t, limiter.Part{Name: "one", Limiter: lim})
		res, err := m.Reserve(t.Context(), "k")
		if err != nil || !res.Allowed || res.Source != limiter.SourceLease || res.Remaining != 38 {
			t.Errorf("%+v, %v", res.Result, err)
		}
		must(t, res.Cancel(t.Context()))
		if res, err := m.Allow(t.Context(), "k", limiter.Cost(40)); err != nil || res.Allowed || res.Remaining != 39 {
			t.Errorf("%+v, %v", res.Result, err)
		}
		if res, err := m.Allow(t.Context(), "k", limiter.AtMost(60)); err != nil || res.Admitted != 39 {
			t.Errorf("%+v, %v", res.Result, err)
		}
	})
}

// TestNewLimitGivesBackWhatIsHeld: units that are held under a limit are not spent under another one, and go back when that
// is set.
func TestNewLimitGivesBackWhatIsHeld(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		make := clients(t, r)
		lim := newLimiter(t, make(), daily(100), patient(), limiter.WithLease(40, time.Hour))
		other := newLimiter(t, make(), daily(100), patient())
		_, err := lim.Allow(t.Context(), "k")
		must(t, err)
		time.Sleep(10 * time.Millisecond)
		if n := left(t, other, "k"); n != 60 {
			t.Errorf("%d are left beside a lease", n)
		}
		must(t, lim.SetLimit(daily(200)))
		time.Sleep(10 * time.Millisecond)
		if n := left(t, other, "k"); n != 99 {
			t.Errorf("%d are left", n)
		}
	})
}
