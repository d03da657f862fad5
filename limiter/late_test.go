package limiter_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	lines "github.com/holdfast-go/holdfast/internal/wait"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestPlacesThatComeTooLateAreNotTaken: of a shaping limit, by one who says how long it can wait
// for its Delay. The denial says that it would be too late again. A place must fit after the
// answer, too, which takes up to the budget.
func TestPlacesThatComeTooLateAreNotTaken(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	shaping := limiter.LeakyBucketShaping(limiter.Per(1, 100*time.Second), 5)
	local, err := limiter.NewLocal(shaping)
	must(t, err)
	defer local.Close()
	for name, c := range map[string]struct {
		lim    limiter.Allower
		budget time.Duration
	}{
		"local": {local, 0},
		"redis": {newLimiter(t, rdb, shaping, limiter.WithBudget(time.Minute)), time.Minute},
		"multi": {newMulti(t,
			limiter.Part{Name: "rate", Limiter: newLimiter(t, rdb, limiter.GCRA(limiter.PerHour(10), 10), limiter.WithBudget(time.Minute), limiter.WithPrefix("rate"))},
			limiter.Part{Name: "shape", Limiter: newLimiter(t, rdb, shaping, limiter.WithBudget(time.Minute), limiter.WithPrefix("shape"))},
		), time.Minute},
	} {
		within := func(d, deadline time.Duration) (limiter.Result, time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			res, err := c.lim.AllowN(lines.WithMostDelay(ctx, d), "k", 1)
			must(t, err)
			return res, deadline
		}
		// The third place is 200 s away, of a queue of 500 s.
		for range 2 {
			_, err := c.lim.AllowN(t.Context(), "k", 1)
			must(t, err)
		}
		for _, d := range []time.Duration{0, 100 * time.Second} {
			if res, _ := within(d, time.Hour); res.Allowed || res.RetryAfter < 150*time.Second || res.RetryAfter > 200*time.Second+c.budget {
				t.Errorf("%s: within %v: %+v", name, d, res)
			}
		}
		if res, left := within(math.MaxInt64, 100*time.Second); res.Allowed || res.RetryAfter <= left {
			t.Errorf("%s: with a deadline before its place: %+v", name, res)
		}
		if res, left := within(math.MaxInt64, 230*time.Second); res.Allowed != (c.budget == 0) || !res.Allowed && res.RetryAfter <= left {
			t.Errorf("%s: with a deadline 30 s after its place: %+v", name, res)
		} else if !res.Allowed {
			res, _ = within(math.MaxInt64, 270*time.Second)
			if !res.Allowed {
				t.Errorf("%s: with a deadline 70 s after its place: %+v", name, res)
			}
		}
		// Only one more place was taken.
		if res, _ := within(math.MaxInt64, time.Hour); !res.Allowed || res.Delay < 250*time.Second || res.Delay > 300*time.Second {
			t.Errorf("%s: the fourth one: %+v", name, res)
		}
	}
}
