//go:build linux && !race

package limiter_test

import (
	"slices"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestContextSwitches: one caller makes its call in its own goroutine, so that the threads of the process
// go to sleep about as often as with a plain script. The median of interleaved rounds counts: other
// processes and the runtime add switches to some of them.
func TestContextSwitches(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerHour(1_000_000), 1_000_000), limiter.WithShare(1), limiter.WithBudget(patience))
	script := redis.NewScript(`redis.call('TIME') redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], ARGV[1], 'PX', 10000) return {1, 0}`)
	decide := func() error {
		_, err := lim.Allow(t.Context(), "k")
		return err
	}
	plain := func() error { return script.Run(t.Context(), rdb, []string{"plain"}, 1).Err() }
	switches := func(do func() error) float64 {
		var before, after syscall.Rusage
		must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &before))
		for range 500 {
			must(t, do())
		}
		must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &after))
		return float64(after.Nvcsw - before.Nvcsw)
	}
	switches(decide)
	switches(plain)
	var ratios []float64
	for range 15 {
		ratios = append(ratios, switches(decide)/switches(plain))
	}
	slices.Sort(ratios)
	if n := ratios[len(ratios)/2]; n > 1.2 {
		t.Errorf("%.2f context switches a decision for each one of plain, want at most 1.2: %.2f", n, ratios)
	}
}
