package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// groups are three limits, of which the first two are decided together, and the third by a call of its own.
func groups(t *testing.T, r *sim.Redis, limits [3]int, opts ...limiter.Option) (m *limiter.Multi, first *redis.Client, parts []limiter.Part) {
	t.Helper()
	make := clients(t, r)
	first = make()
	rdbs := [3]redis.UniversalClient{first, first, make()}
	for i, n := range limits {
		name := string(rune('a' + i))
		parts = append(parts, limiter.Part{
			Name: name, Limiter: newLimiter(t, rdbs[i], daily(n), append([]limiter.Option{limiter.WithPrefix(name), limiter.WithShare(1)}, opts...)...),
			Key: func(key string) string { return key + "@" + name },
		})
	}
	return newMulti(t, parts...), first, parts
}

// room says what is left of each part.
func room(t *testing.T, parts []limiter.Part) (of [3]int) {
	t.Helper()
	for i, p := range parts {
		of[i] = left(t, p.Limiter, "k@"+p.Name)
	}
	return of
}

// TestGroupsOfParts: parts of one client take one call, others one each, in order; the first that denies is the last that is
// asked, and what was taken goes back. The same holds while Redis is away for the first ones, and where it takes no two keys.
func TestGroupsOfParts(t *testing.T) {
	for name, c := range map[string]struct {
		limits   [3]int
		cut      bool
		apart    bool
		commands int // of one decision
	}{
		"the first is small":             {[3]int{3, 9, 9}, false, false, 2},
		"the second is small":            {[3]int{9, 3, 9}, false, false, 2},
		"the third is small":             {[3]int{9, 9, 3}, false, false, 2},
		"the first is small, apart":      {[3]int{3, 9, 9}, false, true, 3},
		"the second is small, apart":     {[3]int{9, 3, 9}, false, true, 3},
		"the third is small, apart":      {[3]int{9, 9, 3}, false, true, 3},
		"the first is small, in outage":  {[3]int{3, 9, 9}, true, false, 1},
		"the second is small, in outage": {[3]int{9, 3, 9}, true, false, 1},
		"the third is small, in outage":  {[3]int{9, 9, 3}, true, false, 1},
	} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			m, first, parts := groups(t, r, c.limits, hasty(time.Hour), limiter.WithoutDenialCache())
			if c.apart {
				first.AddHook(new(slotted))
			}
			_, err := m.Allow(t.Context(), "another")
			must(t, err)
			if c.cut {
				cut(t, r, "p1", parts[0].Limiter, parts[1].Limiter)
			}
			counted := func() (of [3]uint64) {
				for i, p := range parts {
					of[i] = decisionsOf(p.Limiter)
				}
				return of
			}
			try := func(n, asked int, allowed bool, opt limiter.CallOption) {
				t.Helper()
				before := counted()
				res, err := m.Allow(t.Context(), "k", opt)
				if err != nil || res.Allowed != allowed || len(res.Parts) != asked || allowed && res.Admitted != n {
					t.Errorf("%s, %d: %+v, %v", name, n, res, err)
				}
				after := counted()
				for i := range after {
					if got, want := after[i]-before[i], i < asked; got != 1 && want || got != 0 && !want {
						t.Errorf("%s, %d: part %d is counted %d times", name, n, i, got)
					}
				}
				for _, p := range res.Parts {
					if allowed && p.Admitted != n {
						t.Errorf("%s, %d: %+v", name, n, p)
					}
				}
			}
			want := func(when string, used int) {
				t.Helper()
				if got := room(t, parts); got != [3]int{c.limits[0] - used, c.limits[1] - used, c.limits[2] - used} {
					t.Errorf("%s, %s: %v are left of %v", name, when, got, c.limits)
				}
			}
			asked := 3 // of a denial
			if c.limits[2] == 9 {
				asked = 2
			}
			if c.apart && c.limits[0] == 3 {
				asked = 1
			}
			before := r.Commands()
			try(2, 3, true, limiter.Cost(2))
			if n := r.Commands() - before; n != c.commands {
				t.Errorf("%s: %d commands", name, n)
			}
			want("two", 2)
			try(3, asked, false, limiter.Cost(3))
			want("denied", 2)
			res, err := m.Reserve(t.Context(), "k")
			must(t, err)
			want("reserved", 3)
			if last := res.Parts[2].Remaining; last != c.limits[2]-3 || res.Remaining != 0 || res.Parts[0].Remaining != c.limits[0]-3 {
				t.Errorf("%s: %+v", name, res)
			}
			must(t, res.Cancel(t.Context()))
			want("cancelled", 2)
			if c.cut {
				return // of which fewer units are asked for by what the first ones have
			}
			try(1, 3, true, limiter.AtMost(2)) // two are asked for before one is
			want("one of at most two", 3)
			try(0, asked, false, limiter.AtMost(5))
			want("none of at most five", 3)
		})
	}
}

// slowCalls makes so many slow calls that the next one waits for its turn.
func slowCalls(t *testing.T, r *sim.Redis, process string, lim *limiter.Limiter) {
	r.SetPath(process, func(p *sim.Path) { p.Delay = time.Second })
	for i := range 6 {
		go func() { _, _ = lim.Peek(t.Context(), fmt.Sprint("busy", i)) }()
	}
}

// TestGroupsHaveOneBudget: all calls of a decision take no longer than one, also with what goes back; a caller who leaves
// keeps nothing.
func TestGroupsHaveOneBudget(t *testing.T) {
	const ms = time.Millisecond
	slow := func(r *sim.Redis, process string, d time.Duration) {
		r.SetPath(process, func(p *sim.Path) { p.Delay = d / 2 })
	}
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		m, _, _ := groups(t, r, [3]int{9, 9, 9}, limiter.WithoutDenialCache())
		_, err := m.Allow(t.Context(), "k")
		must(t, err)
		slow(r, "p1", 30*ms)
		r.SetPath("p2", func(p *sim.Path) { p.Lost = true })
		began := time.Now()
		if res, err := m.Allow(t.Context(), "k"); err != nil || !res.Allowed || res.Parts[2].Source != limiter.SourceLocal || time.Since(began) > 51*ms || time.Since(began) < 49*ms {
			t.Errorf("%+v, %v, after %v", res, err, time.Since(began))
		}
	})
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		m, _, _ := groups(t, r, [3]int{9, 9, 1}, limiter.WithoutDenialCache())
		_, err := m.Allow(t.Context(), "k")
		must(t, err)
		slow(r, "p2", 40*ms)
		began := time.Now()
		time.AfterFunc(10*ms, func() { r.SetPath("p1", func(p *sim.Path) { p.Lost = true }) })
		if res, err := m.Allow(t.Context(), "k"); err != nil || res.Allowed || res.Denied != "c" || time.Since(began) > 51*ms {
			t.Errorf("%+v, %v, after %v", res, err, time.Since(began))
		}
	})
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		m, _, parts := groups(t, r, [3]int{9, 9, 9}, patient())
		_, err := m.Allow(t.Context(), "k")
		must(t, err)
		slow(r, "p2", time.Second)
		go func() { _, _ = parts[2].Limiter.Peek(t.Context(), "another") }() // who is the only one waits for its own call
		time.Sleep(time.Millisecond)
		ctx, end := context.WithCancel(t.Context())
		time.AfterFunc(50*ms, func() { slowCalls(t, r, "p1", parts[0].Limiter) })
		time.AfterFunc(100*ms, end)
		if res, err := m.Allow(ctx, "k"); !errors.Is(err, context.Canceled) {
			t.Errorf("%+v, %v", res, err)
		}
		slow(r, "p1", 0)
		slow(r, "p2", 0)
		if got := room(t, parts); got[0] != 8 || got[1] != 8 {
			t.Errorf("%v are left", got)
		}
	})
}

// thief is a hook of a client that does something when so many commands were answered.
type thief struct {
	after int
	steal func()
}

func (*thief) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *thief) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if h.after--; h.after == 0 {
			h.steal()
		}
		return err
	}
}

func (*thief) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestFewerOfGroups: what is asked for again, in a smaller number, says nothing of those that were asked before.
func TestFewerOfGroups(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		m, first, parts := groups(t, r, [3]int{9, 9, 9}, patient(), limiter.WithoutDenialCache())
		_, err := m.Allow(t.Context(), "another")
		must(t, err)
		_, err = parts[2].Limiter.AllowN(t.Context(), "k@c", 6)
		must(t, err)
		other := newLimiter(t, r.Client("thief", redis.Options{MaxRetries: -1, DialerRetries: 1}), daily(9), patient(), limiter.WithPrefix("a"))
		first.AddHook(&thief{3, func() { // when both parts have got back what they gave
			if _, err := other.AllowN(t.Context(), "k@a", 9); err != nil {
				t.Error(err)
			}
		}})
		res, err := m.Allow(t.Context(), "k", limiter.AtMost(5))
		if err != nil || res.Allowed || res.Denied != "a" || len(res.Parts) != 2 {
			t.Errorf("%+v, %v", res, err)
		}
		if got := room(t, parts); got != [3]int{0, 9, 3} {
			t.Errorf("%v are left", got)
		}
	})
}

// TestSeveralLimitsWithALease: of a part that holds units, as of one that is split, all that is asked for is taken, or nothing; and
// what Redis may have charged is not charged again.
func TestSeveralLimitsWithALease(t *testing.T) {
	for name, opt := range map[string]limiter.Option{"plain": limiter.WithoutDenialCache(), "a lease": limiter.WithLease(4, time.Hour), "split": limiter.WithKeyShards(2)} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			rdb := clients(t, r)()
			one := newLimiter(t, rdb, daily(20), patient(), limiter.WithPrefix("one"), opt)
			two := newLimiter(t, rdb, daily(50), patient(), limiter.WithPrefix("two"))
			m := newMulti(t, limiter.Part{Name: "two", Limiter: two}, limiter.Part{Name: "one", Limiter: one})
			for range 4 {
				res, err := m.AllowN(t.Context(), "k", 4)
				if err != nil || !res.Allowed {
					t.Errorf("%s: %+v, %v", name, res, err)
				}
			}
			most := 4 // of a part of a key, 2
			if name == "split" {
				most = 2
			}
			if res, err := m.AllowN(t.Context(), "k", most+1); err != nil || res.Allowed || left(t, two, "k") != 50-16 {
				t.Errorf("%s: %+v, %v", name, res, err)
			}
			if res, err := m.Allow(t.Context(), "k", limiter.AtMost(8)); err != nil || res.Admitted != most || left(t, two, "k") != 50-16-most {
				t.Errorf("%s: %+v, %v", name, res, err)
			}
		})
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			make := clients(t, r)
			rdb, f := make(), new(forgetful)
			rdb.AddHook(f)
			one := newLimiter(t, rdb, daily(400), limiter.WithBudget(patience), limiter.WithShare(0.01), limiter.WithPrefix("one"), opt)
			m := newMulti(t, limiter.Part{Name: "one", Limiter: one})
			there := newLimiter(t, make(), daily(400), patient(), limiter.WithPrefix("one"), opt)
			_, err := m.Allow(t.Context(), "another")
			must(t, err)
			f.loses.Store(true)
			if res, err := m.Allow(t.Context(), "k", limiter.AtMost(50)); err != nil || res.Allowed {
				t.Errorf("%s: %+v, %v", name, res, err)
			}
			f.loses.Store(false)
			rest := 0
			for range 200 {
				res, err := there.Allow(t.Context(), "k", limiter.AtMost(1000))
				must(t, err)
				rest += res.Admitted
			}
			if rest != 400-50 {
				t.Errorf("%s: %d are left", name, rest)
			}
		})
	}
}

// TestOnePartInLine: a Multi of one limit is that limit: what it denied is asked for again as soon as there can be a unit.
func TestOnePartInLine(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim := newLimiter(t, clients(t, r)(), limiter.TokenBucket(limiter.PerSecond(1), 2), patient())
		m := newMulti(t, limiter.Part{Name: "one", Limiter: lim})
		if res, err := m.AllowN(t.Context(), "k", 2); err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
		for range 5 {
			res, err := m.AllowN(t.Context(), "k", 1)
			if err != nil || res.Allowed || res.RetryAfter <= 0 {
				t.Fatalf("%+v, %v", res, err)
			}
			time.Sleep(res.RetryAfter)
			if res, err := m.AllowN(t.Context(), "k", 1); err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		if err := m.Block(t.Context(), "k", time.Hour); err != nil {
			t.Error(err)
		}
		named := newMulti(t, limiter.Part{Name: "one", Limiter: lim, Key: func(key string) string { return key }})
		if err := named.Block(t.Context(), "k", time.Hour); !errors.Is(err, limiter.ErrInvalidConfig) {
			t.Error(err)
		}
	})
}
