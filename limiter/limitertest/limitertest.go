// Package limitertest has a [Fake] for tests of code that uses a limiter, and a conformance suite for
// limiters, [Run]: it checks what every limiter.Allower must do, whatever its implementation. Run it from a test:
//
//	func TestConformance(t *testing.T) {
//		limitertest.Run(t, func(t *testing.T, limit limiter.Limit) limiter.Allower {
//			return newMyLimiter(t, limit)
//		})
//	}
package limitertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// Make returns a limiter for the limit, none of whose keys has been used. It is
// called once per case, and releases what it made with t.Cleanup.
type Make func(t *testing.T, limit limiter.Limit) limiter.Allower

// Limits returns a limit of each algorithm with the given rate; those that have
// a burst get rate.N.
func Limits(rate limiter.Rate) []limiter.Limit {
	return []limiter.Limit{
		limiter.FixedWindow(rate),
		limiter.SlidingWindowLog(rate),
		limiter.SlidingWindowCounter(rate),
		limiter.TokenBucket(rate, rate.N),
		limiter.LeakyBucket(rate, rate.N),
		limiter.LeakyBucketShaping(rate, rate.N),
		limiter.GCRA(rate, rate.N),
	}
}

// Run runs the suite for every algorithm. Optional methods (Peek, Wait, Block,
// Reset) are tested where the limiter has them.
func Run(t *testing.T, newLimiter Make) {
	t.Helper()
	// Slow, so that nothing comes back during a case.
	for _, limit := range Limits(limiter.PerHour(10)) {
		t.Run(limit.Algorithm(), func(t *testing.T) {
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) { c.run(t, suite{newLimiter(t, limit), limit}) })
			}
		})
	}
	// Fast, so that waiting is short.
	for _, limit := range Limits(limiter.Per(5, 100*time.Millisecond)) {
		t.Run(limit.Algorithm(), func(t *testing.T) {
			for _, c := range timed {
				t.Run(c.name, func(t *testing.T) { c.run(t, suite{newLimiter(t, limit), limit}) })
			}
		})
	}
}

type suite struct {
	limiter.Allower
	limit limiter.Limit
}

type testCase struct {
	name string
	run  func(testing.TB, suite)
}

var cases = []testCase{
	{"admits the limit and no more", admitsTheLimit},
	{"a denied request changes nothing", deniedChangesNothing},
	{"a cost of zero consumes nothing", zeroConsumesNothing},
	{"keys are independent", keysAreIndependent},
	{"odd keys", oddKeys},
	{"bad arguments", badArguments},
	{"a context that has ended", endedContext},
	{"concurrent callers", concurrentCallers},
	{"block", blocks},
	{"reset", resets},
	{"wait that cannot be met", waitCannotBeMet},
}

var timed = []testCase{
	{"retry-after is enough", retryAfterIsEnough},
	{"wait", waits},
}

// ask returns a result that has passed what holds for every result.
func (s suite) ask(t testing.TB, key string, n int) limiter.Result {
	t.Helper()
	res, err := s.AllowN(context.Background(), key, n)
	if err != nil {
		t.Fatalf("AllowN(%q, %d): %v", key, n, err)
	}
	switch {
	case res.Limit != s.limit:
		t.Fatalf("the result's limit is %v, want %v", res.Limit, s.limit)
	case res.Allowed != (res.RetryAfter == 0):
		t.Fatalf("allowed %v with a retry after %v", res.Allowed, res.RetryAfter)
	case res.RetryAfter < 0 || res.ResetAfter < 0 || res.Delay < 0:
		t.Fatalf("a negative time: %+v", res)
	case res.Remaining < 0 || res.Remaining > s.limit.Burst():
		t.Fatalf("%d remaining of %d", res.Remaining, s.limit.Burst())
	case res.Delay > 0 && s.limit.Algorithm() != "leaky bucket shaping":
		t.Fatalf("a delay of %v from a limit that does not shape", res.Delay)
	}
	return res
}

// awayFromBorder waits until no window ends during a case.
func (s suite) awayFromBorder(t testing.TB) {
	t.Helper()
	const margin = 15 * time.Second
	left := time.Until(time.Now().Truncate(time.Hour).Add(time.Hour))
	if left < margin {
		t.Logf("waiting %v for the next hour's window", left)
		time.Sleep(left + time.Second)
	}
}

func admitsTheLimit(t testing.TB, s suite) {
	s.awayFromBorder(t)
	for i := range 10 {
		res := s.ask(t, "k", 1)
		if !res.Allowed || res.Remaining != 9-i {
			t.Fatalf("request %d: %+v, want it admitted with %d remaining", i+1, res, 9-i)
		}
		if res.ResetAfter == 0 {
			t.Fatalf("request %d: a used key resets after 0", i+1)
		}
	}
	for range 3 {
		if res := s.ask(t, "k", 1); res.Allowed || res.Remaining != 0 {
			t.Fatalf("beyond the limit: %+v", res)
		}
	}
}

func deniedChangesNothing(t testing.TB, s suite) {
	s.awayFromBorder(t)
	s.ask(t, "k", 4)
	for range 5 {
		if res := s.ask(t, "k", 7); res.Allowed || res.Remaining != 6 {
			t.Fatalf("a cost of 7 with 6 remaining: %+v", res)
		}
	}
	if res := s.ask(t, "k", 6); !res.Allowed || res.Remaining != 0 {
		t.Fatalf("a cost of 6 with 6 remaining: %+v", res)
	}
}

func zeroConsumesNothing(t testing.TB, s suite) {
	s.awayFromBorder(t)
	for range 20 {
		if res := s.ask(t, "k", 0); !res.Allowed || res.Remaining != 10 || res.ResetAfter != 0 {
			t.Fatalf("a cost of 0 on a fresh key: %+v", res)
		}
	}
	s.ask(t, "k", 10)
	if res := s.ask(t, "k", 0); res.Remaining != 0 {
		t.Fatalf("a cost of 0 on a used-up key: %+v", res)
	}
	p, ok := s.Allower.(interface {
		Peek(context.Context, string, ...limiter.Limit) (limiter.Result, error)
	})
	if !ok {
		return
	}
	if res, err := p.Peek(context.Background(), "other"); err != nil || res.Remaining != 10 {
		t.Fatalf("Peek: %+v, %v", res, err)
	}
}

func keysAreIndependent(t testing.TB, s suite) {
	s.ask(t, "a", 10)
	if res := s.ask(t, "b", 10); !res.Allowed {
		t.Fatalf("the key b after the key a: %+v", res)
	}
}

func oddKeys(t testing.TB, s suite) {
	s.awayFromBorder(t)
	long := strings.Repeat("x", 10_000)
	for _, key := range []string{
		"{a}", "}{", "{", "}", "a}b", "{}", " ", "a b", "\x00", "\r\n", "ü€", "\xff\xfe", "a:1", "%h", "%41", "A",
		long, long + "y", strings.Repeat("{", 200),
	} {
		if res := s.ask(t, key, 10); !res.Allowed {
			t.Fatalf("the key %.20q is not its own: %+v", key, res)
		}
		if res := s.ask(t, key, 1); res.Allowed {
			t.Fatalf("the key %.20q was forgotten", key)
		}
	}
}

func badArguments(t testing.TB, s suite) {
	ctx := context.Background()
	for _, c := range []struct {
		key  string
		n    int
		want error
	}{
		{"", 1, limiter.ErrInvalidKey},
		{"k", -1, limiter.ErrInvalidCost},
		{"k", -1 << 31, limiter.ErrInvalidCost},
		{"k", 11, limiter.ErrCostExceedsLimit},
		{"k", 1<<31 - 1, limiter.ErrCostExceedsLimit},
	} {
		if res, err := s.AllowN(ctx, c.key, c.n); !errors.Is(err, c.want) || res.Allowed {
			t.Errorf("AllowN(%q, %d): %+v, %v, want %v", c.key, c.n, res, err, c.want)
		}
	}
	if res := s.ask(t, "k", 10); !res.Allowed {
		t.Errorf("bad arguments were charged: %+v", res)
	}
}

func endedContext(t testing.TB, s suite) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if res, err := s.AllowN(ctx, "k", 1); !errors.Is(err, context.Canceled) || res.Allowed {
		t.Errorf("with a cancelled context: %+v, %v", res, err)
	}
	ctx, cancel = context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	if res, err := s.AllowN(ctx, "k", 1); !errors.Is(err, context.DeadlineExceeded) || res.Allowed {
		t.Errorf("past the deadline: %+v, %v", res, err)
	}
}

func concurrentCallers(t testing.TB, s suite) {
	s.awayFromBorder(t)
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for i := range 4 {
				res, err := s.AllowN(context.Background(), fmt.Sprint("k", i%2), 1)
				if err != nil {
					t.Error(err)
				}
				if res.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if got := admitted.Load(); got != 20 {
		t.Errorf("50 callers, two keys with a limit of 10: %d admitted", got)
	}
}

func blocks(t testing.TB, s suite) {
	b, ok := s.Allower.(interface {
		Block(context.Context, string, time.Duration, ...limiter.Limit) error
	})
	if !ok {
		t.Skip("no Block method")
	}
	ctx := context.Background()
	block := func(d time.Duration) {
		// A Redis that is down is said, but the block holds in this process.
		if err := b.Block(ctx, "k", d); err != nil && !errors.Is(err, limiter.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	block(time.Minute)
	block(time.Second)
	if res := s.ask(t, "k", 1); res.Allowed || res.RetryAfter < 50*time.Second || res.Remaining != 0 || res.ResetAfter < res.RetryAfter {
		t.Errorf("blocked for a minute: %+v", res)
	}
	if res := s.ask(t, "other", 1); !res.Allowed {
		t.Errorf("another key is blocked too: %+v", res)
	}
	if err := b.Block(ctx, "k", 0); !errors.Is(err, limiter.ErrInvalidConfig) {
		t.Errorf("a block for 0: %v", err)
	}
}

func resets(t testing.TB, s suite) {
	ctx := context.Background()
	var reset func() error
	switch r := s.Allower.(type) {
	case interface {
		Reset(context.Context, string, ...limiter.Limit) error
	}:
		reset = func() error { return r.Reset(ctx, "k") }
	case interface {
		Reset(context.Context, string) error
	}:
		reset = func() error { return r.Reset(ctx, "k") }
	default:
		t.Skip("no Reset method")
	}
	s.ask(t, "k", 10)
	if err := reset(); err != nil && !errors.Is(err, limiter.ErrUnavailable) {
		t.Fatal(err)
	}
	if res := s.ask(t, "k", 10); !res.Allowed {
		t.Errorf("after a reset: %+v", res)
	}
}

type waiter interface {
	Wait(context.Context, string, ...limiter.CallOption) (*limiter.Reservation, error)
}

func waitCannotBeMet(t testing.TB, s suite) {
	w, ok := s.Allower.(waiter)
	if !ok {
		t.Skip("no Wait method")
	}
	s.awayFromBorder(t)
	s.ask(t, "k", 9)
	const patience = 5 * time.Second // a busy machine takes some of it
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	start := time.Now()
	_, err := w.Wait(ctx, "k", limiter.Cost(2))
	var wait *limiter.WaitError
	if !errors.As(err, &wait) || wait.RetryAfter <= patience || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wait that cannot be met: %v", err)
	}
	if ctx.Err() != nil {
		t.Errorf("it took until the deadline to say so: %v", time.Since(start))
	}
	if s.limit.Algorithm() == "leaky bucket shaping" {
		// Here even a single unit would start too late.
		return
	}
	if res := s.ask(t, "k", 1); !res.Allowed {
		t.Errorf("a wait that was rejected was charged: %+v", res)
	}
}

func retryAfterIsEnough(t testing.TB, s suite) {
	for range 3 {
		// Filling up may itself take a window where Redis is slow to answer.
		res := s.ask(t, "k", 5)
		for range 1000 {
			if !res.Allowed {
				break
			}
			res = s.ask(t, "k", 5)
		}
		if res.Allowed {
			t.Fatal("never denied")
		}
		time.Sleep(res.RetryAfter)
		if again := s.ask(t, "k", 5); !again.Allowed {
			t.Fatalf("denied after exactly %v: %+v", res.RetryAfter, again)
		}
	}
}

func waits(t testing.TB, s suite) {
	w, ok := s.Allower.(waiter)
	if !ok {
		t.Skip("no Wait method")
	}
	start := time.Now()
	for range 12 {
		if res, err := w.Wait(context.Background(), "k"); err != nil || !res.Allowed {
			t.Fatalf("Wait: %+v, %v", res, err)
		}
	}
	// Of 12 units at 5 per 100 ms, 5 (for the fixed window 10) pass at once.
	least := 2 * 20 * time.Millisecond
	if took := time.Since(start); took < least && s.limit.Algorithm() != "fixed window" {
		t.Errorf("12 units took %v, less than %v", took, least)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.ask(t, "other", 5)
	cancel()
	if _, err := w.Wait(ctx, "other", limiter.Cost(5)); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled wait: %v", err)
	}
}
