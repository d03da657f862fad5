package limiter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestTurnsOfParts: the part that has room is found by its turn, or as the second one; those that are known to deny do not
// count. A denial says when the first of them has room, which is asked first then.
func TestTurnsOfParts(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := clients(t, r)()
		n := 0
		split := func(limit limiter.Limit, parts int, opts ...limiter.Option) *limiter.Limiter {
			n++
			return newLimiter(t, rdb, limit, append(opts, patient(), limiter.WithPrefix(fmt.Sprint("n", n)), limiter.WithKeyShards(parts))...)
		}
		ask := func(what string, lim *limiter.Limiter, n int, allowed bool, commands int) limiter.Result {
			t.Helper()
			before := r.Commands()
			res, err := lim.AllowN(t.Context(), "k", n)
			if got := r.Commands() - before; err != nil || res.Allowed != allowed || got != commands {
				t.Errorf("%s: %+v, %v, %d commands, want %d", what, res, err, got, commands)
			}
			return res
		}
		two := split(daily(4), 2, limiter.WithoutDenialCache())
		_, err := two.Peek(t.Context(), "another")
		must(t, err)
		_, err = two.Allow(t.Context(), "another") // which loads the script
		must(t, err)
		ask("the first part", two, 2, true, 1)
		ask("one of the second", two, 1, true, 1)
		if n := left(t, two, "k"); n != 1 {
			t.Errorf("%d are left of the part with most", n)
		}
		ask("the second, as the first is empty", two, 1, true, 2)
		ask("none", two, 1, false, 2)

		four := split(daily(8), 4, limiter.WithoutDenialCache())
		ask("a script", four, 2, true, 1)
		if n := left(t, four, "k"); n != 2 {
			t.Errorf("%d are left of the part with most", n)
		}
		for range 3 {
			ask("each", four, 2, true, 1)
		}
		for range 4 {
			ask("two are asked", four, 1, false, 2)
		}
		must(t, four.Refund(t.Context(), "another", 1)) // which loads the script, too
		before := r.Commands()
		must(t, four.Refund(t.Context(), "k", 1))
		if n := r.Commands() - before; n != 1 {
			t.Errorf("%d commands for what the first part takes back", n)
		}
		must(t, four.Refund(t.Context(), "k", 2)) // more than there is to take back
		if n := left(t, four, "k"); n != 2 {
			t.Errorf("%d are left", n)
		}

		known := split(daily(8), 4)
		for range 4 {
			ask("each", known, 2, true, 1)
		}
		ask("two are not known", known, 1, false, 2)
		ask("nor the other two", known, 1, false, 2)
		ask("all are known", known, 1, false, 0)

		// The second part was emptied first.
		soon := split(limiter.GCRA(limiter.Per(2, 10*time.Second), 4), 2, limiter.WithoutDenialCache())
		_, err = soon.Allow(t.Context(), "another")
		must(t, err)
		ask("the first part", soon, 1, true, 1)
		ask("the second part", soon, 2, true, 1)
		time.Sleep(4 * time.Second)
		ask("the first part", soon, 1, true, 1)
		time.Sleep(time.Second)
		ask("the second part has none", soon, 2, false, 2)
		res := ask("none", soon, 2, false, 2)
		if res.RetryAfter > 15*time.Second || res.RetryAfter < 14*time.Second {
			t.Errorf("%+v", res)
		}
		time.Sleep(res.RetryAfter)
		ask("the one that has room is asked first", soon, 2, true, 1)

		sooner := split(limiter.GCRA(limiter.Per(2, 10*time.Second), 4), 2, limiter.WithoutDenialCache())
		ask("the first part", sooner, 2, true, 1)
		ask("the second part", sooner, 1, true, 1)
		for range 2 {
			res = ask("none", sooner, 2, false, 2)
			if res.RetryAfter > 10*time.Second || res.RetryAfter < 9*time.Second {
				t.Errorf("%+v", res)
			}
		}
		time.Sleep(res.RetryAfter)
		ask("the one that has room is asked first", sooner, 2, true, 1)
	})
}

// TestPartsOfManyKeys: each key has its turn.
func TestPartsOfManyKeys(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim := newLimiter(t, clients(t, r)(), daily(100), limiter.WithShare(1), limiter.WithKeyShards(2), hasty(time.Hour))
		cut(t, r, "p1", lim)
		for i := range 5000 {
			if res, err := lim.Allow(t.Context(), fmt.Sprint(i)); err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
		}
	})
}

// TestLostReplyOfAPart: what Redis may have charged to one part is not charged to another one.
func TestLostReplyOfAPart(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		make := clients(t, r)
		rdb, f := make(), new(forgetful)
		rdb.AddHook(f)
		opts := []limiter.Option{limiter.WithBudget(patience), limiter.WithShare(0.1), limiter.WithKeyShards(2)}
		lim, there := newLimiter(t, rdb, daily(20), opts...), newLimiter(t, make(), daily(20), opts...)
		_, err := lim.Allow(t.Context(), "another")
		must(t, err)
		f.loses.Store(true)
		if res, err := lim.AllowN(t.Context(), "k", 5); err != nil || res.Allowed || res.Source != limiter.SourceLocal {
			t.Errorf("%+v, %v", res, err)
		}
		for _, want := range []bool{true, true, true, false} { // of twenty, five are gone
			if res, err := there.AllowN(t.Context(), "k", 5); err != nil || res.Allowed != want {
				t.Errorf("%+v, %v", res, err)
			}
		}
	})
}
