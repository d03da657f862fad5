//go:build !race

package limiter_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/limiter"
	"pgregory.net/rapid"
)

// TestMultiAgreesWithAModel: any sequence of requests, reservations, cancellations
// and settlements has the outcome of plain counting, wherever it is decided.
func TestMultiAgreesWithAModel(t *testing.T) {
	t.Parallel()
	caps := []int{12, 9, 15}
	limits := []limiter.Limit{
		of("fixed window")(caps[0]),
		of("sliding window log")(caps[1]),
		of("sliding window counter")(caps[2]),
	}
	for name, newIn := range wheres() {
		t.Run(name, func(t *testing.T) {
			m := newIn(t, limits)
			var keys atomic.Int64
			rapid.Check(t, func(rt *rapid.T) {
				key := fmt.Sprint("key", keys.Add(1))
				ctx := t.Context()
				type taken struct {
					r     *limiter.Reservation
					costs [3]int
				}
				var open []taken
				var used [3]int
				for range rapid.IntRange(1, 20).Draw(rt, "steps") {
					var asks [3]int
					fits := true
					for i := range asks {
						asks[i] = rapid.IntRange(0, 9).Draw(rt, "cost")
						if used[i]+asks[i] > caps[i] {
							fits = false
						}
					}
					switch what := rapid.IntRange(0, 4).Draw(rt, "what"); {
					case what < 3:
						r, err := m.Reserve(ctx, key, costs(asks[:])...)
						if err != nil {
							rt.Fatal(err)
						}
						if r.Allowed != fits || r.Allowed != (r.Denied == "") || r.Allowed != (r.RetryAfter == 0) {
							rt.Fatalf("%v used, %v asked: %+v", used, asks, r)
						}
						if !fits {
							if err := r.Cancel(ctx); !errors.Is(err, limiter.ErrSettled) {
								rt.Fatal(err)
							}
							break
						}
						tk := taken{r: r}
						for i := range asks {
							tk.costs[i] = asks[i]
							used[i] += tk.costs[i]
						}
						open = append(open, tk)
					case len(open) > 0:
						k := rapid.IntRange(0, len(open)-1).Draw(rt, "which")
						tk := open[k]
						open = append(open[:k:k], open[k+1:]...)
						if what == 3 {
							var real [3]int
							for i := range real {
								real[i] = rapid.IntRange(0, tk.costs[i]).Draw(rt, "real")
								used[i] += int(real[i])
							}
							if err := tk.r.Settle(ctx, real[:2]...); !errors.Is(err, limiter.ErrInvalidConfig) {
								rt.Fatalf("two costs for three parts: %v", err)
							}
							if err := tk.r.Settle(ctx, real[:]...); err != nil {
								rt.Fatal(err)
							}
						} else if err := tk.r.Cancel(ctx); err != nil {
							rt.Fatal(err)
						}
						for i := range used {
							used[i] -= tk.costs[i]
						}
						if err := tk.r.Cancel(ctx); !errors.Is(err, limiter.ErrSettled) {
							rt.Fatalf("cancelled twice: %v", err)
						}
					}
					look, err := m.Allow(ctx, key, limiter.Cost(0), limiter.Cost(0), limiter.Cost(0))
					if err != nil {
						rt.Fatal(err)
					}
					for i, p := range look.Parts {
						if p.Remaining != caps[i]-used[i] {
							rt.Fatalf("part %d: %d remaining with %d of %d used", i, p.Remaining, used[i], caps[i])
						}
					}
				}
			})
		})
	}
}

// TestReservationsAgreeWithAModel: any sequence of reservations, settlements,
// refunds and looks has the outcome of plain counting.
func TestReservationsAgreeWithAModel(t *testing.T) {
	t.Parallel()
	var keys atomic.Int64
	eachTimed(t, 12, nil, func(t *testing.T, lim reserver, limit limiter.Limit) {
		if limit.Algorithm() == "leaky bucket shaping" {
			return // takes nothing back
		}
		fuzz := fractions(limit)
		rapid.Check(t, func(rt *rapid.T) {
			key := fmt.Sprint("key", keys.Add(1))
			ctx := t.Context()
			var open []*limiter.Reservation
			var costs []int
			used, more := 0, 0
			pick := func() (r *limiter.Reservation, n int) {
				i := rapid.IntRange(0, len(open)-1).Draw(rt, "which")
				r, n = open[i], costs[i]
				open, costs = append(open[:i:i], open[i+1:]...), append(costs[:i:i], costs[i+1:]...)
				return r, n
			}
			for range rapid.IntRange(1, 25).Draw(rt, "steps") {
				switch what := rapid.IntRange(0, 5).Draw(rt, "what"); {
				case what < 3:
					n := rapid.IntRange(0, 12).Draw(rt, "cost")
					r, err := lim.Reserve(ctx, key, limiter.Cost(n))
					if err != nil {
						rt.Fatal(err)
					}
					if used+n > 12+more && r.Allowed || used+n+fuzz <= 12 && !r.Allowed {
						rt.Fatalf("%d of 12 used, %d reserved: %+v", used, n, r.Result)
					}
					if r.Allowed {
						used += n
						open, costs = append(open, r), append(costs, n)
					}
				case what == 3 && len(open) > 0:
					r, n := pick()
					if err := r.Cancel(ctx); err != nil {
						rt.Fatal(err)
					}
					used -= n
				case what == 4 && len(open) > 0:
					r, n := pick()
					real := rapid.IntRange(0, 15).Draw(rt, "real")
					if err := r.Settle(ctx, real); err != nil {
						rt.Fatal(err)
					}
					if used += real - n; used >= 12 && real > n {
						// What had no room was not charged: units are whole.
						used, more = 12, more+fuzz
					}
				}
				res, err := lim.Peek(ctx, key)
				if err != nil {
					rt.Fatal(err)
				}
				if res.Remaining > 12-used+more || res.Remaining < 12-used-fuzz {
					rt.Fatalf("%d remaining with %d of 12 used", res.Remaining, used)
				}
			}
		})
	})
}
