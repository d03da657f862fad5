package limiter_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

// byPlan is a limit for each key by what it begins with.
func byPlan(asked *atomic.Int64) func(context.Context, string) limiter.Limit {
	return func(_ context.Context, key string) limiter.Limit {
		asked.Add(1)
		switch {
		case strings.HasPrefix(key, "gold:"):
			return limiter.GCRA(limiter.PerHour(5), 5)
		case strings.HasPrefix(key, "broken:"):
			return limiter.GCRA(limiter.PerHour(5), -1)
		}
		return limiter.Limit{}
	}
}

// TestLimitForKeys: each key has the limit that the function says, in Redis, without it and in
// one process; the limiter's own where it says none; and a limit of the call comes first.
func TestLimitForKeys(t *testing.T) {
	t.Parallel()
	own := limiter.GCRA(limiter.PerHour(2), 2)
	var asked atomic.Int64
	opt := limiter.WithLimitFor(byPlan(&asked))
	local, err := limiter.NewLocal(own, opt)
	must(t, err)
	for name, lim := range map[string]*limiter.Limiter{
		"redis": newLimiter(t, redistest.Client(t, redistest.Start(t)), own, patient(), opt), "down": down(t, own, opt), "local": local,
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			admitted := func(key string, opts ...limiter.CallOption) (n int) {
				for range 10 {
					before := asked.Load()
					res, err := lim.Allow(ctx, key, opts...)
					must(t, err)
					if n := asked.Load() - before; n > 1 {
						t.Errorf("the function was called %d times", n)
					}
					if res.Allowed {
						n++
					}
				}
				return n
			}
			for _, c := range []struct {
				key  string
				opts []limiter.CallOption
				want int
			}{
				{"gold:a", nil, 5},
				{"other", nil, 2},
				{"gold:b", []limiter.CallOption{limiter.GCRA(limiter.PerHour(3), 3)}, 3},
			} {
				if n := admitted(c.key, c.opts...); n != c.want {
					t.Errorf("%s: %d of 10 were admitted, want %d", c.key, n, c.want)
				}
			}
			if res, err := lim.Peek(ctx, "gold:c"); err != nil || res.Remaining != 5 || res.Limit.Burst() != 5 {
				t.Errorf("peek: %+v, %v", res, err)
			}
			r, err := lim.Reserve(ctx, "gold:c", limiter.Cost(4))
			if err != nil || !r.Allowed || r.Cancel(ctx) != nil {
				t.Errorf("reserve: %+v, %v", r, err)
			}
			if _, err := lim.AllowN(ctx, "gold:c", 6); !errors.Is(err, limiter.ErrCostExceedsLimit) {
				t.Errorf("more than the limit of the key: %v", err)
			}
			if _, err := lim.Allow(ctx, "broken:a"); !errors.Is(err, limiter.ErrInvalidConfig) {
				t.Errorf("a limit that breaks a rule: %v", err)
			}
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			before := asked.Load()
			var late *limiter.WaitError
			if _, err := lim.Wait(short, "gold:a"); !errors.As(err, &late) || asked.Load() != before+1 {
				t.Errorf("wait: %v, %d calls of the function", err, asked.Load()-before)
			}
			if err := lim.Reset(ctx, "gold:a"); err != nil && name != "down" {
				t.Error(err)
			}
			if res, err := lim.Allow(ctx, "gold:a"); err != nil || !res.Allowed || res.Remaining != 4 {
				t.Errorf("after a reset: %+v, %v", res, err)
			}
		})
	}
}

// TestLimitForKeysOfAMulti: the parts of a Multi ask for their keys, and a limit that breaks a rule
// is the error of its part and charges none.
func TestLimitForKeysOfAMulti(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client func() *redis.Client) {
		rdb := client()
		var asked atomic.Int64
		own := limiter.GCRA(limiter.PerHour(2), 2)
		user := newLimiter(t, rdb, own, patient(), limiter.WithPrefix("user"), limiter.WithLimitFor(byPlan(&asked)))
		all := newLimiter(t, rdb, limiter.GCRA(limiter.PerHour(100), 100), patient(), limiter.WithPrefix("all"))
		m, err := limiter.NewMulti(limiter.Part{Name: "user", Limiter: user}, limiter.Part{Name: "all", Limiter: all, Key: func(string) string { return "all" }})
		must(t, err)
		for key, want := range map[string]int{"gold:a": 5, "other": 2} {
			n := 0
			for range 10 {
				res, err := m.Allow(t.Context(), key)
				must(t, err)
				if res.Allowed {
					n++
				}
			}
			if n != want {
				t.Errorf("%s: %d of 10 were admitted, want %d", key, n, want)
			}
		}
		if _, err := m.Allow(t.Context(), "broken:a"); !errors.Is(err, limiter.ErrInvalidConfig) || !strings.Contains(err.Error(), "user") {
			t.Errorf("a limit that breaks a rule: %v", err)
		}
		if res, err := all.Peek(t.Context(), "all"); err != nil || res.Remaining != 93 {
			t.Errorf("%+v, %v", res, err)
		}
		must(t, m.Block(t.Context(), "gold:b", time.Hour))
		for key, want := range map[string]bool{"gold:b": false, "gold:c": true} {
			if res, err := m.Allow(t.Context(), key); err != nil || res.Allowed != want {
				t.Errorf("%s: %+v, %v", key, res, err)
			}
		}
		if err := m.Block(t.Context(), "gold:b", -1); err == nil || !strings.Contains(err.Error(), "user") {
			t.Errorf("a block of less than nothing: %v", err)
		}
		none, err := limiter.NewMulti(limiter.Part{Name: "all", Limiter: all, Key: func(string) string { return "all" }})
		must(t, err)
		if err := none.Block(t.Context(), "gold:b", time.Hour); !errors.Is(err, limiter.ErrInvalidConfig) {
			t.Errorf("no part can be blocked: %v", err)
		}
	})
}

// TestManyLimits: a limit for each of more keys than limits are kept ready for.
func TestManyLimits(t *testing.T) {
	lim, err := limiter.NewLocal(limiter.GCRA(limiter.PerHour(1), 1), limiter.WithLimitFor(func(_ context.Context, key string) limiter.Limit {
		return limiter.GCRA(limiter.PerHour(len(key)), len(key))
	}))
	must(t, err)
	for range 2 {
		for n := 1; n <= 1100; n += 7 {
			key := strings.Repeat("k", n)
			res, err := lim.Peek(t.Context(), key)
			if err != nil || res.Remaining != n {
				t.Fatalf("%d: %+v, %v", n, res, err)
			}
		}
	}
	for n := range 3000 {
		if _, err := lim.Peek(t.Context(), "k", limiter.GCRA(limiter.PerHour(n+1), 7)); err != nil {
			t.Fatal(err)
		}
	}
	if n := limiter.KeptLimits(lim); n > 1024 {
		t.Errorf("%d limits are kept", n)
	}
}

// TestWaitByTheLimitOfTheMoment: a caller that waits when the limit of its key changes is admitted by
// the new one, and not by one that is no more.
func TestWaitByTheLimitOfTheMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, fast := limiter.GCRA(limiter.PerHour(1), 1), limiter.GCRA(limiter.PerMinute(1), 1)
		var live atomic.Pointer[limiter.Limit]
		live.Store(&slow)
		lim, err := limiter.NewLocal(slow, limiter.WithLimitFor(func(context.Context, string) limiter.Limit { return *live.Load() }))
		must(t, err)
		defer lim.Close()
		if res, err := lim.Allow(t.Context(), "k"); err != nil || !res.Allowed {
			t.Fatalf("%+v, %v", res, err)
		}
		go func() {
			time.Sleep(time.Second)
			live.Store(&fast)
		}()
		res, err := lim.Wait(t.Context(), "k")
		if err != nil || res.Limit != fast {
			t.Errorf("%+v, %v", res, err)
		}
	})
}
