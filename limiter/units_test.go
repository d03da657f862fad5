//go:build !race

package limiter_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestUnitsAreKept: whatever is taken, given back, refunded, settled and reset of a window, no unit is lost or
// made: what is held at the end, and what can be taken then, are the limit. Each decision is counted
// once, and told once.
func TestUnitsAreKept(t *testing.T) {
	const limit, keys = 80, 3
	for name, opts := range shapes {
		for seed := range uint64(4) {
			sim.Test(t, func(t *testing.T, r *sim.Redis) {
				rng := rand.New(rand.NewPCG(seed, 5))
				lim, told := simulatedLimiter(t, r, "a", limiter.FixedWindow(limiter.Rate{N: limit, Per: 24 * time.Hour}), append(opts, limiter.WithShare(1))...)
				held, decisions := [keys]int{}, uint64(0)
				check := func(k int, res limiter.Result, asked int, fewer bool) {
					t.Helper()
					decisions++
					got := asked
					if fewer {
						got = res.Admitted
					}
					if !res.Allowed {
						got = 0
					}
					if held[k] += got; held[k] > limit || got > asked || res.Allowed && asked > 0 && got == 0 || res.Source != limiter.SourceCache && res.Remaining > limit-held[k] || res.Remaining < 0 {
						t.Fatalf("%s, %d: %+v of %d asked; %d held", name, seed, res, asked, held[k])
					}
					if !res.Allowed && res.RetryAfter <= 0 || res.Allowed && res.RetryAfter != 0 || res.Limit != lim.Limit() {
						t.Fatalf("%s, %d: %+v", name, seed, res)
					}
				}
				ctx := limiter.Critical(t.Context())
				for range 400 {
					k, n := rng.IntN(keys), 1+rng.IntN(4)
					key := fmt.Sprint("k", k)
					switch what := rng.IntN(12); what {
					case 0:
						res, err := lim.Peek(ctx, key)
						if err != nil || res.Remaining > limit-held[k] {
							t.Fatalf("%s: a peek: %+v, %v; %d held", name, res, err, held[k])
						}
						decisions++
					case 1:
						if n = min(n, held[k]); n > 0 {
							if err := lim.Refund(ctx, key, n); err != nil {
								t.Fatal(err)
							}
							held[k] -= n
						}
					case 2:
						if rng.IntN(4) == 0 {
							time.Sleep(10 * time.Millisecond) // or what a call under way gets for a lease is void
							if err := lim.Reset(ctx, key); err != nil {
								t.Fatal(err)
							}
							held[k] = 0
						}
					case 3, 4, 5:
						res, err := lim.Reserve(ctx, key, limiter.Cost(n))
						if err != nil {
							t.Fatal(err)
						}
						check(k, res.Result, n, false)
						cost := rng.IntN(n + 1)
						switch err := res.Settle(ctx, cost); {
						case !res.Allowed && !errors.Is(err, limiter.ErrSettled), res.Allowed && err != nil:
							t.Fatalf("%s: %v", name, err)
						case res.Allowed:
							held[k] -= n - cost
						}
					case 6, 7:
						res, err := lim.Allow(ctx, key, limiter.AtMost(3*n))
						if err != nil {
							t.Fatal(err)
						}
						check(k, res, 3*n, true)
					default:
						res, err := lim.Allow(ctx, key, limiter.Cost(n))
						if err != nil {
							t.Fatal(err)
						}
						check(k, res, n, false)
					}
					if rng.IntN(5) == 0 {
						time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
					}
				}
				counted := uint64(0)
				for _, n := range lim.Health().Decisions {
					counted += n
				}
				if counted != decisions {
					t.Errorf("%s, %d: %d decisions are counted of %d: %v", name, seed, counted, decisions, lim.Health().Decisions)
				}
				for _, d := range *told {
					if d.Err != nil || d.NotCharged || d.Took < 0 || d.Took > 50*time.Millisecond {
						t.Errorf("%s: %+v", name, d)
					}
				}
				if n := uint64(len(*told)); n > decisions || n < decisions*8/10 { // peeks are not
					t.Errorf("%s: %d decisions are told of %d", name, n, decisions)
				}
				for k := range keys {
					for range 40 * limit {
						if held[k] == limit {
							break
						}
						time.Sleep(10 * time.Millisecond) // what a lease gives back needs a moment, and so do remembered denials
						res, err := lim.Allow(ctx, fmt.Sprint("k", k))
						if err != nil {
							t.Fatal(err)
						}
						check(k, res, 1, false)
					}
					if held[k] != limit {
						t.Errorf("%s, %d: %d of %d can be held", name, seed, held[k], limit)
					}
				}
			})
		}
	}
}

// TestMultiTakesAllOrNothing: of each limit what was admitted, and nothing of what another one denied, whatever
// the limiters are.
func TestMultiTakesAllOrNothing(t *testing.T) {
	for first, a := range shapes {
		for second, b := range shapes {
			sim.Test(t, func(t *testing.T, r *sim.Redis) {
				rdb := r.Client("p", redis.Options{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
				defer rdb.Close()
				one := newLimiter(t, rdb, limiter.FixedWindow(limiter.Rate{N: 40, Per: 24 * time.Hour}), append(a, limiter.WithPrefix("one"), limiter.WithShare(1))...)
				two := newLimiter(t, rdb, limiter.FixedWindow(limiter.Rate{N: 24, Per: 24 * time.Hour}), append(b, limiter.WithPrefix("two"), limiter.WithShare(1))...)
				m, err := limiter.NewMulti(limiter.Part{Name: "one", Limiter: one}, limiter.Part{Name: "two", Limiter: two})
				must(t, err)
				ctx, held := limiter.Critical(t.Context()), 0
				for more, n := 100, 0; more > 0 && n < 3000; n++ { // and some more when all are taken
					if held >= 24 {
						more--
					}
					res, err := m.Allow(ctx, "k", limiter.Cost(1), limiter.Cost(1))
					must(t, err)
					if res.Allowed {
						held++
					}
					if !res.Allowed && (res.RetryAfter <= 0 || res.Denied == "" || len(res.Parts) == 0) {
						t.Fatalf("%+v", res)
					}
					time.Sleep(5 * time.Millisecond)
				}
				if held != 24 {
					t.Errorf("%s and %s: %d admitted, want 24", first, second, held)
				}
				rest := 0
				for more, n := 50, 0; more > 0 && n < 3000; n++ {
					if rest >= 16 {
						more--
					}
					res, err := one.Allow(ctx, "k")
					must(t, err)
					if res.Allowed {
						rest++
					}
					time.Sleep(5 * time.Millisecond)
				}
				if rest != 16 {
					t.Errorf("%s and %s: %d are left of the first one, want 16", first, second, rest)
				}
			})
		}
	}
}
