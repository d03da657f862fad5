package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

// counted is a Local that counts its decisions.
func counted(t testing.TB, l limiter.Limit, opts ...limiter.LocalOption) (*limiter.Limiter, *atomic.Int64) {
	t.Helper()
	n := new(atomic.Int64)
	lim, err := limiter.NewLocal(l, append(opts, limiter.WithHooks(limiter.Hooks{Decision: func(context.Context, limiter.DecisionInfo) { n.Add(1) }}))...)
	if err != nil {
		t.Fatal(err)
	}
	return lim, n
}

// waited is what waiting callers met.
type waited struct {
	slowest  time.Duration
	admitted []int // by goroutine
	total    int
}

// loops lets goroutines wait again and again.
func loops(t *testing.T, goroutines int, life time.Duration, wait func(context.Context) error) (p waited) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	p.admitted = make([]int, goroutines)
	ctx, cancel := context.WithCancel(t.Context())
	end := time.Now().Add(life)
	for i := range goroutines {
		wg.Go(func() {
			for time.Now().Before(end) {
				start := time.Now()
				if err := wait(ctx); err != nil {
					return
				}
				mu.Lock()
				p.slowest = max(p.slowest, time.Since(start))
				p.admitted[i]++
				p.total++
				mu.Unlock()
				time.Sleep(1) // until all others wait: or the first takes the burst alone
			}
		})
	}
	time.Sleep(life)
	cancel()
	wg.Wait()
	return p
}

// TestWaitersAreServedInTurn: as well as those of x/time/rate, at about two decisions for
// each that is admitted.
func TestWaitersAreServedInTurn(t *testing.T) {
	const goroutines, life = 50, 6 * time.Second
	for _, limit := range []limiter.Limit{
		limiter.TokenBucket(limiter.PerSecond(100), 10), limiter.GCRA(limiter.PerSecond(100), 10),
		limiter.LeakyBucket(limiter.PerSecond(100), 10), limiter.LeakyBucketShaping(limiter.PerSecond(100), 10),
	} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := rate.NewLimiter(100, 10)
				want := loops(t, goroutines, life, x.Wait)
				lim, decisions := counted(t, limit)
				got := loops(t, goroutines, life, func(ctx context.Context) error { _, err := lim.Wait(ctx, "k"); return err })
				t.Logf("slowest %v (x/time/rate %v), %d to %d each, %d in all, %d decisions", got.slowest, want.slowest, slices.Min(got.admitted), slices.Max(got.admitted), got.total, decisions.Load())
				if got.slowest > want.slowest*11/10 {
					t.Errorf("the slowest waited for %v, with x/time/rate %v", got.slowest, want.slowest)
				}
				if least, most := slices.Min(got.admitted), slices.Max(got.admitted); least < 8 || most > 18 {
					t.Errorf("%d to %d were admitted of each goroutine", least, most)
				}
				if n := decisions.Load(); float64(n) > 2.5*float64(got.total) || got.total < 600 {
					t.Errorf("%d decisions for %d admitted", n, got.total)
				}
			})
		})
	}
}

// queue lets waiters arrive a millisecond apart, and returns when each was admitted.
func queue(lim interface {
	Wait(context.Context, string, ...limiter.CallOption) (*limiter.Reservation, error)
}, costs []int, ctxOf func(i int) context.Context) (order []int, at []time.Duration, errs []error) {
	at, errs = make([]time.Duration, len(costs)), make([]error, len(costs))
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for i, n := range costs {
		wg.Go(func() {
			_, errs[i] = lim.Wait(ctxOf(i), "k", limiter.Cost(n))
			mu.Lock()
			defer mu.Unlock()
			at[i] = time.Since(start)
			if errs[i] == nil {
				order = append(order, i)
			}
		})
		time.Sleep(time.Millisecond)
	}
	wg.Wait()
	return order, at, errs
}

func ones(n int) []int { return slices.Repeat([]int{1}, n) }

// awayFromWindow waits until a window of the given length begins.
func awayFromWindow(d time.Duration) { time.Sleep(d - time.Duration(time.Now().UnixNano()%int64(d))) }

// TestWindowsAreFilledInTurn: none waits for a third window while there is room in the
// second one.
func TestWindowsAreFilledInTurn(t *testing.T) {
	const window = 10
	for _, limit := range []limiter.Limit{
		limiter.FixedWindow(limiter.PerSecond(window)), limiter.SlidingWindowLog(limiter.PerSecond(window)), limiter.SlidingWindowCounter(limiter.PerSecond(window)),
	} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lim, decisions := counted(t, limit)
				awayFromWindow(time.Second)
				order, at, errs := queue(lim, ones(5*window), func(int) context.Context { return t.Context() })
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
				if !slices.IsSortedFunc(at, func(a, b time.Duration) int { return int(a.Truncate(time.Microsecond) - b.Truncate(time.Microsecond)) }) {
					t.Errorf("not in turn: %v at %v", order, at)
				}
				if limit.Algorithm() != "sliding window counter" {
					for i, d := range at {
						if w := int(d / time.Second); w != i/window {
							t.Errorf("the waiter %d was admitted after %v, want in window %d", i, d, i/window)
						}
					}
				}
				if n := decisions.Load(); n > 5*window*5/2 {
					t.Errorf("%d decisions for %d admitted", n, 5*window)
				}
			})
		})
	}
}

// TestLargeCostsAreNotStarved: small ones that came later do not take what it waits for.
func TestLargeCostsAreNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, _ := counted(t, limiter.GCRA(limiter.PerSecond(10), 10))
		costs := append([]int{10, 8}, ones(20)...)
		order, at, errs := queue(lim, costs, func(int) context.Context { return t.Context() })
		if err := errors.Join(errs...); err != nil || order[1] != 1 || at[1] > 900*time.Millisecond {
			t.Error(err, order, at)
		}
	})
}

// TestCriticalWaitersGoFirst: by arrival among themselves.
func TestCriticalWaitersGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, _ := counted(t, limiter.GCRA(limiter.PerSecond(10), 10), limiter.WithCriticalHeadroom(0.5))
		if _, err := lim.Wait(limiter.Critical(t.Context()), "k", limiter.Cost(10)); err != nil {
			t.Fatal(err)
		}
		order, at, errs := queue(lim, ones(9), func(i int) context.Context {
			if i == 3 || i == 7 {
				return limiter.Critical(t.Context())
			}
			return t.Context()
		})
		want := []int{3, 7, 0, 1, 2, 4, 5, 6, 8}
		if err := errors.Join(errs...); err != nil || !slices.Equal(order, want) {
			t.Errorf("%v: %v at %v, want %v", err, order, at, want)
		}
		// The first of the others waits until all of the headroom is there.
		if at[3] > 110*time.Millisecond || at[0] < 600*time.Millisecond {
			t.Error(at)
		}
	})
}

// TestWaitersThatLeave: wherever they stand they leave at once, and the line goes on,
// without a decision for each.
func TestWaitersThatLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, decisions := counted(t, limiter.FixedWindow(limiter.PerHour(1)))
		awayFromWindow(time.Hour)
		const n = 1000
		ctxs, cancels := make([]context.Context, n), make([]context.CancelFunc, n)
		for i := range n {
			ctxs[i], cancels[i] = context.WithCancel(t.Context())
		}
		go func() {
			time.Sleep(2 * time.Second)
			for i := range n {
				if i != 500 {
					cancels[i]()
					time.Sleep(time.Microsecond) // the first one leaves, again and again
				}
			}
		}()
		if _, err := lim.Wait(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		order, at, errs := queue(lim, ones(n), func(i int) context.Context { return ctxs[i] })
		if len(order) != 1 || order[0] != 500 {
			t.Error(order)
		}
		for i, err := range errs {
			if i != 500 && (!errors.Is(err, context.Canceled) || at[i] > 3*time.Second) {
				t.Fatal(i, at[i], err)
			}
		}
		if got := decisions.Load(); got > 5 {
			t.Errorf("%d decisions", got)
		}
		cancels[500]()
	})
}

// TestDeadlinesInLine: a waiter hears at once that its deadline is too soon, by its place if
// it is not the first, and only when that is certain.
func TestDeadlinesInLine(t *testing.T) {
	for _, limit := range []limiter.Limit{
		limiter.GCRA(limiter.PerSecond(10), 10), limiter.FixedWindow(limiter.PerSecond(10)), limiter.SlidingWindowLog(limiter.PerSecond(10)),
		limiter.SlidingWindowCounter(limiter.PerSecond(10)), limiter.LeakyBucketShaping(limiter.PerSecond(10), 10),
	} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lim, _ := counted(t, limit)
				awayFromWindow(time.Second)
				const n = 100
				_, at, errs := queue(lim, ones(n), func(i int) context.Context {
					ctx := t.Context()
					if i%2 == 1 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, 3*time.Second)
						t.Cleanup(cancel)
					}
					return ctx
				})
				told := 0
				for i, err := range errs {
					var late *limiter.WaitError
					switch {
					case i%2 == 0 && err != nil:
						t.Errorf("%d: %v", i, err)
					case i%2 == 1 && errors.As(err, &late):
						if told++; late.RetryAfter <= late.Remaining {
							t.Errorf("%d: %v", i, err)
						}
						if i > 90 && at[i] > time.Duration(i+1)*time.Millisecond {
							t.Errorf("%d left after %v", i, at[i])
						}
					case i%2 == 1 && at[i] > 3*time.Second+time.Duration(i)*time.Millisecond:
						t.Errorf("%d: admitted after %v", i, at[i])
					}
				}
				if told < 20 {
					t.Errorf("%d of 50 heard that it is too late", told)
				}
			})
		})
	}
}

// TestCloseWithWaiters: all of them leave, without a decision.
func TestCloseWithWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, decisions := counted(t, limiter.FixedWindow(limiter.PerHour(1)))
		awayFromWindow(time.Hour)
		go func() {
			time.Sleep(2 * time.Second)
			decisions.Store(0)
			_ = lim.Close()
		}()
		_, _, errs := queue(lim, ones(1000), func(int) context.Context { return t.Context() })
		for i, err := range errs[1:] {
			if !errors.Is(err, limiter.ErrClosed) {
				t.Fatal(i, err)
			}
		}
		synctest.Wait()
		if n := decisions.Load(); n > 1 {
			t.Errorf("%d decisions", n)
		}
	})
}

// TestPanicsHandOver: a hook that panics in the turn of one does not stop the line.
func TestPanicsHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n, panics, admitted atomic.Int64
		lim, err := limiter.NewLocal(limiter.GCRA(limiter.PerSecond(10), 1), limiter.WithHooks(limiter.Hooks{Decision: func(context.Context, limiter.DecisionInfo) {
			if n.Add(1) == 5 {
				panic("of a hook")
			}
		}}))
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				defer func() {
					if recover() != nil {
						panics.Add(1)
					}
				}()
				if _, err := lim.Wait(t.Context(), "k"); err == nil {
					admitted.Add(1)
				}
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		if panics.Load() != 1 || admitted.Load() != 9 {
			t.Error(panics.Load(), admitted.Load())
		}
	})
}

// TestWaitersUseNewRoomAtOnce: what makes room in this process is used at once.
func TestWaitersUseNewRoomAtOnce(t *testing.T) {
	for name, change := range map[string]func(*limiter.Limiter) error{
		"reset": func(l *limiter.Limiter) error { return l.Reset(context.Background(), "k") },
		"raise": func(l *limiter.Limiter) error { return l.SetLimit(limiter.FixedWindow(limiter.PerHour(1000))) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lim, _ := counted(t, limiter.FixedWindow(limiter.PerHour(1)))
				awayFromWindow(time.Hour)
				if _, err := lim.Wait(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				if name == "reset" {
					if err := lim.Block(t.Context(), "k", 3*time.Hour); err != nil {
						t.Fatal(err)
					}
				}
				start := time.Now()
				go func() {
					time.Sleep(time.Minute)
					if err := change(lim); err != nil {
						t.Error(err)
					}
				}()
				if _, err := lim.Wait(t.Context(), "k"); err != nil || time.Since(start) != time.Minute {
					t.Error(err, time.Since(start))
				}
			})
		})
	}
}

// TestLinesOfLimits: a call with a limit of its own does not hold up those of another one,
// and naming the limiter's own is the same as none.
func TestLinesOfLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, slow := limiter.GCRA(limiter.PerSecond(10), 1), limiter.FixedWindow(limiter.PerHour(1))
		lim, decisions := counted(t, own)
		awayFromWindow(time.Hour)
		wait := func(l limiter.Limit) error { _, err := lim.Wait(t.Context(), "k", l); return err }
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { _ = wait(slow) })
		}
		start := time.Now()
		for i := range 20 {
			wg.Go(func() { _ = wait([]limiter.Limit{own, {}}[i%2]) })
			synctest.Wait()
		}
		time.Sleep(2 * time.Second)
		if n := decisions.Load(); n > 45 {
			t.Errorf("%d decisions after %v", n, time.Since(start))
		}
		wg.Wait()
	})
}

// TestBlockedKeysWait: those in line come back in turn when a block ends, and hear of a
// longer one.
func TestBlockedKeysWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, decisions := counted(t, limiter.GCRA(limiter.PerSecond(100), 1))
		for _, d := range []time.Duration{time.Second, 3 * time.Second} {
			if err := lim.Block(t.Context(), "k", d); err != nil {
				t.Fatal(err)
			}
		}
		_, at, errs := queue(lim, ones(100), func(int) context.Context { return t.Context() })
		for i, d := range at {
			if want := 3*time.Second + time.Duration(i)*10*time.Millisecond; errs[i] != nil || d != want {
				t.Fatal(i, d, want, errs[i])
			}
		}
		if n := decisions.Load(); n > 205 {
			t.Errorf("%d decisions", n)
		}
	})
}

func ExampleLimiter_Wait_inTurn() {
	lim, err := limiter.NewLocal(limiter.TokenBucket(limiter.PerSecond(1000), 1))
	if err != nil {
		panic(err)
	}
	defer lim.Close()
	for i := range 3 {
		if _, err := lim.Wait(context.Background(), "job"); err != nil {
			panic(err)
		}
		fmt.Println("job", i)
	}
	// Output:
	// job 0
	// job 1
	// job 2
}

// TestWaitersInTurnOnRedis is TestWaitersAreServedInTurn on a real server, as a
// distribution: none of the goroutines is left behind, and a wait takes about two decisions.
func TestWaitersInTurnOnRedis(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t))
	var decisions atomic.Int64
	lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerSecond(100), 10), patient(), limiter.WithHooks(limiter.Hooks{
		Decision: func(context.Context, limiter.DecisionInfo) { decisions.Add(1) },
	}))
	m := measured(t)
	const n, length = 50, 3 * time.Second
	got := loops(t, n, length, func(ctx context.Context) error { _, err := lim.Wait(ctx, "k"); return err })
	t.Logf("slowest %v, %d to %d each, %d in all, %d decisions", got.slowest, slices.Min(got.admitted), slices.Max(got.admitted), got.total, decisions.Load())
	// A busy machine admits less than the limit: then two turns of all others take longer.
	turns := max(2*time.Second, 2*n*length/time.Duration(max(1, got.total)))
	if least, most := slices.Min(got.admitted), slices.Max(got.admitted); most > 3*least+5 || got.slowest > turns+2*m.most() {
		t.Errorf("%d to %d were admitted of each goroutine, the slowest after %v", least, most, got.slowest)
	}
	if n := decisions.Load(); float64(n) > 2.5*float64(got.total) {
		t.Errorf("%d decisions for %d admitted", n, got.total)
	}
}
