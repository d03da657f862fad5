package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// peers is the option of a fleet of n processes.
func peers(n int) limiter.Option {
	return limiter.WithPeerCount(func(context.Context) (int, error) { return n, nil })
}

// TestClaimsInVirtualTime: of a half of the limit each of four processes has a part by the units that Redis granted it,
// however it asked, of the 400 that they can be at most; what was denied, given back or only looked at was not granted. Who is
// alone has all of it.
func TestClaimsInVirtualTime(t *testing.T) {
	for name, c := range map[string]struct {
		opts    []limiter.Option
		use     func(t *testing.T, lim *limiter.Limiter, m *limiter.Multi)
		granted int
	}{
		"nothing": {nil, func(*testing.T, *limiter.Limiter, *limiter.Multi) {}, 0},
		"peeks":   {nil, func(t *testing.T, lim *limiter.Limiter, _ *limiter.Multi) { left(t, lim, "k") }, 0},
		"one by one": {nil, func(t *testing.T, lim *limiter.Limiter, _ *limiter.Multi) {
			for range 30 {
				_, err := lim.Allow(t.Context(), "k")
				must(t, err)
			}
		}, 30},
		"a refund": {nil, func(t *testing.T, lim *limiter.Limiter, _ *limiter.Multi) {
			_, err := lim.AllowN(t.Context(), "k", 40)
			must(t, err)
			must(t, lim.Refund(t.Context(), "k", 20))
		}, 20},
		"a denial": {nil, func(t *testing.T, lim *limiter.Limiter, _ *limiter.Multi) {
			for _, n := range []int{60, 60} {
				_, err := lim.AllowN(t.Context(), "k", n)
				must(t, err)
			}
		}, 60},
		"several limits": {nil, func(t *testing.T, _ *limiter.Limiter, m *limiter.Multi) {
			_, err := m.AllowN(t.Context(), "k", 30)
			must(t, err)
		}, 30},
		"several limits, of which one denies": {nil, func(t *testing.T, _ *limiter.Limiter, m *limiter.Multi) {
			for _, n := range []int{30, 25} {
				_, err := m.AllowN(t.Context(), "k", n)
				must(t, err)
			}
		}, 30},
		"a lease, and more": {[]limiter.Option{limiter.WithLease(40, time.Hour)}, func(t *testing.T, lim *limiter.Limiter, _ *limiter.Multi) {
			for range 20 {
				_, err := lim.Allow(t.Context(), "k")
				must(t, err)
			}
			time.Sleep(10 * time.Millisecond)
		}, 60},
	} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			rdb := clients(t, r)()
			opts := append(c.opts, peers(4), hasty(time.Hour))
			lim := newLimiter(t, rdb, daily(100), opts...)
			small := newLimiter(t, rdb, daily(50), peers(4), hasty(time.Hour), limiter.WithPrefix("small"))
			m := newMulti(t, limiter.Part{Name: "large", Limiter: lim}, limiter.Part{Name: "small", Limiter: small})
			_, err := m.Allow(t.Context(), "another")
			must(t, err)
			c.use(t, lim, m)
			cut(t, r, "p1", lim)
			res, err := lim.AllowN(t.Context(), "k", 99) // more than is held
			if want := 0.5/4 + 0.5*float64(c.granted)/400; err != nil || res.Claim > want || res.Claim < 0.998*want {
				t.Errorf("%s: a claim of %v, want %v: %+v, %v", name, res.Claim, want, res, err)
			}
		})
	}
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim := newLimiter(t, clients(t, r)(), daily(100), hasty(time.Hour))
		for range 10 {
			_, err := lim.Allow(t.Context(), "k")
			must(t, err)
		}
		cut(t, r, "p1", lim)
		if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Claim != 1 || res.Remaining != 89 {
			t.Errorf("alone: %+v, %v", res, err)
		}
	})
}

// TestProcessesThatSpendAreCounted: those that ask Redis, and those that spend what they hold for minutes without asking.
func TestProcessesThatSpendAreCounted(t *testing.T) {
	for name, opts := range map[string][]limiter.Option{"plain": nil, "leases": {limiter.WithLease(10_000, time.Hour)}} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			var fleet []*limiter.Limiter
			for i := range 3 {
				lim, _ := simulatedLimiter(t, r, fmt.Sprint("p", i), daily(100_000), opts...)
				fleet = append(fleet, lim)
			}
			for range 40 {
				for _, lim := range fleet {
					if res, err := lim.Allow(t.Context(), "k"); err != nil || !res.Allowed {
						t.Fatalf("%s: %+v, %v", name, res, err)
					}
				}
				time.Sleep(4 * time.Second)
			}
			for i, lim := range fleet {
				if n := lim.Health().Processes; n != 3 {
					t.Errorf("%s: process %d counts %d", name, i, n)
				}
			}
		})
	}
}

// TestBackBeforeTheOthers: a process that is back decides by its claim until the others are, and is charged for what it used
// of a window meanwhile. One whose breaker is open tells the fleet that it is away, a few times a second.
func TestBackBeforeTheOthers(t *testing.T) {
	counted := func(t *testing.T, fleet ...*limiter.Limiter) {
		t.Helper()
		for range 40 {
			agree := true
			for _, lim := range fleet {
				_, err := lim.Allow(t.Context(), "another")
				must(t, err)
				agree = agree && lim.Health().Processes == len(fleet)
			}
			if agree {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Fatal("they do not count each other")
	}
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		a, _ := simulatedLimiter(t, r, "a", daily(100))
		b, _ := simulatedLimiter(t, r, "b", daily(100))
		counted(t, a, b)
		cut(t, r, "a", a)
		cut(t, r, "b", b)
		if res, err := a.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceLocal {
			t.Errorf("%+v, %v", res, err)
		}
		r.SetPath("a", func(p *sim.Path) { p.Refused = false })
		for i := 0; a.Health().Servers[0].State != breaker.Closed; i++ {
			if i == 1000 {
				t.Fatal("the breaker stays open")
			}
			_, _ = a.Allow(t.Context(), "another")
			time.Sleep(time.Millisecond)
		}
		before := a.Health().Reconciled
		for i := range 60 {
			if i == 20 {
				before = a.Health().Reconciled
			}
			if res, err := a.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceLocal {
				t.Fatalf("before the others: %+v, %v", res, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if n := a.Health().Reconciled; n == before {
			t.Error("Redis was charged with nothing more of a window")
		}
		for range 30 { // b is given up
			_, _ = a.Allow(t.Context(), "another")
			time.Sleep(100 * time.Millisecond)
		}
		if res, err := a.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceRedis {
			t.Errorf("at last: %+v, %v", res, err)
		}
	})
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		a, _ := simulatedLimiter(t, r, "a", daily(100), hasty(time.Hour))
		b, _ := simulatedLimiter(t, r, "b", daily(100), hasty(time.Hour))
		counted(t, a, b)
		cut(t, r, "a", a)
		r.SetPath("a", func(p *sim.Path) { p.Refused = false })
		time.Sleep(time.Second)
		before := r.Commands()
		for range 40 {
			if res, err := a.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceLocal {
				t.Fatalf("%+v, %v", res, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if n := r.Commands() - before; n < 2 || n > 9 {
			t.Errorf("%d commands in two seconds", n)
		}
	})
}

// TestPeerCountInAnOutage: how many processes there are is asked for where decisions are made without Redis, too: of one
// limit, of several, and of what a reservation costs more.
func TestPeerCountInAnOutage(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := clients(t, r)()
		for name, ask := range map[string]func(lim *limiter.Limiter, m *limiter.Multi, res *limiter.Reservation) error{
			"one": func(lim *limiter.Limiter, _ *limiter.Multi, _ *limiter.Reservation) error {
				_, err := lim.Allow(t.Context(), "k")
				return err
			},
			"several": func(_ *limiter.Limiter, m *limiter.Multi, _ *limiter.Reservation) error {
				_, err := m.AllowN(t.Context(), "k", 101)
				return err
			},
			"settled": func(_ *limiter.Limiter, _ *limiter.Multi, res *limiter.Reservation) error {
				return res.Settle(t.Context(), 9)
			},
		} {
			r.SetPath("p1", func(p *sim.Path) { p.Refused = false })
			var n atomic.Int64
			n.Store(4)
			opts := []limiter.Option{hasty(time.Hour), limiter.WithPeerCount(func(context.Context) (int, error) { return int(n.Load()), nil })}
			lim := newLimiter(t, rdb, daily(2000), append(opts, limiter.WithPrefix(name))...)
			other := newLimiter(t, rdb, daily(500), append(opts, limiter.WithPrefix(name+"2"))...)
			m := newMulti(t, limiter.Part{Name: "a", Limiter: lim}, limiter.Part{Name: "b", Limiter: other})
			res := reserve(t, lim, "k", 1)
			cut(t, r, "p1", lim, other)
			if h := lim.Health(); h.Processes != 4 {
				t.Errorf("%s: %+v", name, h)
			}
			n.Store(8)
			time.Sleep(time.Minute)
			must(t, ask(lim, m, res))
			synctest.Wait()
			if h := lim.Health(); h.Processes != 8 || h.Share != 1.0/8 {
				t.Errorf("%s: %+v", name, h)
			}
			must(t, lim.Close())
			must(t, other.Close())
		}
	})
}

// TestWhenToComeBack: a cost beyond the claim when Redis is asked again, to the microsecond, or when a block is over; one
// unit, in whatever number it was asked for, when the claim has it.
func TestWhenToComeBack(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := clients(t, r)()
		lim := newLimiter(t, rdb, daily(20), limiter.WithShare(0.05), hasty(time.Hour))
		closed := newLimiter(t, rdb, daily(20), limiter.WithPrefix("closed"), limiter.WithFallback(fallback.Closed), hasty(time.Hour))
		for _, l := range []*limiter.Limiter{lim, closed} {
			_, err := l.Peek(t.Context(), "k")
			must(t, err)
		}
		must(t, lim.Block(t.Context(), "blocked", 48*time.Hour))
		cut(t, r, "p1", lim, closed)
		for range 20 {
			time.Sleep(time.Second + 777)
			probe := time.Until(lim.Health().Servers[0].RetryAt).Round(time.Microsecond)
			if res, err := lim.AllowN(t.Context(), "k", 2); err != nil || !res.BeyondClaim || res.RetryAfter != probe {
				t.Errorf("%+v, %v, want %v", res, err, probe)
			}
			probe = time.Until(closed.Health().Servers[0].RetryAt).Round(time.Microsecond)
			if res, err := closed.Allow(t.Context(), "k"); !errors.Is(err, limiter.ErrUnavailable) || res.RetryAfter != probe {
				t.Errorf("%+v, %v, want %v", res, err, probe)
			}
		}
		takes(t, lim, "k", 20, 1)
		if res := takes(t, lim, "k", 20, 0); res.BeyondClaim || res.RetryAfter > 24*time.Hour {
			t.Errorf("%+v", res)
		}
		if res, err := lim.AllowN(t.Context(), "k", 2); err != nil || !res.BeyondClaim || res.RetryAfter > time.Hour {
			t.Errorf("%+v, %v", res, err)
		}
		if res, err := lim.AllowN(t.Context(), "blocked", 2); err != nil || !res.BeyondClaim || res.RetryAfter < 47*time.Hour {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// TestWhatIsKnownOfAKey: denials are not used where Redis cannot be asked, nor of a peek, nor by the bound of one
// caller's patience; of what is kept for critical calls no other calls are made.
func TestWhatIsKnownOfAKey(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim := newLimiter(t, clients(t, r)(), daily(3), limiter.WithShare(1), hasty(time.Hour))
		for i, source := range []limiter.Source{limiter.SourceRedis, limiter.SourceRedis, limiter.SourceCache} {
			if res, err := lim.AllowN(t.Context(), "k", 2); err != nil || res.Source != source || res.Allowed != (i == 0) {
				t.Errorf("%d: %+v, %v", i, res, err)
			}
		}
		cut(t, r, "p1", lim)
		if res, err := lim.AllowN(t.Context(), "k", 2); err != nil || res.Source != limiter.SourceLocal {
			t.Errorf("%+v, %v", res, err)
		}
	})
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim := newLimiter(t, clients(t, r)(), limiter.TokenBucket(limiter.Per(12, 24*time.Hour), 12), patient(), limiter.WithCriticalHeadroom(0.25))
		for i, source := range []limiter.Source{limiter.SourceRedis, limiter.SourceCache} {
			if res, err := lim.AllowN(t.Context(), "k", 5); err != nil || res.Source != source || res.Allowed != (i == 0) {
				t.Errorf("%d: %+v, %v", i, res, err)
			}
		}
		rdb := clients(t, r)()
		m := newMulti(t, limiter.Part{Name: "a", Limiter: newLimiter(t, rdb, limiter.TokenBucket(limiter.Per(12, 24*time.Hour), 12), patient(), limiter.WithCriticalHeadroom(0.25))},
			limiter.Part{Name: "b", Limiter: newLimiter(t, rdb, daily(100), patient(), limiter.WithPrefix("b"))})
		for i, source := range []limiter.Source{limiter.SourceRedis, limiter.SourceCache} {
			if res, err := m.AllowN(t.Context(), "several", 5); err != nil || res.Source != source || res.Allowed != (i == 0) {
				t.Errorf("%d: %+v, %v", i, res, err)
			}
		}
		must(t, lim.Block(t.Context(), "blocked", time.Hour))
		before := r.Commands()
		for range 3 {
			if res, err := lim.Peek(t.Context(), "blocked"); err != nil || res.Allowed || res.Source != limiter.SourceRedis {
				t.Errorf("%+v, %v", res, err)
			}
		}
		if n := r.Commands() - before; n != 3 {
			t.Errorf("%d commands for three peeks", n)
		}
	})
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim := newLimiter(t, clients(t, r)(), limiter.LeakyBucketShaping(limiter.Per(1, time.Hour), 10), limiter.WithShare(1))
		for range 2 {
			_, err := lim.Allow(t.Context(), "k")
			must(t, err)
		}
		before := r.Commands()
		for range 3 {
			ctx, end := context.WithTimeout(t.Context(), time.Minute)
			var late *limiter.WaitError
			if _, err := lim.Wait(ctx, "k"); !errors.As(err, &late) {
				t.Error(err)
			}
			end()
		}
		if n := r.Commands() - before; n != 3 {
			t.Errorf("%d commands for three callers", n)
		}
	})
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		make := clients(t, r)
		here, there := newLimiter(t, make(), daily(10), patient()), newLimiter(t, make(), daily(10), patient())
		_, err := here.AllowN(t.Context(), "k", 9)
		must(t, err)
		if res, err := here.AllowN(t.Context(), "k", 2); err != nil || res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
		must(t, there.Refund(t.Context(), "k", 5))
		takes(t, here, "k", 10, 6) // that there was no room for two does not say so of one
		must(t, there.Refund(t.Context(), "k", 1))
		takes(t, here, "k", 2, 1)
	})
}

// TestToldToRedis: a block is sent once, and what waits to be given back goes with Close, also when nothing is decided any
// more. What was admitted without asking is not charged when its cost becomes known.
func TestToldToRedis(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		make := clients(t, r)
		here, there := newLimiter(t, make(), daily(10), patient()), newLimiter(t, make(), daily(10), patient())
		must(t, here.Block(t.Context(), "k", time.Hour))
		if res, err := there.Allow(t.Context(), "k"); err != nil || res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
		must(t, there.Reset(t.Context(), "k"))
		if res, err := here.Allow(t.Context(), "k"); err != nil || !res.Allowed || res.Source != limiter.SourceRedis {
			t.Errorf("%+v, %v", res, err)
		}

		res := reserve(t, here, "back", 4)
		before := r.Commands()
		must(t, reserve(t, here, "same", 4).Settle(t.Context(), 4))
		if n := r.Commands() - before; n != 1 {
			t.Errorf("%d commands for a cost that stays", n)
		}
		for range 3 { // of connections that are reset it is not known what was sent
			r.SetPath("p1", func(p *sim.Path) { p.Refused = true })
			_, _ = here.Peek(t.Context(), "another")
		}
		must(t, res.Cancel(t.Context()))
		if n := left(t, there, "back"); n != 6 {
			t.Errorf("%d are left", n)
		}
		r.SetPath("p1", func(p *sim.Path) { p.Refused = false })
		must(t, here.Close())
		if n := left(t, there, "back"); n != 10 {
			t.Errorf("%d are left after Close", n)
		}
	})
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		make := clients(t, r)
		lim, there := newLimiter(t, make(), daily(10), limiter.WithFallback(fallback.Open)), newLimiter(t, make(), daily(10), patient())
		_, err := lim.Peek(t.Context(), "k")
		must(t, err)
		cut(t, r, "p1", lim)
		res := reserve(t, lim, "k", 1)
		if res.Source != limiter.SourceOpen {
			t.Errorf("%+v", res.Result)
		}
		r.SetPath("p1", func(p *sim.Path) { p.Refused = false })
		for range 20 {
			time.Sleep(time.Second)
			_, _ = lim.Allow(t.Context(), "another")
		}
		must(t, res.Settle(t.Context(), 5))
		if n := left(t, there, "k"); n != 10 {
			t.Errorf("%d are left", n)
		}
	})
}

// TestWaitOfAnotherProcess: who waits for long asks again, as another process may have made room; and asks for the limit of
// its key once for each decision.
func TestWaitOfAnotherProcess(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		make := clients(t, r)
		var asked atomic.Int64
		limitFor := limiter.WithLimitFor(func(_ context.Context, key string) limiter.Limit {
			asked.Add(1)
			if strings.HasPrefix(key, "large") {
				return daily(100)
			}
			return limiter.Limit{}
		})
		lim := newLimiter(t, make(), daily(2), patient(), limitFor)
		there := newLimiter(t, make(), daily(2), patient())
		_, err := lim.AllowN(t.Context(), "k", 2)
		must(t, err)
		time.AfterFunc(5*time.Second, func() {
			if err := there.Reset(t.Context(), "k"); err != nil {
				t.Error(err)
			}
		})
		began := time.Now()
		if res, err := lim.Wait(t.Context(), "k"); err != nil || !res.Allowed || time.Since(began) > 12*time.Second {
			t.Errorf("%+v, %v, after %v", res, err, time.Since(began))
		}
		asked.Store(0)
		if res, err := lim.Wait(t.Context(), "large", limiter.Cost(20)); err != nil || res.Remaining != 80 || asked.Load() != 1 {
			t.Errorf("%+v, %v, %d calls", res, err, asked.Load())
		}
	})
}
