package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limiter/limitertest"
)

// answer is what one of many callers got.
type answer struct {
	res limiter.Result
	err error
}

// together lets n callers ask at once, and returns their answers.
func together(n int, ask func(i int) (limiter.Result, error)) []answer {
	answers := make([]answer, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { answers[i].res, answers[i].err = ask(i) })
	}
	wg.Wait()
	return answers
}

// crowded returns a limiter whose Redis answers after 50 ms, so that those who
// ask together are combined.
func crowded(t *testing.T, r *sim.Redis, limit limiter.Limit) *limiter.Limiter {
	t.Helper()
	lim, _ := simulatedLimiter(t, r, "a", limit, patient())
	if _, err := lim.Allow(t.Context(), "warm"); err != nil {
		t.Fatal(err)
	}
	r.SetPath("a", func(p *sim.Path) { p.Delay = 25 * time.Millisecond })
	return lim
}

// TestCallersOfOneKeyAreOneStep: 500 callers of a key take a handful of script
// calls, exactly the limit is admitted, and each of those sees another number
// remaining.
func TestCallersOfOneKeyAreOneStep(t *testing.T) {
	for _, limit := range limitertest.Limits(limiter.PerHour(300)) {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			lim := crowded(t, r, limit)
			before := r.Commands()
			var remaining []int
			for _, a := range together(500, func(int) (limiter.Result, error) { return lim.Allow(t.Context(), "hot") }) {
				switch {
				case a.err != nil || a.res.Source != limiter.SourceRedis || a.res.Allowed == (a.res.RetryAfter > 0):
					t.Fatalf("%s: %+v, %v", limit, a.res, a.err)
				case a.res.Allowed:
					remaining = append(remaining, a.res.Remaining)
				case a.res.Remaining != 0:
					t.Errorf("%s: denied with %d remaining", limit, a.res.Remaining)
				}
			}
			slices.Sort(remaining)
			for i, n := range remaining {
				if n != i {
					t.Fatalf("%s: remaining %d at place %d of %d", limit, n, i, len(remaining))
				}
			}
			if len(remaining) != 300 {
				t.Errorf("%s: %d admitted, want 300", limit, len(remaining))
			}
			// Three that went at once, and 497 by 64.
			if n := r.Commands() - before; n > 3+8+3 {
				t.Errorf("%s: %d commands for 500 decisions", limit, n)
			}
		})
	}
}

// TestKeysAreCombined: callers of different keys share calls too, and looks are
// sent as looks.
func TestKeysAreCombined(t *testing.T) {
	ask := func(t *testing.T, lim *limiter.Limiter) {
		t.Helper()
		for i, a := range together(400, func(i int) (limiter.Result, error) {
			return lim.AllowN(t.Context(), fmt.Sprint("k", i/2), i%2*3)
		}) {
			left := map[int]int{0: 10, 1: 7}[i%2]
			if a.err != nil || !a.res.Allowed || a.res.Source != limiter.SourceRedis || i%2 == 1 && a.res.Remaining != left || a.res.Remaining != 10 && a.res.Remaining != 7 {
				t.Fatalf("caller %d: %+v, %v", i, a.res, a.err)
			}
		}
	}
	limit := limiter.TokenBucket(limiter.PerHour(10), 10)
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim := crowded(t, r, limit)
		before := r.Commands()
		ask(t, lim)
		if n := r.Commands() - before; n == 0 || n > 40 {
			t.Errorf("%d commands for 200 decisions and 200 looks", n)
		}
	})
	srv := redistest.Start(t)
	lim := newLimiter(t, redistest.Client(t, srv), limit, patient())
	ask(t, lim)
	if redistest.Calls(t, srv, "evalsha") == 0 {
		t.Error("no calls for 200 decisions")
	}
	if n := redistest.Calls(t, srv, "evalsha_ro"); n == 0 && redisproc.AtLeast(7, 0) { // before, looks are sent as writes
		t.Error("no calls for 200 looks")
	}
}

// TestCallerThatLeavesABatchLeavesTheOthers: those who leave a batch, or the queue, get
// their ctx's error at once; the others are answered, and the breaker hears
// nothing of it.
func TestCallerThatLeavesABatchLeavesTheOthers(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim := crowded(t, r, limiter.TokenBucket(limiter.PerHour(1000), 1000))
		go func() { _, _ = lim.Peek(t.Context(), "other") }() // or the next call would be its caller's own
		time.Sleep(time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		began := time.Now()
		for i, a := range together(300, func(i int) (limiter.Result, error) {
			if i%3 != 0 {
				return lim.Allow(t.Context(), "hot")
			}
			res, err := lim.Allow(ctx, "hot")
			if took := time.Since(began); took != 20*time.Millisecond {
				t.Errorf("caller %d left after %v", i, took)
			}
			return res, err
		}) {
			if i%3 == 0 {
				if !errors.Is(a.err, context.Canceled) {
					t.Fatalf("caller %d: %+v, %v", i, a.res, a.err)
				}
			} else if a.err != nil || a.res.Source != limiter.SourceRedis {
				t.Fatalf("caller %d: %+v, %v", i, a.res, a.err)
			}
		}
		if sh := lim.Health().Servers[0]; sh.State != breaker.Closed || sh.LastFailure != breaker.ClassOK {
			t.Errorf("%+v", sh)
		}
	})
}

// TestBrokenKeyInABatch: the caller of a key that holds something else is told
// so, by its key, and nobody else.
func TestBrokenKeyInABatch(t *testing.T) {
	srv := redistest.Start(t)
	proxy, rdb := behind(t, srv, redis.Options{})
	lim := newLimiter(t, rdb, good, limiter.WithBudget(patience), limiter.WithPrefix("p"))
	if _, err := lim.Allow(t.Context(), "warm"); err != nil {
		t.Fatal(err)
	}
	admin := redistest.Admin(t, srv)
	must(t, admin.Del(t.Context(), "p:v2:gcra:{broken}").Err())
	must(t, admin.LPush(t.Context(), "p:v2:gcra:{broken}", "x").Err())
	proxy.Set(faultproxy.Mode{ReplyDelay: 50 * time.Millisecond})
	for i, a := range together(100, func(i int) (limiter.Result, error) {
		if i%10 == 0 {
			return lim.Allow(t.Context(), "broken")
		}
		return lim.Allow(t.Context(), fmt.Sprint("k", i))
	}) {
		if i%10 == 0 {
			if !errors.Is(a.err, limiter.ErrState) || !strings.Contains(a.err.Error(), `"broken"`) {
				t.Fatalf("caller %d: %+v, %v", i, a.res, a.err)
			}
		} else if a.err != nil || a.res.Source != limiter.SourceRedis {
			t.Fatalf("caller %d: %+v, %v", i, a.res, a.err)
		}
	}
}

// TestClusterBehindAPlainClient: a client that does not know of the cluster
// behind it gets each slot a call of its own, after the first refusal.
func TestClusterBehindAPlainClient(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	rdb := redis.NewClient(&redis.Options{Addr: cluster.Nodes()[0].Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	var keys []string
	for i := 0; len(keys) < 200; i++ {
		key := fmt.Sprint("k", i)
		if err := rdb.Get(t.Context(), key).Err(); errors.Is(err, redis.Nil) {
			keys = append(keys, key) // it is this node's
		}
	}
	lim := newLimiter(t, rdb, good, patient())
	for range 3 {
		for i, a := range together(len(keys), func(i int) (limiter.Result, error) {
			return lim.Allow(t.Context(), keys[i])
		}) {
			if a.err != nil || a.res.Source != limiter.SourceRedis {
				t.Fatalf("caller %d: %+v, %v", i, a.res, a.err)
			}
		}
	}
}

// TestCombinedFailureIsOneEvent: callers of a frozen Redis by the hundred are a
// few failures for the breaker, and all of them fall back.
func TestCombinedFailureIsOneEvent(t *testing.T) {
	srv := redistest.Start(t)
	rdb := redistest.Client(t, srv)
	lim := newLimiter(t, rdb, good, limiter.WithShare(1), limiter.WithBreaker(breaker.Settings{ConsecutiveFailures: 8, MinRequests: 1000}))
	if _, err := lim.Allow(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	must(t, srv.Freeze())
	for _, a := range together(200, func(int) (limiter.Result, error) { return lim.Allow(t.Context(), "k") }) {
		if a.err != nil || a.res.Source != limiter.SourceLocal {
			t.Fatalf("%+v, %v", a.res, a.err)
		}
	}
	if sh := lim.Health().Servers[0]; sh.State != breaker.Closed || sh.LastFailure != breaker.ClassSlow && sh.LastFailure != breaker.ClassUnavailable {
		t.Errorf("%+v", sh)
	}
	must(t, srv.Thaw())
}
