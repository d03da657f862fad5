package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

func newSemaphore(t *testing.T, rdb redis.UniversalClient, max int, opts ...semaphore.Option) *semaphore.Semaphore {
	t.Helper()
	c, err := semaphore.New(rdb, max, append([]semaphore.Option{quiet, fast, limiter.WithExpectedProcesses(1)}, opts...)...)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func acquire(t *testing.T, c *semaphore.Semaphore, key string) *semaphore.Permit {
	t.Helper()
	s, err := c.TryAcquire(t.Context(), key)
	must(t, err)
	if !s.Allowed {
		t.Fatalf("no permit: %+v", s.Result)
	}
	return s
}

func inFlight(t *testing.T, c *semaphore.Semaphore, key string) int {
	t.Helper()
	n, err := c.InFlight(t.Context(), key)
	must(t, err)
	return n
}

// TestPermits: as many as there are, each once, in Redis and without it.
func TestPermits(t *testing.T) {
	for _, where := range []string{"redis", "down", "functions"} {
		t.Run(where, func(t *testing.T) {
			opts := []semaphore.Option{patient()}
			var rdb *redis.Client
			if where == "down" {
				rdb = redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
				t.Cleanup(func() { _ = rdb.Close() })
			} else {
				rdb = redistest.Client(t, redistest.Start(t))
			}
			if where == "functions" {
				opts = append(opts, limiter.WithFunctions())
			}
			c := newSemaphore(t, rdb, 3, opts...)
			var permits []*semaphore.Permit
			for i := range 3 {
				s := acquire(t, c, "k")
				if s.Remaining != 2-i || s.RetryAfter != 0 || s.Limit != (limiter.Limit{}) || (s.Source == limiter.SourceRedis) != (where != "down") {
					t.Errorf("permit %d: %+v", i, s.Result)
				}
				permits = append(permits, s)
			}
			none, err := c.TryAcquire(t.Context(), "k")
			if err != nil || none.Allowed || none.RetryAfter <= 0 || none.RetryAfter > time.Second {
				t.Fatalf("a fourth of three: %+v, %v", none, err)
			}
			if err := none.Release(); !errors.Is(err, semaphore.ErrNotAcquired) {
				t.Errorf("a permit that is none was released: %v", err)
			}
			acquire(t, c, "another key")
			must(t, permits[1].Release())
			if err := permits[1].Release(); !errors.Is(err, semaphore.ErrReleased) {
				t.Errorf("released twice: %v", err)
			}
			if n, err := c.InFlight(t.Context(), "k"); n != 2 || (err != nil) != (where == "down") {
				t.Errorf("%d in flight, %v", n, err)
			}
			acquire(t, c, "k")
			if s, err := c.TryAcquire(t.Context(), "k"); err != nil || s.Allowed {
				t.Errorf("one released, two taken: %+v, %v", s, err)
			}
		})
	}
}

// TestPermitsAgreeWithAModel: whatever several processes take and release, Redis
// counts it.
func TestPermitsAgreeWithAModel(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	var all []*semaphore.Semaphore
	for i := range 3 {
		all = append(all, newSemaphore(t, rdb, 5, patient(), semaphore.WithCriticalHeadroom(0.4), limiter.WithProcess(fmt.Sprint(i))))
	}
	var keys atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		key := fmt.Sprint("k", keys.Add(1))
		var held []*semaphore.Permit
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			c := rapid.SampledFrom(all).Draw(rt, "process")
			if len(held) > 0 && rapid.IntRange(0, 2).Draw(rt, "what") == 0 {
				i := rapid.IntRange(0, len(held)-1).Draw(rt, "which")
				if err := held[i].Release(); err != nil {
					rt.Fatal(err)
				}
				held = append(held[:i:i], held[i+1:]...)
			} else {
				ctx, most := t.Context(), 3
				if rapid.Bool().Draw(rt, "critical") {
					ctx, most = limiter.Critical(ctx), 5
				}
				s, err := c.TryAcquire(ctx, key)
				if err != nil {
					rt.Fatal(err)
				}
				if s.Allowed != (len(held) < most) {
					rt.Fatalf("%d held, at most %d: %+v", len(held), most, s.Result)
				}
				if s.Allowed {
					held = append(held, s)
				}
			}
			if n, err := c.InFlight(t.Context(), key); err != nil || n != len(held) {
				rt.Fatalf("%d in flight, %d held, %v", n, len(held), err)
			}
		}
		for _, s := range held {
			_ = s.Release()
		}
	})
}

// model is what TryAcquire (true) and Release (false) do one after the other.
func model(max int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, output any) (bool, any) {
			held := state.(int)
			if !input.(bool) {
				return true, held - 1
			}
			if output.(bool) {
				return held < max, held + 1
			}
			return held >= max, held
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprint("acquire ", input, ": ", output) },
	}
}

// TestPermitsAreLinearizable: the answers that several processes get at once are those
// of one that answers them in some order in which they overlap.
func TestPermitsAreLinearizable(t *testing.T) {
	const max = 3
	rdb := redistest.Client(t, redistest.Start(t))
	for round := range 20 {
		var mu sync.Mutex
		var history []porcupine.Operation
		record := func(client int, acquires bool, do func() bool) bool {
			op := porcupine.Operation{ClientId: client, Input: acquires, Call: time.Now().UnixNano()}
			out := do()
			op.Output, op.Return = out, time.Now().UnixNano()
			mu.Lock()
			defer mu.Unlock()
			history = append(history, op)
			return out
		}
		var wg sync.WaitGroup
		for client := range 6 {
			c := newSemaphore(t, rdb, max, patient(), limiter.WithProcess(fmt.Sprint(client)))
			wg.Go(func() {
				for range 12 {
					var s *semaphore.Permit
					if record(client, true, func() bool {
						var err error
						s, err = c.TryAcquire(context.Background(), fmt.Sprint("k", round))
						if err != nil || s.Source != limiter.SourceRedis {
							t.Errorf("%+v, %v", s, err)
							return false
						}
						return s.Allowed
					}) {
						record(client, false, func() bool { return s.Release() == nil })
					}
				}
			})
		}
		wg.Wait()
		if !porcupine.CheckOperations(model(max), history) {
			t.Fatalf("round %d: no order of these operations explains the answers", round)
		}
	}
}

// TestNeverMoreThanMax: of many processes and goroutines that wait for a permit, never
// more than max are in flight, and all get their turn.
func TestNeverMoreThanMax(t *testing.T) {
	const max, processes, callers, turns = 4, 6, 20, 3
	srv := redistest.Start(t)
	rdb := redistest.Client(t, srv)
	var now, most, done atomic.Int64
	var wg sync.WaitGroup
	for p := range processes {
		c := newSemaphore(t, rdb, max, patient(), limiter.WithProcess(fmt.Sprint(p)))
		for range callers {
			wg.Go(func() {
				for range turns {
					s, err := c.Acquire(t.Context(), "k")
					if err != nil {
						t.Error(err)
						return
					}
					n := now.Add(1)
					for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
					}
					time.Sleep(200 * time.Microsecond)
					now.Add(-1)
					if err := s.Release(); err != nil {
						t.Error(err)
					}
					done.Add(1)
				}
			})
		}
	}
	wg.Wait()
	if most.Load() > max || done.Load() != processes*callers*turns {
		t.Errorf("at most %d of %d in flight; %d turns", most.Load(), max, done.Load())
	}
	if keys := rdb.Keys(t.Context(), "*permits*").Val(); len(keys) > 0 {
		t.Errorf("left in Redis: %v", keys)
	}
}

// waiting is how many callers Redis has in the queue of a key.
func waiting(t *testing.T, rdb *redis.Client, key string) int {
	t.Helper()
	n := 0
	for _, member := range rdb.ZRange(t.Context(), "holdfast:v1:permits:{"+key+"}", 0, -1).Val() {
		if strings.HasPrefix(member, "q") {
			n++
		}
	}
	return n
}

// waiters lets callers queue for a permit one after the other, and returns the order
// in which they get it.
func waiters(t *testing.T, rdb *redis.Client, first *semaphore.Permit, callers []func(context.Context) (*semaphore.Permit, error)) []int {
	t.Helper()
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	for i, call := range callers {
		wg.Go(func() {
			s, err := call(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if err := s.Release(); err != nil {
				t.Error(err)
			}
		})
		redistest.Until(t, "the caller waits", func() bool {
			return waiting(t, rdb, "k") == i+1
		})
	}
	must(t, first.Release())
	wg.Wait()
	return order
}

// TestPermitsInTurn: over processes and within one, who came first is first; critical
// callers are before all others.
func TestPermitsInTurn(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	var all []*semaphore.Semaphore
	for i := range 3 {
		all = append(all, newSemaphore(t, rdb, 1, patient(), limiter.WithProcess(fmt.Sprint(i))))
	}
	var callers []func(context.Context) (*semaphore.Permit, error)
	for i := range 9 {
		callers = append(callers, func(ctx context.Context) (*semaphore.Permit, error) {
			if i == 4 || i == 7 {
				ctx = limiter.Critical(ctx)
			}
			return all[i%3].Acquire(ctx, "k")
		})
	}
	order := waiters(t, rdb, acquire(t, all[0], "k"), callers)
	if got := fmt.Sprint(order); got != "[4 7 0 1 2 3 5 6 8]" {
		t.Errorf("order %s", got)
	}
	// While somebody waits nobody passes by.
	s := acquire(t, all[0], "k")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waits := make(chan error, 1)
	go func() {
		_, err := all[1].Acquire(ctx, "k")
		waits <- err
	}()
	redistest.Until(t, "somebody waits", func() bool { return waiting(t, rdb, "k") == 1 })
	// One who leaves makes room for those behind, here and in Redis.
	cancel()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that was cancelled: %v", err)
	}
	redistest.Until(t, "the place is given up", func() bool { return waiting(t, rdb, "k") == 0 })
	must(t, s.Release())
	must(t, acquire(t, all[2], "k").Release())
}

// TestBadSemaphore: what is rejected, by name.
func TestBadSemaphore(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	var none *redis.Client
	for want, c := range map[string]struct {
		rdb  redis.UniversalClient
		n    int
		opts []semaphore.Option
	}{
		"client is nil":          {nil, 1, nil},
		"client is nil:":         {none, 1, nil},
		"permits is 0":           {rdb, 0, nil},
		"permits is -1":          {rdb, -1, nil},
		"TTL is 0s":              {rdb, 1, []semaphore.Option{semaphore.WithTTL(0)}},
		"TTL is 2h":              {rdb, 1, []semaphore.Option{semaphore.WithTTL(2 * time.Hour)}},
		"critical headroom is 0": {rdb, 1, []semaphore.Option{semaphore.WithCriticalHeadroom(0.5)}},
		"critical headroom is 1": {rdb, 2, []semaphore.Option{semaphore.WithCriticalHeadroom(1)}},
		"option is nil":          {rdb, 1, []semaphore.Option{nil}},
		"prefix is":              {rdb, 1, []semaphore.Option{limiter.WithPrefix("")}},
		"FailureRatio is 2":      {rdb, 1, []semaphore.Option{limiter.WithBreaker(breaker.Settings{FailureRatio: 2})}},
	} {
		if s, err := semaphore.New(c.rdb, c.n, c.opts...); s != nil || !errors.Is(err, limiter.ErrInvalidConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	c := newSemaphore(t, rdb, 1)
	if _, err := c.Acquire(t.Context(), ""); !errors.Is(err, limiter.ErrInvalidKey) {
		t.Errorf("an empty key: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Acquire(ended, "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context: %v", err)
	}
	must(t, c.Close())
	must(t, c.Close())
	if _, err := c.TryAcquire(t.Context(), "k"); !errors.Is(err, limiter.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestWaiterInAnOutage: one who waits when Redis goes away is granted what this process has
// left, and nothing is lost by it.
func TestWaiterInAnOutage(t *testing.T) {
	proxy, rdb := redistest.Behind(t, redistest.Start(t), redis.Options{MaxRetries: -1, DialerRetries: 1})
	s, err := semaphore.New(rdb, 1, quiet, fast, patient(), semaphore.WithTTL(time.Hour))
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	held, err := s.Acquire(t.Context(), "k")
	must(t, err)
	got := make(chan *semaphore.Permit, 1)
	go func() {
		p, err := s.Acquire(context.Background(), "k")
		if err != nil {
			t.Error(err)
		}
		got <- p
	}()
	redistest.Until(t, "somebody waits", func() bool {
		n, err := rdb.ZCard(t.Context(), "holdfast:v1:permits:{k}").Result()
		return err == nil && n > 1
	})
	proxy.Set(faultproxy.Mode{Refuse: true})
	proxy.Reset()
	must(t, held.Release())
	select {
	case p := <-got:
		if p == nil || !p.Allowed || p.Source != limiter.SourceLocal {
			t.Fatalf("%+v", p)
		}
		must(t, p.Release())
	case <-time.After(time.Minute):
		t.Fatal("the one who waits gets nothing")
	}
	again, err := s.TryAcquire(t.Context(), "k")
	if err != nil || !again.Allowed || again.Source != limiter.SourceLocal {
		t.Fatalf("%+v, %v", again, err)
	}
	must(t, again.Release())
}

// TestPermitsForKeys: each key has as many permits as the function says, in Redis and without it.
func TestPermitsForKeys(t *testing.T) {
	t.Parallel()
	most := func(_ context.Context, key string) int { return map[string]int{"gold": 5, "broken": -1, "one": 1}[key] }
	nowhere := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer nowhere.Close()
	for name, rdb := range map[string]*redis.Client{"redis": redistest.Client(t, redistest.Start(t)), "down": nowhere} {
		s := newSemaphore(t, rdb, 2, patient(), limiter.WithShare(1), semaphore.WithCriticalHeadroom(0.2), semaphore.WithPermitsFor(most))
		for key, want := range map[string]int{"gold": 4, "other": 1, "one": 1} { // the rest is for critical calls
			n := 0
			for range 10 {
				p, err := s.TryAcquire(t.Context(), key)
				must(t, err)
				if p.Allowed {
					n++
				}
			}
			if n != want {
				t.Errorf("%s: %d permits for %s, want %d", name, n, key, want)
			}
		}
		if p, err := s.TryAcquire(limiter.Critical(t.Context()), "gold"); err != nil || !p.Allowed {
			t.Errorf("%s: a critical caller: %+v, %v", name, p, err)
		}
		if _, err := s.TryAcquire(t.Context(), "broken"); !errors.Is(err, limiter.ErrInvalidConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
