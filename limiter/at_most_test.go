package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// takes asks for at most n, and fails unless so many were admitted.
func takes(t *testing.T, lim reserver, key string, n, want int) *limiter.Reservation {
	t.Helper()
	r, err := lim.Reserve(t.Context(), key, limiter.AtMost(n))
	if err != nil || r.Allowed != (want > 0) || r.Admitted != want || r.Allowed == (r.RetryAfter > 0) {
		t.Fatalf("at most %d of %s: %+v, %v; want %d", n, key, r, err, want)
	}
	return r
}

// TestAtMost: what there is room for is admitted, also of more than the limit ever admits, and
// a denial says when there is room for one unit. A peek and bad numbers are those of a Cost.
func TestAtMost(t *testing.T) {
	eachKind(t, 10, nil, func(t *testing.T, lim reserver, limit limiter.Limit) {
		takes(t, lim, "k", 7, 7)
		three := takes(t, lim, "k", 100, 3)
		denied, one := takes(t, lim, "k", 100, 0), reserve(t, lim, "k", 1)
		if d := denied.RetryAfter - one.RetryAfter; d < 0 || d > time.Minute {
			t.Errorf("retry after %v, and after %v for one unit", denied.RetryAfter, one.RetryAfter)
		}
		if r, err := lim.Reserve(t.Context(), "k", limiter.AtMost(0)); err != nil || !r.Allowed || r.Admitted != 0 {
			t.Errorf("a peek: %+v, %v", r, err)
		}
		if _, err := lim.Reserve(t.Context(), "k", limiter.AtMost(-1)); !errors.Is(err, limiter.ErrInvalidCost) {
			t.Error(err)
		}
		if limit.Algorithm() == "leaky bucket shaping" {
			return // nothing is given back
		}
		must(t, three.Settle(t.Context(), 1))
		if n := left(t, lim, "k"); n != 2 && n != 2-fractions(limit) {
			t.Errorf("%d left after 2 of 3 were given back", n)
		}
	})
}

// TestAtMostOfWhatHasComeSince: a process that knows that there is no room for all units does not know
// how many there are by now, so it asks Redis.
func TestAtMostOfWhatHasComeSince(t *testing.T) {
	onBoth(t, func(t *testing.T, client func() *redis.Client) {
		limit := limiter.TokenBucket(limiter.PerHour(10), 10)
		here := newLimiter(t, client(), limit, patient())
		there := newLimiter(t, client(), limit, patient())
		m := newMulti(t, limiter.Part{Name: "one", Limiter: here})
		takes(t, here, "k", 100, 10) // so there is no room for ten more
		must(t, there.Refund(t.Context(), "k", 5))
		takes(t, here, "k", 100, 5)
		must(t, there.Refund(t.Context(), "k", 5))
		takesOf(t, m, "k", 100, 5)
		until(t, "a denial of one unit that is remembered", func() bool {
			return takes(t, here, "k", 100, 0).Source == limiter.SourceCache
		})
	})
}

// TestAtMostIsOneDecision: it is counted, and reported to the hook, once, with what was admitted.
func TestAtMostIsOneDecision(t *testing.T) {
	onBoth(t, func(t *testing.T, client func() *redis.Client) {
		var told []limiter.DecisionInfo
		lim := newLimiter(t, client(), limiter.FixedWindow(limiter.Per(10, 300*time.Hour)), patient(),
			limiter.WithHooks(limiter.Hooks{Decision: func(_ context.Context, d limiter.DecisionInfo) { told = append(told, d) }}))
		takes(t, lim, "k", 4, 4)
		takes(t, lim, "k", 8, 6)
		takes(t, lim, "k", 8, 0)
		total := uint64(0)
		for _, n := range lim.Health().Decisions {
			total += n
		}
		if total != 3 || len(told) != 3 || told[1].Cost != 6 || told[1].Result.Admitted != 6 || told[2].Result.Allowed {
			t.Errorf("%d decisions, told %+v", total, told)
		}
	})
}

// TestAtMostOfLeasesAndParts: what a process holds is a part of what there is, and a split key
// gives what one part has.
func TestAtMostOfLeasesAndParts(t *testing.T) {
	onBoth(t, func(t *testing.T, client func() *redis.Client) {
		rdb := client()
		limit := limiter.FixedWindow(limiter.Per(10, 300*time.Hour))
		leased := newLimiter(t, rdb, limit, patient(), limiter.WithPrefix("leased"), limiter.WithLease(4, time.Hour))
		reserve(t, leased, "k", 1)
		takes(t, leased, "k", 50, 9)
		takes(t, leased, "k", 50, 0)
		split := newLimiter(t, rdb, limit, patient(), limiter.WithPrefix("split"), limiter.WithKeyShards(2))
		takes(t, split, "k", 50, 5)
		takes(t, split, "k", 50, 5)
		takes(t, split, "k", 50, 0)
	})
}

// TestAtMostInAnOutage: a process admits what its claim has room for, and what its lease holds.
func TestAtMostInAnOutage(t *testing.T) {
	srv := redistest.Start(t)
	proxy, rdb := behind(t, srv, redis.Options{MaxRetries: -1, DialerRetries: 1})
	limit := limiter.FixedWindow(limiter.Per(100, 300*time.Hour))
	lim := newLimiter(t, rdb, limit, unhurried(), hasty(time.Hour), limiter.WithShare(0.05))
	leased := newLimiter(t, rdb, limit, unhurried(), hasty(time.Hour), limiter.WithShare(0.05), limiter.WithPrefix("leased"), limiter.WithLease(4, time.Hour))
	reserve(t, leased, "k", 1)
	held := newLimiter(t, rdb, limiter.FixedWindow(limiter.Per(4, 300*time.Hour)), unhurried(), hasty(time.Hour), limiter.WithShare(1), limiter.WithPrefix("held"), limiter.WithLease(4, time.Hour))
	reserve(t, held, "k", 1)
	for _, l := range []*limiter.Limiter{lim, leased, held} {
		cutOff(t, proxy, l)
	}
	takes(t, lim, "k", 1000, 5)
	takes(t, lim, "k", 1000, 0)
	takes(t, leased, "k", 1000, 3+4) // of what Redis had left, its share
	takes(t, leased, "k", 1000, 0)
	takes(t, held, "k", 1000, 3) // nothing was left in Redis
}

// forgetful is a hook of a client that loses replies: what was sent is executed.
type forgetful struct{ loses atomic.Bool }

func (*forgetful) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *forgetful) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if f.loses.Load() {
			err = io.ErrUnexpectedEOF
			cmd.SetErr(err)
		}
		return err
	}
}

func (f *forgetful) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestAtMostWithALostReply: what Redis may have charged is not charged again, in whatever number.
func TestAtMostWithALostReply(t *testing.T) {
	onBoth(t, func(t *testing.T, client func() *redis.Client) {
		rdb := client()
		f := new(forgetful)
		rdb.AddHook(f)
		lim := newLimiter(t, rdb, limiter.FixedWindow(limiter.Per(1000, 300*time.Hour)), limiter.WithBudget(patience), limiter.WithShare(0.01))
		reserve(t, lim, "k", 1)
		other := newLimiter(t, rdb, limiter.FixedWindow(limiter.Per(1000, 300*time.Hour)), limiter.WithBudget(patience), limiter.WithShare(0.01), limiter.WithPrefix("other"))
		m := newMulti(t, limiter.Part{Name: "a", Limiter: lim}, limiter.Part{Name: "b", Limiter: other})
		_, err := m.Allow(t.Context(), "the one that loads the script")
		must(t, err)
		f.loses.Store(true)
		if r := takes(t, lim, "k", 50, 9); r.Source != limiter.SourceLocal || lim.Health().Owed != 0 { // a share of what was left
			t.Errorf("%+v, %d owed", r, lim.Health().Owed)
		}
		takes(t, lim, "k", 50, 0)
		if res, err := m.Allow(t.Context(), "k", limiter.AtMost(50)); err != nil || res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
		f.loses.Store(false)
		if n := left(t, lim, "k"); n != 1000-1-50-50-50 {
			t.Errorf("%d left", n)
		}

		leased := newLimiter(t, rdb, limiter.FixedWindow(limiter.Per(1000, 300*time.Hour)), limiter.WithBudget(patience), limiter.WithShare(0.01), limiter.WithPrefix("leased"), limiter.WithLease(1, time.Hour))
		reserve(t, leased, "k", 1)
		f.loses.Store(true)
		takes(t, leased, "k", 50, 9)
		takes(t, leased, "k", 50, 0)
		f.loses.Store(false)
		if n := left(t, leased, "k"); n != 1000-1-50-50 {
			t.Errorf("%d left of the leased limit", n)
		}
	})
}

// TestAtMostOfAMulti: all parts admit the same number, that of the one with the least room.
func TestAtMostOfAMulti(t *testing.T) {
	srv := redistest.Start(t)
	for name, clients := range map[string][]redis.UniversalClient{
		"near": {redistest.Client(t, srv)}, "apart": {redistest.Client(t, srv), redistest.Client(t, srv)},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, redistest.Admin(t, srv).FlushAll(t.Context()).Err())
			parts := layers(t, clients, []limiter.Limit{
				limiter.FixedWindow(limiter.Per(20, 300*time.Hour)), limiter.SlidingWindowLog(limiter.Per(10, 300*time.Hour)),
			}, patient())
			m := newMulti(t, parts...)
			reserve(t, parts[0].Limiter, "k@a", 13)
			for _, c := range []struct{ n, admitted, a, b int }{{3, 3, 4, 7}, {1000, 4, 0, 3}, {1000, 0, 0, 3}} {
				r, err := m.Reserve(t.Context(), "k", limiter.AtMost(c.n))
				a, b := left(t, parts[0].Limiter, "k@a"), left(t, parts[1].Limiter, "k@b")
				if err != nil || r.Admitted != c.admitted || r.Allowed != (c.admitted > 0) || a != c.a || b != c.b {
					t.Fatalf("%+v, %v, left %d and %d; want %+v", r, err, a, b, c)
				}
				if c.n == 3 {
					must(t, r.Cancel(t.Context()))
					takesOf(t, m, "k", 3, 3)
				}
			}
		})
	}
}

func takesOf(t *testing.T, m *limiter.Multi, key string, n, want int) {
	t.Helper()
	r, err := m.Wait(t.Context(), key, limiter.AtMost(n))
	if err != nil || r.Admitted != want {
		t.Fatalf("%+v, %v; want %d", r, err, want)
	}
	for _, p := range r.Parts {
		if p.Admitted != want {
			t.Errorf("part %+v, want %d", p, want)
		}
	}
}

// TestAtMostAfterADenial: who asks for two units when there is one, a moment after there was none, gets it.
func TestAtMostAfterADenial(t *testing.T) {
	for name, opt := range map[string]limiter.Option{"plain": patient(), "split": limiter.WithKeyShards(2), "a lease": limiter.WithLease(1, time.Second)} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			rdb := clients(t, r)()
			lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerSecond(2), 10), patient(), opt)
			m := newMulti(t, limiter.Part{Name: "one", Limiter: newLimiter(t, rdb, limiter.GCRA(limiter.PerSecond(2), 10), patient(), limiter.WithPrefix("one"), opt)})
			for _, ask := range []func(context.Context, string, ...limiter.CallOption) (*limiter.Reservation, error){lim.Reserve, m.Reserve} {
				res, err := ask(t.Context(), "k", limiter.AtMost(5))
				for err == nil && res.Allowed {
					res, err = ask(t.Context(), "k", limiter.AtMost(5))
				}
				must(t, err)
				time.Sleep(res.RetryAfter)
				if res, err := ask(t.Context(), "k", limiter.AtMost(2)); err != nil || res.Admitted != 1 {
					t.Errorf("%s: %+v, %v", name, res, err)
				}
			}
		})
	}
}

// TestAtMostOfAMultiInAnOutage: it is decided locally, within the least claim.
func TestAtMostOfAMultiInAnOutage(t *testing.T) {
	a := down(t, limiter.FixedWindow(limiter.Per(20, 300*time.Hour)), limiter.WithPrefix("a"))
	b := down(t, limiter.FixedWindow(limiter.Per(100, 300*time.Hour)), limiter.WithShare(0.03), limiter.WithPrefix("b"))
	m := newMulti(t, limiter.Part{Name: "a", Limiter: a}, limiter.Part{Name: "b", Limiter: b})
	res, err := m.Allow(t.Context(), "k", limiter.AtMost(1000))
	if n := left(t, a, "k"); err != nil || res.Admitted != 3 || n != 17 {
		t.Errorf("%+v, %v, %d left", res, err, n)
	}
}

// TestLimitsOfAMultisCall: each part decides a call by the Limit at its place.
func TestLimitsOfAMultisCall(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	window := func(n int) limiter.Limit { return limiter.FixedWindow(limiter.Per(n, 300*time.Hour)) }
	m := newMulti(t, layers(t, []redis.UniversalClient{rdb}, []limiter.Limit{window(10), window(5)}, patient())...)
	pro := []limiter.CallOption{limiter.Cost(8), limiter.Cost(7), limiter.Limit{}, window(50)}
	if res, err := m.Allow(t.Context(), "k", limiter.Cost(8), limiter.Cost(7)); !errors.Is(err, limiter.ErrCostExceedsLimit) {
		t.Errorf("%+v, %v", res, err)
	}
	r, err := m.Wait(t.Context(), "k", pro...)
	if err != nil || r.Parts[0].Limit != window(10) || r.Parts[1].Limit != window(50) || r.Parts[0].Remaining != 2 || r.Parts[1].Remaining != 43 {
		t.Fatalf("%+v, %v", r, err)
	}
	if res, err := m.Allow(t.Context(), "k", pro...); err != nil || res.Denied != "a" {
		t.Errorf("%+v, %v", res, err)
	}
	must(t, r.Cancel(t.Context()))
	if res, err := m.Allow(t.Context(), "k", pro...); err != nil || !res.Allowed {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestCountFailed: what succeeds takes nothing, what fails or panics does, and a denial or an error
// calls nothing.
func TestCountFailed(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	limits := []limiter.Limit{limiter.FixedWindow(limiter.Per(3, 300*time.Hour)), limiter.GCRA(limiter.Per(5, 300*time.Hour), 5)}
	parts := layers(t, []redis.UniversalClient{rdb}, limits, patient())
	called := 0
	login := func(key string, failed bool, opts ...limiter.CallOption) (limiter.MultiResult, error) {
		called = 0
		return limiter.CountFailed(t.Context(), newMulti(t, parts...), key, func(context.Context) bool { called++; return failed }, opts...)
	}
	for i, failed := range []bool{false, true, false, true, false} {
		if res, err := login("k", failed); err != nil || !res.Allowed || called != 1 {
			t.Errorf("%d: %+v, %v, called %d times", i, res, err, called)
		}
	}
	if a, b := left(t, parts[0].Limiter, "k@a"), left(t, parts[1].Limiter, "k@b"); a != 1 || b < 2 || b > 3 {
		t.Errorf("%d and %d left after 2 failures", a, b)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = limiter.CountFailed(t.Context(), parts[0].Limiter, "k@a", func(context.Context) bool { panic("broken") })
	}()
	if res, err := login("k", true); err != nil || res.Allowed || res.Denied != "a" || called != 0 {
		t.Errorf("%+v, %v, called %d times", res, err, called)
	}
	if _, err := login("", true); !errors.Is(err, limiter.ErrInvalidKey) || called != 0 {
		t.Errorf("%v, called %d times", err, called)
	}
	if _, err := login("k", true, limiter.Cost(9)); !errors.Is(err, limiter.ErrCostExceedsLimit) || called != 0 {
		t.Errorf("%v, called %d times", err, called)
	}
}

// TestWaitReserves: a caller who waited settles at the real cost, and those behind it get what
// it gives back.
func TestWaitReserves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, err := limiter.NewLocal(limiter.FixedWindow(limiter.PerHour(10)))
		must(t, err)
		defer lim.Close()
		r, err := lim.Wait(t.Context(), "k", limiter.Cost(10))
		must(t, err)
		var admitted atomic.Int64
		start := time.Now()
		for i := range 6 {
			go func() {
				r, err := lim.Wait(t.Context(), "k", limiter.AtMost(1+i%2))
				if err != nil || time.Since(start) > time.Second {
					t.Errorf("after %v: %v", time.Since(start), err)
				}
				admitted.Add(int64(r.Admitted))
			}()
		}
		synctest.Wait()
		if n := admitted.Load(); n != 0 {
			t.Errorf("%d admitted", n)
		}
		time.Sleep(time.Second)
		must(t, r.Settle(t.Context(), 1))
		synctest.Wait()
		if n := admitted.Load(); n < 6 || n > 9 {
			t.Errorf("%d admitted of 9", n)
		}
		if err := r.Settle(t.Context()); !errors.Is(err, limiter.ErrSettled) {
			t.Error(err)
		}
	})
}

// TestSettleOfNoCost keeps what was taken, and bad costs settle nothing.
func TestSettleOfNoCost(t *testing.T) {
	lim, err := limiter.NewLocal(limiter.FixedWindow(limiter.PerHour(10)))
	must(t, err)
	defer lim.Close()
	r := reserve(t, lim, "k", 4)
	if err := r.Settle(t.Context(), 1, 2); !errors.Is(err, limiter.ErrInvalidConfig) || !strings.Contains(fmt.Sprint(err), "costs is 2") {
		t.Error(err)
	}
	if err := r.Settle(t.Context(), -1); !errors.Is(err, limiter.ErrInvalidCost) {
		t.Error(err)
	}
	must(t, r.Settle(t.Context()))
	if err := r.Cancel(t.Context()); !errors.Is(err, limiter.ErrSettled) || left(t, lim, "k") != 6 {
		t.Errorf("%v, %d left", err, left(t, lim, "k"))
	}
}

// lastWord is a hook of a client that calls something when Redis has answered.
type lastWord struct{ call func() }

func (*lastWord) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *lastWord) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer l.call()
		return next(ctx, cmd)
	}
}

func (*lastWord) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestAtMostSaysNothingWithAnError: when the second try fails, its error comes alone, and not with what denied the first one.
func TestAtMostSaysNothingWithAnError(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		rdb := clients(t, r)()
		lim := newLimiter(t, rdb, daily(10), patient(), limiter.WithShare(1))
		_, err := lim.AllowN(t.Context(), "k", 8)
		must(t, err)
		rdb.AddHook(&lastWord{func() { r.Set(func(h *sim.Health) { h.Rejects = "ERR user_script:1: broken" }) }})
		if res, err := lim.Allow(t.Context(), "k", limiter.AtMost(5)); err == nil || res != (limiter.Result{}) {
			t.Errorf("%+v, %v", res, err)
		}
	})
}
