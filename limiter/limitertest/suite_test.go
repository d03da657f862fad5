package limitertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// record is what a case says of a limiter.
type record struct {
	testing.TB
	mu      sync.Mutex
	says    []string
	skipped string
}

func (r *record) say(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.says = append(r.says, text)
}

func (r *record) Helper()                   {}
func (r *record) Error(args ...any)         { r.say(fmt.Sprint(args...)) }
func (r *record) Errorf(f string, a ...any) { r.say(fmt.Sprintf(f, a...)) }
func (r *record) Fatal(args ...any)         { r.Error(args...); runtime.Goexit() }
func (r *record) Fatalf(f string, a ...any) { r.Errorf(f, a...); runtime.Goexit() }
func (r *record) Skip(args ...any)          { r.skipped = fmt.Sprint(args...); runtime.Goexit() }

// judge runs a case on what is made of a limiter in the process, and returns what it says.
func judge(t *testing.T, name string, limit limiter.Limit, of func(*limiter.Limiter) limiter.Allower) *record {
	t.Helper()
	r := &record{TB: t}
	for _, c := range append(append([]testCase{}, cases...), timed...) {
		if c.name == name {
			var wg sync.WaitGroup
			wg.Go(func() { c.run(r, suite{of(inProcess(t, limit)), limit}) })
			wg.Wait()
			return r
		}
	}
	t.Fatalf("there is no case %q", name)
	return nil
}

func inProcess(t *testing.T, limit limiter.Limit) *limiter.Limiter {
	t.Helper()
	lim, err := limiter.NewLocal(limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lim.Close() })
	return lim
}

// faulty is a limiter of which some methods are as given.
type faulty struct {
	*limiter.Limiter
	allow func(ctx context.Context, key string, n int) (limiter.Result, error)
	peek  func(ctx context.Context, key string) (limiter.Result, error)
	wait  func(ctx context.Context, key string, opts ...limiter.CallOption) (*limiter.Reservation, error)
	block func(ctx context.Context, key string, d time.Duration) error
	reset func(ctx context.Context, key string) error
}

func (f *faulty) AllowN(ctx context.Context, key string, n int) (limiter.Result, error) {
	if f.allow != nil {
		return f.allow(ctx, key, n)
	}
	return f.Limiter.AllowN(ctx, key, n)
}

func (f *faulty) Peek(ctx context.Context, key string, _ ...limiter.Limit) (limiter.Result, error) {
	if f.peek != nil {
		return f.peek(ctx, key)
	}
	return f.Limiter.Peek(ctx, key)
}

func (f *faulty) Wait(ctx context.Context, key string, opts ...limiter.CallOption) (*limiter.Reservation, error) {
	if f.wait != nil {
		return f.wait(ctx, key, opts...)
	}
	return f.Limiter.Wait(ctx, key, opts...)
}

func (f *faulty) Block(ctx context.Context, key string, d time.Duration, _ ...limiter.Limit) error {
	if f.block != nil {
		return f.block(ctx, key, d)
	}
	return f.Limiter.Block(ctx, key, d)
}

func (f *faulty) Reset(ctx context.Context, key string, _ ...limiter.Limit) error {
	if f.reset != nil {
		return f.reset(ctx, key)
	}
	return f.Limiter.Reset(ctx, key)
}

// changes is a limiter whose results are changed; calls counts from 1.
func changes(change func(res *limiter.Result, call int, key string, n int)) func(*faulty) {
	return func(f *faulty) {
		calls := 0
		f.allow = func(ctx context.Context, key string, n int) (limiter.Result, error) {
			calls++
			res, err := f.Limiter.AllowN(ctx, key, n)
			if err == nil {
				change(&res, calls, key, n)
			}
			return res, err
		}
	}
}

// keyed is a limiter that makes another key of some.
func keyed(of func(key string) string) func(*faulty) {
	return func(f *faulty) {
		f.allow = func(ctx context.Context, key string, n int) (limiter.Result, error) {
			return f.Limiter.AllowN(ctx, of(key), n)
		}
	}
}

// defects are limiters with one bug each, with the case that must find it and a part of what it says.
var defects = []struct {
	of, says string
	make     func(*faulty)
}{
	{"admits the limit and no more", `AllowN("k", 1): lost`, func(f *faulty) {
		f.allow = func(context.Context, string, int) (limiter.Result, error) {
			return limiter.Result{}, errors.New("lost")
		}
	}},
	{"admits the limit and no more", "the result's limit is ", changes(func(res *limiter.Result, _ int, _ string, _ int) { res.Limit = limiter.Limit{} })},
	{"admits the limit and no more", "allowed true with a retry after 1ns", changes(func(res *limiter.Result, _ int, _ string, _ int) { res.RetryAfter++ })},
	{"admits the limit and no more", "allowed false with a retry after 0s", changes(func(res *limiter.Result, _ int, _ string, _ int) {
		if !res.Allowed {
			res.RetryAfter = 0
		}
	})},
	{"admits the limit and no more", "a negative time", changes(func(res *limiter.Result, _ int, _ string, _ int) { res.RetryAfter = -res.RetryAfter })},
	{"admits the limit and no more", "a negative time", changes(func(res *limiter.Result, _ int, _ string, _ int) { res.ResetAfter = -1 })},
	{"admits the limit and no more", "a negative time", changes(func(res *limiter.Result, _ int, _ string, _ int) { res.Delay = -1 })},
	{"admits the limit and no more", "-1 remaining of 10", changes(func(res *limiter.Result, _ int, _ string, _ int) {
		if res.Remaining == 0 {
			res.Remaining = -1
		}
	})},
	{"admits the limit and no more", "11 remaining of 10", changes(func(res *limiter.Result, _ int, _ string, _ int) { res.Remaining += 2 })},
	{"admits the limit and no more", "a delay of 1ns from a limit that does not shape", changes(func(res *limiter.Result, _ int, _ string, _ int) { res.Delay = 1 })},
	{"admits the limit and no more", "request 1: {Allowed:false", changes(func(res *limiter.Result, _ int, _ string, _ int) { res.Allowed, res.RetryAfter = false, 1 })},
	{"admits the limit and no more", "want it admitted with 0 remaining", changes(func(res *limiter.Result, call int, _ string, _ int) {
		if call == 10 {
			res.Allowed, res.RetryAfter = false, 1
		}
	})},
	{"admits the limit and no more", "request 1: {Allowed:true", changes(func(res *limiter.Result, _ int, _ string, _ int) { res.Remaining-- })},
	{"admits the limit and no more", "request 1: a used key resets after 0", changes(func(res *limiter.Result, _ int, _ string, _ int) { res.ResetAfter = 0 })},
	{"admits the limit and no more", "beyond the limit: {Allowed:true", changes(func(res *limiter.Result, _ int, _ string, _ int) { res.Allowed, res.RetryAfter = true, 0 })},
	{"admits the limit and no more", "beyond the limit: {Allowed:true", changes(func(res *limiter.Result, call int, _ string, _ int) {
		if call == 13 {
			res.Allowed, res.RetryAfter = true, 0
		}
	})},
	{"admits the limit and no more", "beyond the limit: {Allowed:false", changes(func(res *limiter.Result, call int, _ string, _ int) {
		if call > 10 {
			res.Remaining = 1
		}
	})},
	{"a denied request changes nothing", "a cost of 7 with 6 remaining: {Allowed:true", changes(func(res *limiter.Result, _ int, _ string, _ int) { res.Allowed, res.RetryAfter = true, 0 })},
	{"a denied request changes nothing", "a cost of 7 with 6 remaining: {Allowed:false", changes(func(res *limiter.Result, call int, _ string, _ int) { // charges the fourth denial
		if call > 5 {
			res.Remaining--
		}
	})},
	{"a denied request changes nothing", "a cost of 6 with 6 remaining: {Allowed:false", changes(func(res *limiter.Result, _ int, _ string, n int) {
		if n == 6 {
			res.Allowed, res.RetryAfter = false, 1
		}
	})},
	{"a denied request changes nothing", "a cost of 6 with 6 remaining: {Allowed:true", changes(func(res *limiter.Result, _ int, _ string, n int) {
		if n == 6 {
			res.Remaining = 1
		}
	})},
	{"a cost of zero consumes nothing", "a cost of 0 on a fresh key: {Allowed:true Admitted:1", keyedCost(func(n int) int { return max(n, 1) })},
	{"a cost of zero consumes nothing", "a cost of 0 on a fresh key: {Allowed:false", changes(func(res *limiter.Result, _ int, _ string, _ int) { res.Allowed, res.RetryAfter = false, 1 })},
	{"a cost of zero consumes nothing", "a cost of 0 on a fresh key: {Allowed:true", changes(func(res *limiter.Result, _ int, _ string, _ int) { res.ResetAfter = 1 })},
	{"a cost of zero consumes nothing", "a cost of 0 on a fresh key: {Allowed:true", changes(func(res *limiter.Result, call int, _ string, _ int) {
		if call == 20 {
			res.Remaining = 9
		}
	})},
	{"a cost of zero consumes nothing", "a cost of 0 on a used-up key", changes(func(res *limiter.Result, call int, _ string, _ int) {
		if call > 21 {
			res.Remaining = 1
		}
	})},
	{"a cost of zero consumes nothing", "Peek: {", func(f *faulty) {
		f.peek = func(ctx context.Context, _ string) (limiter.Result, error) { return f.Limiter.Peek(ctx, "k") }
	}},
	{"a cost of zero consumes nothing", "Peek: {", func(f *faulty) {
		f.peek = func(context.Context, string) (limiter.Result, error) {
			return limiter.Result{Remaining: 10}, errors.New("lost")
		}
	}},
	{"keys are independent", "the key b after the key a: {Allowed:false", keyed(func(string) string { return "a" })},
	{"odd keys", `the key "{" is not its own`, keyed(func(key string) string { return strings.Trim(key, "{}") + "." })},
	{"odd keys", `the key "xxxxxxxxxxxxxxxxxxxx" is not its own`, keyed(func(key string) string { return key[:min(10_000, len(key))] })},
	{"odd keys", `the key "A" is not its own`, keyed(func(key string) string { return strings.ReplaceAll(key, "A", "%41") })},
	{"odd keys", `the key "{a}" was forgotten`, func(f *faulty) {
		f.allow = func(ctx context.Context, key string, n int) (limiter.Result, error) {
			if n == 1 {
				key += "."
			}
			return f.Limiter.AllowN(ctx, key, n)
		}
	}},
	{"bad arguments", `AllowN("", 1): `, keyed(func(key string) string { return key + "." })},
	{"bad arguments", `AllowN("k", -1): `, keyedCost(func(n int) int { return max(n, 0) })},
	{"bad arguments", `AllowN("k", -2147483648): `, keyedCost(func(n int) int {
		if n < -1 {
			return 0
		}
		return n
	})},
	{"bad arguments", `AllowN("k", 11): `, keyedCost(func(n int) int { return min(n, 10) })},
	{"bad arguments", `AllowN("k", 2147483647): `, keyedCost(func(n int) int {
		if n > 11 {
			return 10
		}
		return n
	})},
	{"bad arguments", `AllowN("", 1): {Allowed:true`, func(f *faulty) {
		f.allow = func(ctx context.Context, key string, n int) (limiter.Result, error) {
			res, err := f.Limiter.AllowN(ctx, key, n)
			res.Allowed = true
			return res, err
		}
	}},
	{"bad arguments", "bad arguments were charged", func(f *faulty) {
		f.allow = func(ctx context.Context, key string, n int) (limiter.Result, error) {
			res, err := f.Limiter.AllowN(ctx, key, n)
			if err != nil {
				f.Limiter.AllowN(ctx, "k", 1)
			}
			return res, err
		}
	}},
	{"a context that has ended", "with a cancelled context: ", func(f *faulty) {
		f.allow = func(_ context.Context, key string, n int) (limiter.Result, error) {
			return f.Limiter.AllowN(context.Background(), key, n)
		}
	}},
	{"a context that has ended", "past the deadline: ", func(f *faulty) {
		f.allow = func(ctx context.Context, key string, n int) (limiter.Result, error) {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				ctx = context.Background()
			}
			return f.Limiter.AllowN(ctx, key, n)
		}
	}},
	{"a context that has ended", "with a cancelled context: {Allowed:true", func(f *faulty) {
		f.allow = func(ctx context.Context, key string, n int) (limiter.Result, error) {
			res, err := f.Limiter.AllowN(ctx, key, n)
			res.Allowed = true
			return res, err
		}
	}},
	{"a context that has ended", "past the deadline: {Allowed:true", func(f *faulty) {
		f.allow = func(ctx context.Context, key string, n int) (limiter.Result, error) {
			res, err := f.Limiter.AllowN(ctx, key, n)
			res.Allowed = errors.Is(err, context.DeadlineExceeded)
			return res, err
		}
	}},
	{"concurrent callers", "50 callers, two keys with a limit of 10: 200 admitted", keyedCost(func(int) int { return 0 })},
	{"concurrent callers", "50 callers, two keys with a limit of 10: 10 admitted", keyed(func(string) string { return "k" })},
	{"concurrent callers", "lost", func(f *faulty) {
		f.allow = func(ctx context.Context, key string, n int) (limiter.Result, error) {
			res, err := f.Limiter.AllowN(ctx, key, n)
			if !res.Allowed {
				err = errors.New("lost")
			}
			return res, err
		}
	}},
	{"block", "lost", func(f *faulty) {
		f.block = func(context.Context, string, time.Duration) error { return errors.New("lost") }
	}},
	{"block", "blocked for a minute: {Allowed:true", func(f *faulty) {
		f.block = func(_ context.Context, _ string, d time.Duration) error {
			if d == 0 {
				return limiter.ErrInvalidConfig
			}
			return nil
		}
	}},
	{"block", "blocked for a minute: {Allowed:false", func(f *faulty) { // the last one holds
		f.block = func(ctx context.Context, key string, d time.Duration) error {
			return errors.Join(f.Limiter.Reset(ctx, key), f.Limiter.Block(ctx, key, d))
		}
	}},
	{"block", "blocked for a minute: {Allowed:false", func(f *faulty) {
		f.block = func(ctx context.Context, key string, d time.Duration) error {
			return f.Limiter.Block(ctx, key, d*5/6-time.Microsecond)
		}
	}},
	{"block", "blocked for a minute: {Allowed:false", changes(func(res *limiter.Result, _ int, _ string, _ int) {
		if !res.Allowed {
			res.Remaining = 1
		}
	})},
	{"block", "blocked for a minute: {Allowed:false", changes(func(res *limiter.Result, _ int, _ string, _ int) {
		if !res.Allowed {
			res.ResetAfter = res.RetryAfter - 1
		}
	})},
	{"block", "another key is blocked too: {Allowed:false", keyed(func(string) string { return "k" })},
	{"block", "a block for 0: <nil>", func(f *faulty) {
		f.block = func(ctx context.Context, key string, d time.Duration) error {
			if d == 0 {
				return nil
			}
			return f.Limiter.Block(ctx, key, d)
		}
	}},
	{"reset", "lost", func(f *faulty) {
		f.reset = func(context.Context, string) error { return errors.New("lost") }
	}},
	{"reset", "after a reset: {Allowed:false", func(f *faulty) {
		f.reset = func(context.Context, string) error { return nil }
	}},
	{"wait that cannot be met", "a wait that cannot be met: <nil>", func(f *faulty) {
		f.wait = func(context.Context, string, ...limiter.CallOption) (*limiter.Reservation, error) { return nil, nil }
	}},
	{"wait that cannot be met", "a wait that cannot be met: context deadline exceeded", func(f *faulty) {
		f.wait = func(context.Context, string, ...limiter.CallOption) (*limiter.Reservation, error) {
			return nil, context.DeadlineExceeded
		}
	}},
	{"wait that cannot be met", "a wait that cannot be met: limiter: would wait 5s", func(f *faulty) {
		f.wait = func(context.Context, string, ...limiter.CallOption) (*limiter.Reservation, error) {
			return nil, &limiter.WaitError{RetryAfter: 5 * time.Second}
		}
	}},
	{"wait that cannot be met", "it took until the deadline to say so: 5s", func(f *faulty) {
		f.wait = func(ctx context.Context, key string, opts ...limiter.CallOption) (*limiter.Reservation, error) {
			r, err := f.Limiter.Wait(ctx, key, opts...)
			<-ctx.Done()
			return r, err
		}
	}},
	{"wait that cannot be met", "a wait that was rejected was charged: {Allowed:false", func(f *faulty) {
		f.wait = func(ctx context.Context, key string, opts ...limiter.CallOption) (*limiter.Reservation, error) {
			r, err := f.Limiter.Wait(ctx, key, opts...)
			f.Limiter.AllowN(context.Background(), key, 1)
			return r, err
		}
	}},
	{"retry-after is enough", "never denied", changes(func(res *limiter.Result, _ int, _ string, _ int) { res.Allowed, res.RetryAfter = true, 0 })},
	{"retry-after is enough", "denied after exactly ", changes(func(res *limiter.Result, _ int, _ string, _ int) {
		res.RetryAfter = min(res.RetryAfter, time.Microsecond)
	})},
	{"wait", "Wait: <nil>, lost", func(f *faulty) {
		f.wait = func(context.Context, string, ...limiter.CallOption) (*limiter.Reservation, error) {
			return nil, errors.New("lost")
		}
	}},
	{"wait", "Wait: &{", func(f *faulty) {
		f.wait = func(ctx context.Context, key string, opts ...limiter.CallOption) (*limiter.Reservation, error) {
			return &limiter.Reservation{}, nil
		}
	}},
	{"wait", "12 units took 0s, less than 40ms", func(f *faulty) {
		f.wait = func(ctx context.Context, key string, opts ...limiter.CallOption) (*limiter.Reservation, error) {
			r, err := f.Limiter.Wait(ctx, fmt.Sprint(key, len(key)), opts...)
			if err == nil {
				f.Limiter.Reset(ctx, fmt.Sprint(key, len(key)))
			}
			return r, err
		}
	}},
	{"wait", "a cancelled wait: <nil>", func(f *faulty) {
		f.wait = func(_ context.Context, key string, opts ...limiter.CallOption) (*limiter.Reservation, error) {
			return f.Limiter.Wait(context.Background(), key, opts...)
		}
	}},
}

// keyedCost is a limiter that charges another cost.
func keyedCost(of func(n int) int) func(*faulty) {
	return func(f *faulty) {
		f.allow = func(ctx context.Context, key string, n int) (limiter.Result, error) {
			return f.Limiter.AllowN(ctx, key, of(n))
		}
	}
}

// TestSuiteFindsBugs: each defect is found by its case, which says what it is.
func TestSuiteFindsBugs(t *testing.T) {
	for _, d := range defects {
		t.Run(d.of+"/"+d.says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := judge(t, d.of, limitOf(d.of), func(lim *limiter.Limiter) limiter.Allower {
					f := &faulty{Limiter: lim}
					d.make(f)
					return f
				})
				if len(r.says) == 0 || !strings.Contains(r.says[0], d.says) {
					t.Errorf("it says %q", r.says)
				}
			})
		})
	}
}

// passable are limiters that keep to what the suite asks for, and not by much.
var passable = []struct {
	of   string
	make func(*faulty)
}{
	{"block", func(f *faulty) {
		f.block = func(ctx context.Context, key string, d time.Duration) error {
			if d == 0 {
				return f.Limiter.Block(ctx, key, d)
			}
			return errors.Join(limiter.ErrUnavailable, f.Limiter.Block(ctx, key, d*5/6))
		}
	}},
	{"reset", func(f *faulty) {
		f.reset = func(ctx context.Context, key string) error {
			return errors.Join(limiter.ErrUnavailable, f.Limiter.Reset(ctx, key))
		}
	}},
	{"wait that cannot be met", func(f *faulty) {
		f.wait = func(context.Context, string, ...limiter.CallOption) (*limiter.Reservation, error) {
			return nil, &limiter.WaitError{RetryAfter: 5*time.Second + 1}
		}
	}},
	{"wait", func(f *faulty) {
		waits := 0
		f.wait = func(ctx context.Context, _ string, _ ...limiter.CallOption) (*limiter.Reservation, error) {
			if waits++; waits == 1 {
				time.Sleep(40 * time.Millisecond)
			}
			return &limiter.Reservation{Result: Admitted()}, ctx.Err()
		}
	}},
}

// TestSuiteIsNoStricterThanItSays: what is just good enough passes.
func TestSuiteIsNoStricterThanItSays(t *testing.T) {
	for _, p := range passable {
		synctest.Test(t, func(t *testing.T) {
			r := judge(t, p.of, limitOf(p.of), func(lim *limiter.Limiter) limiter.Allower {
				f := &faulty{Limiter: lim}
				p.make(f)
				return f
			})
			if len(r.says) > 0 {
				t.Errorf("%s says %q", p.of, r.says)
			}
		})
	}
}

// limitOf is a limit for a case, as Run has it.
func limitOf(name string) limiter.Limit {
	if name == "retry-after is enough" || name == "wait" {
		return limiter.SlidingWindowLog(limiter.Per(5, 100*time.Millisecond))
	}
	return limiter.SlidingWindowLog(limiter.PerHour(10))
}

// TestWhatIsAsked: what the cases ask of a limiter, by the number of decisions, their units and waits: those who run the
// suite on a limiter that is paid for by the call can count on it.
func TestWhatIsAsked(t *testing.T) {
	type asked struct{ decisions, units, waits int }
	want := map[string]asked{
		"admits the limit and no more":     {13, 13, 0},
		"a denied request changes nothing": {7, 4 + 5*7 + 6, 0},
		"a cost of zero consumes nothing":  {22, 10, 0},
		"keys are independent":             {2, 20, 0},
		"odd keys":                         {38, 19 * 11, 0},
		"bad arguments":                    {6, 20, 0},
		"a context that has ended":         {2, 2, 0},
		"concurrent callers":               {200, 200, 0},
		"block":                            {2, 2, 0},
		"reset":                            {2, 20, 0},
		"wait that cannot be met":          {2, 10, 1},
		"retry-after is enough":            {7, 35, 0},
		"wait":                             {1, 5, 13},
	}
	for name, want := range want {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var got asked
			r := judge(t, name, limitOf(name), func(lim *limiter.Limiter) limiter.Allower {
				f := &faulty{Limiter: lim}
				f.allow = func(ctx context.Context, key string, n int) (limiter.Result, error) {
					mu.Lock()
					defer mu.Unlock()
					got.decisions, got.units = got.decisions+1, got.units+n
					return lim.AllowN(ctx, key, n)
				}
				f.wait = func(ctx context.Context, key string, opts ...limiter.CallOption) (*limiter.Reservation, error) {
					got.waits++
					return lim.Wait(ctx, key, opts...)
				}
				return f
			})
			if len(r.says) > 0 || got != want {
				t.Errorf("%s asks for %+v, want %+v; it says %q", name, got, want, r.says)
			}
		})
	}
}

// TestSuitePassesOurs: nothing is said of a limiter without a defect, and nothing is skipped.
func TestSuitePassesOurs(t *testing.T) {
	made := map[limiter.Limit]int{}
	Run(t, func(t *testing.T, limit limiter.Limit) limiter.Allower {
		made[limit]++
		return &faulty{Limiter: inProcess(t, limit)}
	})
	want := map[limiter.Limit]int{}
	for i := range 7 {
		want[Limits(limiter.PerHour(10))[i]] = len(cases)
		want[Limits(limiter.Per(5, 100*time.Millisecond))[i]] = len(timed)
	}
	if !maps.Equal(made, want) {
		t.Errorf("limiters were made for %v, want %v", made, want)
	}
}

// ofOneLimit has a Reset without limits.
type ofOneLimit struct {
	limiter.Allower
	lim *limiter.Limiter
}

func (o ofOneLimit) Reset(ctx context.Context, key string) error { return o.lim.Reset(ctx, key) }

// TestOptionalMethods: what a limiter does not have is skipped.
func TestOptionalMethods(t *testing.T) {
	limit := limiter.SlidingWindowLog(limiter.PerHour(10))
	r := judge(t, "reset", limit, func(lim *limiter.Limiter) limiter.Allower { return ofOneLimit{lim, lim} })
	if len(r.says) > 0 || r.skipped != "" {
		t.Errorf("a Reset of a key alone: it says %q, and is skipped for %q", r.says, r.skipped)
	}
	for of, why := range map[string]string{
		"block": "no Block method", "reset": "no Reset method", "wait": "no Wait method", "wait that cannot be met": "no Wait method",
		"a cost of zero consumes nothing": "",
	} {
		r := judge(t, of, limit, func(lim *limiter.Limiter) limiter.Allower { return struct{ limiter.Allower }{lim} })
		if len(r.says) > 0 || r.skipped != why {
			t.Errorf("%s says %q, and is skipped for %q", of, r.says, r.skipped)
		}
	}
}

// TestNoWindowEndsDuringACase: where a window would end within a case, the case waits for the next one, also where a
// decision takes long.
func TestNoWindowEndsDuringACase(t *testing.T) {
	for _, c := range []struct {
		name       string
		left, each time.Duration // of the window, and for each decision
	}{
		{"admits the limit and no more", 1500 * time.Millisecond, 900 * time.Millisecond},
		{"admits the limit and no more", 14 * time.Second, 1100 * time.Millisecond},
		{"a denied request changes nothing", 1500 * time.Millisecond, 1100 * time.Millisecond},
		{"a cost of zero consumes nothing", 2150 * time.Millisecond, 100 * time.Millisecond},
		{"odd keys", 1500 * time.Millisecond, 1100 * time.Millisecond},
		{"concurrent callers", 1500 * time.Millisecond, 1100 * time.Millisecond},
		{"wait that cannot be met", 1500 * time.Millisecond, 1100 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(2*time.Hour - c.left)
			r := judge(t, c.name, limiter.FixedWindow(limiter.PerHour(10)), func(lim *limiter.Limiter) limiter.Allower {
				f := &faulty{Limiter: lim}
				f.allow = func(ctx context.Context, key string, n int) (limiter.Result, error) {
					time.Sleep(c.each)
					return lim.AllowN(ctx, key, n)
				}
				return f
			})
			if len(r.says) > 0 {
				t.Errorf("%s says %q", c.name, r.says)
			}
		})
	}
}
