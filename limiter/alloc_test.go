//go:build !race

package limiter_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

// The race detector makes pools forget, so that these have a run of their own.

// TestAllocations: a few on the way to Redis, of which 3 are the client's look at
// its connection, and none where the answer is here.
func TestAllocations(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	ctx := context.Background()
	long := limiter.GCRA(limiter.PerHour(1_000_000), 1_000_000)
	allow := func(lim limiter.Allower, key string) func() {
		return func() {
			if _, err := lim.AllowN(ctx, key, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	plain := newLimiter(t, rdb, long, limiter.WithShare(1), limiter.WithBudget(patience))
	if n := testing.AllocsPerRun(500, allow(plain, "customer:42")); n > 8 {
		t.Errorf("alone: %v allocations a decision, want at most 8", n)
	}

	multi := newMulti(t, layers(t, []redis.UniversalClient{rdb}, []limiter.Limit{long, long, limiter.FixedWindow(limiter.PerHour(1_000_000))}, limiter.WithShare(1), limiter.WithBudget(patience))...)
	if n := testing.AllocsPerRun(500, allow(multi, "customer:42")); n > 12 {
		t.Errorf("three limits, alone: %v allocations a decision, want at most 12, of which 3 make the keys of the parts", n)
	}

	const callers, each = 128, 200
	crowd := func() {
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for j := range each {
					if _, err := plain.Allow(ctx, keys[(i*each+j)%len(keys)]); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	}
	crowd()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	crowd()
	runtime.ReadMemStats(&after)
	if n := float64(after.Mallocs-before.Mallocs) / (callers * each); n > 3 {
		t.Errorf("combined: %.1f allocations a decision, want at most 3", n)
	}

	denied := newLimiter(t, rdb, limiter.GCRA(limiter.PerHour(1), 1), limiter.WithShare(1), limiter.WithPrefix("denied"))
	allow(denied, "k")()
	if n := testing.AllocsPerRun(500, allow(denied, "k")); n != 0 {
		t.Errorf("denied from the cache: %v allocations a decision", n)
	}
	leased := newLimiter(t, rdb, long, limiter.WithShare(1), limiter.WithPrefix("leased"), limiter.WithLease(10_000, time.Minute))
	allow(leased, "k")()
	if n := testing.AllocsPerRun(500, allow(leased, "k")); n != 0 {
		t.Errorf("from a lease: %v allocations a decision", n)
	}
	edge := newSampled(t, rdb, limiter.PerSecond(1_000_000), limiter.WithPrefix("sampled"))
	allow(edge, "k")()
	if n := testing.AllocsPerRun(500, allow(edge, "k")); n != 0 {
		t.Errorf("sampled: %v allocations a decision", n)
	}
	local, err := limiter.NewLocal(long)
	must(t, err)
	defer local.Close()
	if n := testing.AllocsPerRun(500, allow(local, "k")); n != 0 {
		t.Errorf("in process: %v allocations a decision", n)
	}
}

// TestClaimsAllocateNothing: in an outage each key has a claim of its own, and a decision
// within it needs no memory, however many they are.
func TestClaimsAllocateNothing(t *testing.T) {
	srv := redistest.Start(t)
	lim := newLimiter(t, redistest.Client(t, srv), limiter.GCRA(limiter.PerSecond(1000), 1000), unhurried(), hasty(time.Hour), limiter.WithProcess("a"))
	other := newLimiter(t, redistest.Client(t, srv), limiter.GCRA(limiter.PerSecond(1000), 1000), unhurried(), limiter.WithProcess("b"))
	until(t, "there are two processes", func() bool {
		_, err := lim.Allow(t.Context(), "k")
		must(t, err)
		_, err = other.Allow(t.Context(), "k")
		must(t, err)
		return lim.Health().Processes == 2
	})
	for i, key := range keys[:100] {
		if _, err := lim.AllowN(t.Context(), key, 10+i); err != nil {
			t.Fatal(err)
		}
	}
	must(t, srv.Kill())
	claims := map[float64]bool{}
	i := 0
	decide := func() {
		res, err := lim.Allow(t.Context(), keys[i%100])
		if i++; err != nil {
			t.Fatal(err)
		}
		claims[res.Claim] = true
	}
	for range 200 {
		decide()
	}
	if n := testing.AllocsPerRun(500, decide); n != 0 || len(claims) < 50 {
		t.Errorf("%v allocations a decision, of %d claims", n, len(claims))
	}
}
