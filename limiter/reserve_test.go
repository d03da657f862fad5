package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limiter/limitertest"
)

// reserver is what limiters of every kind have for costs that may change.
type reserver interface {
	limiter.Allower
	Peek(context.Context, string, ...limiter.Limit) (limiter.Result, error)
	Reserve(context.Context, string, ...limiter.CallOption) (*limiter.Reservation, error)
	Refund(context.Context, string, int, ...limiter.Limit) error
	Block(context.Context, string, time.Duration, ...limiter.Limit) error
}

// slow limits let nothing come back during a test.
func slow(n int) []limiter.Limit { return limitertest.Limits(limiter.Per(n, 300*time.Hour)) }

// eachKind runs a test for every algorithm on Redis, on a simulated one in virtual time, in process, and behind an
// open breaker.
func eachKind(t *testing.T, n int, opts []limiter.LocalOption, run func(t *testing.T, lim reserver, limit limiter.Limit)) {
	for _, limit := range slow(n) {
		t.Run("simulated/"+limit.Algorithm(), func(t *testing.T) {
			sim.Test(t, func(t *testing.T, r *sim.Redis) {
				run(t, newLimiter(t, clients(t, r)(), limit, append(convert[limiter.Option](opts), patient())...), limit)
			})
		})
	}
	eachTimed(t, n, opts, run)
}

// eachTimed is eachKind without virtual time.
func eachTimed(t *testing.T, n int, opts []limiter.LocalOption, run func(t *testing.T, lim reserver, limit limiter.Limit)) {
	kinds := map[string]func(*testing.T, limiter.Limit) reserver{
		"redis": func(t *testing.T, limit limiter.Limit) reserver {
			return newLimiter(t, redistest.Client(t, redistest.Start(t)), limit, append(convert[limiter.Option](opts), patient())...)
		},
		"local": func(t *testing.T, limit limiter.Limit) reserver {
			lim, err := limiter.NewLocal(limit, convert[limiter.LocalOption](opts)...)
			must(t, err)
			t.Cleanup(func() { _ = lim.Close() })
			return lim
		},
		"down": func(t *testing.T, limit limiter.Limit) reserver {
			return down(t, limit, convert[limiter.Option](opts)...)
		},
	}
	for name, newKind := range kinds {
		for _, limit := range slow(n) {
			t.Run(name+"/"+limit.Algorithm(), func(t *testing.T) { run(t, newKind(t, limit), limit) })
		}
	}
}

// fractions is how many units a bucket may look short of by what it gave back a
// little less than was taken.
func fractions(limit limiter.Limit) int {
	switch limit.Algorithm() {
	case "token bucket", "leaky bucket", "gcra":
		return 1
	}
	return 0
}

func reserve(t *testing.T, lim reserver, key string, n int) *limiter.Reservation {
	t.Helper()
	r, err := lim.Reserve(t.Context(), key, limiter.Cost(n))
	must(t, err)
	return r
}

func left(t *testing.T, lim reserver, key string) int {
	t.Helper()
	res, err := lim.Peek(t.Context(), key)
	must(t, err)
	return res.Remaining
}

// TestReservations: what each algorithm does with what is given back.
func TestReservations(t *testing.T) {
	t.Parallel()
	eachKind(t, 10, nil, func(t *testing.T, lim reserver, limit limiter.Limit) {
		ctx := t.Context()
		shaping := limit.Algorithm() == "leaky bucket shaping"
		want := func(what string, n, shaped int) {
			t.Helper()
			if shaping {
				n = shaped
			}
			if got := left(t, lim, "k"); got != n {
				t.Fatalf("%s: %d remaining, want %d", what, got, n)
			}
		}
		r := reserve(t, lim, "k", 3)
		kept := r
		want("3 reserved", 7, 7)
		r = reserve(t, lim, "k", 2)
		must(t, r.Cancel(ctx))
		want("2 more cancelled", 7, 5)
		r = reserve(t, lim, "k", 4)
		must(t, r.Settle(ctx, 1))
		want("4 more settled at 1", 6, 1)
		must(t, reserve(t, lim, "k", 1).Settle(ctx, 1))
		want("1 more settled at 1", 5, 0)
		must(t, kept.Settle(ctx, 5))
		want("3 settled at 5", 3, 0)
		if !shaping {
			must(t, reserve(t, lim, "k", 1).Settle(ctx, 100))
			want("1 settled beyond the limit", 0, 0)
		}
		denied := reserve(t, lim, "k", 1)
		if denied.Allowed || denied.RetryAfter <= 0 {
			t.Fatalf("reserved beyond the limit: %+v", denied.Result)
		}
		if err := denied.Cancel(ctx); !errors.Is(err, limiter.ErrSettled) {
			t.Errorf("a denied reservation was cancelled: %v", err)
		}
		refund := func(key string, n int) {
			t.Helper()
			// That Redis is down is said, but the refund holds in this process.
			if err := lim.Refund(ctx, key, n); err != nil && !errors.Is(err, limiter.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		refund("k", 4)
		want("4 refunded", 4, 0)
		refund("k", 10)
		want("more refunded than used", 10, 0)
		refund("k", 0)
		refund("never used", 3)
		if got := left(t, lim, "never used"); got != 10 {
			t.Errorf("an unused key has %d remaining after a refund", got)
		}
		zero := reserve(t, lim, "zero", 0)
		must(t, zero.Settle(ctx, 2))
		if got := left(t, lim, "zero"); got != 8 {
			t.Errorf("0 settled at 2: %d remaining", got)
		}
	})
}

// TestSettledOnce: what is settled stays so, whoever tries again, at once or
// later, and bad input settles nothing.
func TestSettledOnce(t *testing.T) {
	t.Parallel()
	eachKind(t, 10, nil, func(t *testing.T, lim reserver, limit limiter.Limit) {
		ctx, end := context.WithCancel(t.Context())
		r := reserve(t, lim, "k", 6)
		if err := r.Settle(ctx, -1); !errors.Is(err, limiter.ErrInvalidCost) {
			t.Errorf("settled at -1: %v", err)
		}
		end() // must not prevent giving back
		var won atomic.Int64
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				switch err := r.Cancel(ctx); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, limiter.ErrSettled):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Errorf("%d of 50 cancelled", won.Load())
		}
		if err := r.Settle(t.Context(), 3); !errors.Is(err, limiter.ErrSettled) {
			t.Errorf("a cancelled reservation was settled: %v", err)
		}
		want := 10
		if limit.Algorithm() == "leaky bucket shaping" {
			want = 4
		}
		if got := left(t, lim, "k"); got != want {
			t.Errorf("%d remaining, want %d", got, want)
		}
		for _, err := range []error{lim.Refund(t.Context(), "", 1), lim.Refund(t.Context(), "k", -1), lim.Refund(t.Context(), "k", 11)} {
			if err == nil {
				t.Error("a bad refund was accepted")
			}
		}
	})
}

// TestReservationsInAnOutage: what is cancelled while Redis is away goes back when
// it returns, once; what was taken and given back on our own is not owed.
func TestReservationsInAnOutage(t *testing.T) {
	t.Parallel()
	for _, limit := range slow(100) {
		t.Run(limit.Algorithm(), func(t *testing.T) {
			t.Parallel()
			if limit.Algorithm() == "leaky bucket shaping" {
				t.Skip("takes nothing back")
			}
			srv := redistest.Start(t)
			proxy, rdb := behind(t, srv, redis.Options{MaxRetries: -1, DialerRetries: 1})
			lim := newLimiter(t, rdb, limit, patient(), limiter.WithoutDenialCache(),
				limiter.WithBreaker(breaker.Settings{MinRequests: 1, OpenMin: 3 * time.Second, OpenMax: 3 * time.Second}))
			ctx := t.Context()
			var before []*limiter.Reservation
			for range 10 {
				before = append(before, reserve(t, lim, "k", 3))
			}
			proxy.Set(faultproxy.Mode{Refuse: true})
			proxy.Reset()
			until(t, "the breaker opens", func() bool {
				_, err := lim.Allow(ctx, "other")
				must(t, err)
				return lim.Health().Servers[0].State == breaker.Open
			})
			for _, r := range before[:6] {
				must(t, r.Cancel(ctx))
			}
			must(t, before[6].Settle(ctx, 5))
			var own []*limiter.Reservation
			for range 10 {
				own = append(own, reserve(t, lim, "k", 1))
				if r := own[len(own)-1]; !r.Allowed || r.Source != limiter.SourceLocal {
					t.Fatalf("%+v", r.Result)
				}
			}
			for _, r := range own[:7] {
				must(t, r.Cancel(ctx))
			}
			proxy.Pass()
			// 30 were taken, 18 given back, 2 and 3 added.
			until(t, "everything is settled", func() bool {
				_, err := lim.Allow(ctx, "other")
				must(t, err)
				return lim.Health().Owed == 0
			})
			until(t, "Redis has what is true", func() bool {
				_, err := lim.Allow(ctx, "another")
				must(t, err)
				res, err := lim.Peek(ctx, "k")
				must(t, err)
				if res.Source == limiter.SourceRedis && res.Remaining > 83 {
					t.Fatalf("given back twice: %+v", res)
				}
				return res.Source == limiter.SourceRedis && res.Remaining >= 83-fractions(limit)
			})
		})
	}
}

// TestLostGiveBack: when the reply is lost it may have been done, so it is not
// done again.
func TestLostGiveBack(t *testing.T) {
	for _, limit := range slow(100) {
		if limit.Algorithm() == "leaky bucket shaping" {
			continue // it takes nothing back
		}
		t.Run(limit.Algorithm(), func(t *testing.T) {
			sim.Test(t, func(t *testing.T, r *sim.Redis) {
				lim, _ := simulatedLimiter(t, r, "a", limit, limiter.WithShare(1))
				must(t, reserve(t, lim, "k", 1).Cancel(t.Context())) // Redis knows the script
				lost, other := reserve(t, lim, "k", 40), reserve(t, lim, "k", 10)
				if lost.Source != limiter.SourceRedis || other.Source != limiter.SourceRedis {
					t.Fatalf("%+v, %+v", lost.Result, other.Result)
				}
				r.SetPath("a", func(p *sim.Path) { p.RepliesLost = true })
				if err := lost.Cancel(t.Context()); !errors.Is(err, limiter.ErrUnavailable) {
					t.Fatalf("with the reply lost: %v", err)
				}
				r.SetPath("a", func(p *sim.Path) { p.RepliesLost = false })
				for range 10 { // in a minute what is kept has been sent
					time.Sleep(6 * time.Second)
					_, err := lim.Allow(t.Context(), "another")
					must(t, err)
				}
				if got := left(t, lim, "k"); got != 90 {
					t.Errorf("%d remaining", got)
				}
				must(t, other.Cancel(t.Context()))
				if got := left(t, lim, "k"); got != 100 {
					t.Errorf("%d remaining when all was given back", got)
				}
			})
		})
	}
}

// TestConservation: whatever 200 callers reserve and give back at once, Redis is
// charged exactly the difference; with leases too, once they are returned.
func TestConservation(t *testing.T) {
	t.Parallel()
	const callers = 200
	for _, leases := range []bool{false, true} {
		// What drains between taking and giving back is not given back: next to nothing
		// at these rates, also over hundreds of times.
		year := limiter.Per(10_000, 8760*time.Hour)
		for _, limit := range []limiter.Limit{
			limiter.FixedWindow(year), limiter.SlidingWindowLog(limiter.Per(10_000, 100*time.Hour)), limiter.SlidingWindowCounter(limiter.Per(10_000, 100*time.Hour)),
			limiter.TokenBucket(year, 10_000), limiter.LeakyBucket(year, 10_000), limiter.GCRA(year, 10_000),
		} {
			t.Run(fmt.Sprint(limit.Algorithm(), ", leases ", leases), func(t *testing.T) {
				t.Parallel()
				srv := redistest.Start(t)
				opts := []limiter.Option{patient()}
				if leases {
					opts = append(opts, limiter.WithLease(50, time.Minute))
				}
				lim := newLimiter(t, redistest.Client(t, srv), limit, opts...)
				var kept atomic.Int64
				var wg sync.WaitGroup
				for i := range callers {
					wg.Go(func() {
						for j := range 5 {
							n := 1 + (i+j)%7
							r, err := lim.Reserve(t.Context(), "k", limiter.Cost(n))
							if err != nil || !r.Allowed {
								t.Errorf("%+v, %v", r, err)
								return
							}
							used := n
							switch (i + j) % 4 {
							case 0:
								used, err = 0, r.Cancel(t.Context())
							case 1:
								used = n / 2
								err = r.Settle(t.Context(), used)
							case 2:
								used = n + 3
								err = r.Settle(t.Context(), used)
							}
							if err != nil {
								t.Error(err)
							}
							kept.Add(int64(used))
						}
					})
				}
				wg.Wait()
				must(t, lim.Close())
				// A limiter of the same limits, so that a lease's margins are the same.
				check := newLimiter(t, redistest.Client(t, srv), limit, opts...)
				res, err := check.Peek(t.Context(), "k")
				must(t, err)
				fresh, err := check.Peek(t.Context(), "fresh")
				must(t, err)
				if got := int64(fresh.Remaining - res.Remaining); got < kept.Load() || got > kept.Load()+int64(fractions(limit)) {
					t.Errorf("Redis was charged %d, %d were used", got, kept.Load())
				}
			})
		}
	}
}

// TestReservationsOfParts: a part takes back what was taken from it.
func TestReservationsOfParts(t *testing.T) {
	onBoth(t, func(t *testing.T, client func() *redis.Client) {
		lim := newLimiter(t, client(), limiter.FixedWindow(limiter.Per(40, 300*time.Hour)), patient(), limiter.WithKeyShards(4))
		var all []*limiter.Reservation
		for range 8 {
			all = append(all, reserve(t, lim, "k", 5))
		}
		if r := reserve(t, lim, "k", 1); r.Allowed {
			t.Fatalf("%+v", r.Result)
		}
		for _, r := range all {
			must(t, r.Cancel(t.Context()))
		}
		for i := range 8 {
			if r := reserve(t, lim, "k", 5); !r.Allowed {
				t.Fatalf("after everything was given back, number %d: %+v", i, r.Result)
			}
		}
		must(t, lim.Refund(t.Context(), "k", 10))
		must(t, lim.Refund(t.Context(), "k", 10))
		admitted := 0
		for range 100 { // a part with room is not always asked
			if r := reserve(t, lim, "k", 1); r.Allowed {
				admitted++
			}
		}
		if admitted != 20 {
			t.Fatalf("after a refund of 20, %d were admitted", admitted)
		}
	})
}

// TestReservationMadeByHand: a test may hand a Reservation to the code that it tests.
func TestReservationMadeByHand(t *testing.T) {
	ctx := context.Background()
	for cost := range 3 {
		r := &limiter.Reservation{Result: limiter.Result{Allowed: true}}
		if err := r.Settle(ctx, cost); err != nil {
			t.Errorf("settle at %d: %v", cost, err)
		}
		if err := r.Cancel(ctx); !errors.Is(err, limiter.ErrSettled) {
			t.Errorf("settled twice: %v", err)
		}
	}
	for cost := range 4 { // also one for each part of a Multi
		if err := new(limiter.Reservation).Settle(ctx, make([]int, cost)...); !errors.Is(err, limiter.ErrSettled) {
			t.Errorf("%d costs of a denied request: %v", cost, err)
		}
	}
}
