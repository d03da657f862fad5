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
func crowded(t *testing.T, limit limiter.Limit, opts ...limiter.Option) (*limiter.Limiter, func(command string) int64) {
	t.Helper()
	srv := redistest.Start(t)
	proxy, rdb := behind(t, srv, redis.Options{})
	opts = append([]limiter.Option{limiter.WithShare(1), unhurried()}, opts...)
	lim := newLimiter(t, rdb, limit, opts...)
	if _, err := lim.Peek(t.Context(), "warm"); err != nil {
		t.Fatal(err)
	}
	if _, err := lim.Allow(t.Context(), "warm"); err != nil {
		t.Fatal(err)
	}
	proxy.Set(faultproxy.Mode{ReplyDelay: 50 * time.Millisecond})
	return lim, func(command string) int64 { return redistest.Calls(t, srv, command) }
}

// TestCallersOfOneKeyAreOneStep: 500 callers of a key take a handful of script
// calls, exactly the limit is admitted, and each of those sees another number
// remaining.
func TestCallersOfOneKeyAreOneStep(t *testing.T) {
	t.Parallel()
	for _, limit := range limitertest.Limits(limiter.PerHour(300)) {
		t.Run(limit.Algorithm(), func(t *testing.T) {
			lim, calls := crowded(t, limit)
			before := calls("evalsha")
			var remaining []int
			for _, a := range together(500, func(int) (limiter.Result, error) { return lim.Allow(t.Context(), "hot") }) {
				switch {
				case a.err != nil || a.res.Source != limiter.SourceRedis || a.res.Allowed == (a.res.RetryAfter > 0):
					t.Fatalf("%+v, %v", a.res, a.err)
				case a.res.Allowed:
					remaining = append(remaining, a.res.Remaining)
				case a.res.Remaining != 0:
					t.Errorf("denied with %d remaining", a.res.Remaining)
				}
			}
			slices.Sort(remaining)
			for i, n := range remaining {
				if n != i {
					t.Fatalf("remaining %d at place %d of %d", n, i, len(remaining))
				}
			}
			if len(remaining) != 300 {
				t.Errorf("%d admitted, want 300", len(remaining))
			}
			// Three that went at once, and 497 by 64.
			if n := calls("evalsha") - before; n > 3+8+3 {
				t.Errorf("%d script calls for 500 decisions", n)
			}
		})
	}
}

// TestKeysAreCombined: callers of different keys share calls too, and looks are
// sent as looks.
func TestKeysAreCombined(t *testing.T) {
	lim, calls := crowded(t, limiter.TokenBucket(limiter.PerHour(10), 10))
	writes, looks := calls("evalsha"), calls("evalsha_ro")
	for i, a := range together(400, func(i int) (limiter.Result, error) {
		return lim.AllowN(t.Context(), fmt.Sprint("k", i/2), i%2*3)
	}) {
		left := map[int]int{0: 10, 1: 7}[i%2]
		if a.err != nil || !a.res.Allowed || a.res.Source != limiter.SourceRedis || i%2 == 1 && a.res.Remaining != left || a.res.Remaining != 10 && a.res.Remaining != 7 {
			t.Fatalf("caller %d: %+v, %v", i, a.res, a.err)
		}
	}
	if n := calls("evalsha") - writes; n == 0 || n > 20 {
		t.Errorf("%d calls for 200 decisions", n)
	}
	if !redisproc.AtLeast(7, 0) {
		return // the looks were sent as writes
	}
	if n := calls("evalsha_ro") - looks; n == 0 || n > 20 {
		t.Errorf("%d calls for 200 looks", n)
	}
}

// TestCallerThatLeavesABatchLeavesTheOthers: those who leave a batch, or the queue, get
// their ctx's error at once; the others are answered, and the breaker hears
// nothing of it.
func TestCallerThatLeavesABatchLeavesTheOthers(t *testing.T) {
	lim, _ := crowded(t, limiter.TokenBucket(limiter.PerHour(1000), 1000))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	for i, a := range together(300, func(i int) (limiter.Result, error) {
		if i%3 == 0 {
			return lim.Allow(ctx, "hot")
		}
		return lim.Allow(t.Context(), "hot")
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
