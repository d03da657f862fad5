package demo

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limiter/limitertest"
)

func TestMain(m *testing.M) { redistest.VerifyNoLeaks(m) }

// TestPeekOnTheEmbeddedRedis: it has scripts that only read, but they must not ask for
// the time; those that may write are used then.
func TestPeekOnTheEmbeddedRedis(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	t.Setenv("PATH", "")
	t.Setenv("HOLDFAST_REDIS_SERVER", "")
	server, err := StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(server.Options)
	defer rdb.Close()
	lim, err := limiter.New(rdb, limiter.GCRA(limiter.PerHour(1), 5), limiter.WithBudget(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close()
	for want := 5; want > 2; want-- {
		if res, err := lim.Peek(t.Context(), "k"); err != nil || res.Source != limiter.SourceRedis || res.Remaining != want {
			t.Errorf("look: %+v, %v, want %d remaining", res, err, want)
		}
		if res, err := lim.Allow(t.Context(), "k"); err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
	}
}

// TestEmbeddedRedisConforms: its Lua is another implementation. It differs where locals are
// assigned in one statement that also reads them.
func TestEmbeddedRedisConforms(t *testing.T) {
	limitertest.Run(t, func(t *testing.T, limit limiter.Limit) limiter.Allower {
		server, err := StartEmbedded()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
		rdb := redis.NewClient(server.Options)
		t.Cleanup(func() { _ = rdb.Close() })
		lim, err := limiter.New(rdb, limit, limiter.WithBudget(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lim.Close() })
		return lim
	})
}

// TestEmbeddedRedisCountsTheWindowBefore: what a counter has admitted before the border of
// two windows counts after it.
func TestEmbeddedRedisCountsTheWindowBefore(t *testing.T) {
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	lim, err := limiter.New(rdb, limiter.SlidingWindowCounter(limiter.PerHour(10)), limiter.WithBudget(5*time.Second), limiter.WithoutDenialCache())
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close()
	border := time.Now().Truncate(time.Hour)
	admitted := 0
	for _, now := range []time.Time{border.Add(-time.Second), border} {
		server.SetTime(now)
		for range 10 {
			res, err := lim.Allow(t.Context(), "k")
			if err != nil || res.Source != limiter.SourceRedis {
				t.Fatalf("%+v, %v", res, err)
			}
			if res.Allowed {
				admitted++
			}
		}
	}
	if admitted != 10 {
		t.Errorf("%d admitted around the border, want 10", admitted)
	}
}

// TestKilledEmbeddedRedisSaysNothing: callers of the embedded Redis whose scripts run while it is killed lose
// their connections, as they do when a process is killed. They hear no error of Redis.
func TestKilledEmbeddedRedisSaysNothing(t *testing.T) {
	server, err := StartEmbedded()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	opt := *server.Options
	opt.MaxRetries = -1
	rdb := redis.NewClient(&opt)
	defer rdb.Close()
	for range 10 {
		var wg sync.WaitGroup
		var ran atomic.Int64
		for range 8 {
			wg.Go(func() {
				for {
					switch err := rdb.Eval(t.Context(), "for i = 1, 100 do redis.call('incr', KEYS[1]) end return 1", []string{"k"}).Err(); {
					case err == nil:
						ran.Add(1)
					case redis.HasErrorPrefix(err, ""):
						t.Error(err)
						return
					default:
						return
					}
				}
			})
		}
		for deadline := time.Now().Add(time.Minute); ran.Load() < 100; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("no scripts ran within a minute")
			}
		}
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
	}
}
