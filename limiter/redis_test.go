package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limiter/limitertest"
)

func TestConformanceRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	made := 0
	limitertest.Run(t, func(t *testing.T, limit limiter.Limit) limiter.Allower {
		made++
		return newLimiter(t, redistest.Client(t, srv), limit, patient(), limiter.WithPrefix(fmt.Sprint("c", made)))
	})
}

func TestConformanceLocal(t *testing.T) {
	t.Parallel()
	limitertest.Run(t, func(t *testing.T, limit limiter.Limit) limiter.Allower {
		lim, err := limiter.NewLocal(limit)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lim.Close() })
		return lim
	})
}

func TestConformanceRedisDown(t *testing.T) {
	t.Parallel()
	limitertest.Run(t, func(t *testing.T, limit limiter.Limit) limiter.Allower { return down(t, limit) })
}

// state reads everything that Redis holds, with the absolute times of expiry.
func state(t *testing.T, rdb *redis.Client) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, key := range rdb.Keys(t.Context(), "*").Val() {
		all[key] = fmt.Sprintf("%x until %v", rdb.Dump(t.Context(), key).Val(), rdb.PExpireTime(t.Context(), key).Val())
	}
	return all
}

// writes counts the commands by which scripts change keys.
func writes(t *testing.T, srv *redisproc.Server) (n int64) {
	t.Helper()
	for _, command := range []string{"set", "zadd", "zremrangebyscore", "zremrangebyrank", "pexpire"} {
		n += redistest.Calls(t, srv, command)
	}
	return n
}

func same(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

func TestDeniedChangesNothingInRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := redistest.Admin(t, srv)
	for _, limit := range limitertest.Limits(limiter.PerHour(10)) {
		lim := newLimiter(t, redistest.Client(t, srv), limit, patient())
		if _, err := lim.AllowN(t.Context(), "k", 7); err != nil {
			t.Fatal(err)
		}
		before, wrote := state(t, admin), writes(t, srv)
		for _, n := range []int{0, 4, 10} {
			if res, err := lim.AllowN(t.Context(), "k", n); err != nil || res.Allowed != (n == 0) {
				t.Fatalf("%v: a cost of %d with 3 remaining: %+v, %v", limit, n, res, err)
			}
			if _, err := lim.Peek(t.Context(), "never used"); err != nil {
				t.Fatal(err)
			}
		}
		if after := state(t, admin); !same(before, after) {
			t.Errorf("%v: a denied request changed %v to %v", limit, before, after)
		}
		if n := writes(t, srv) - wrote; n != 0 {
			t.Errorf("%v: %d writes by requests that were denied", limit, n)
		}
	}
}

// TestEveryKeyExpires, also one that lost its TTL: it gets one with the next window, or
// the next second.
func TestEveryKeyExpires(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := redistest.Admin(t, srv)
	for _, limit := range limitertest.Limits(limiter.PerHour(10)) {
		lim := newLimiter(t, redistest.Client(t, srv), limit, patient())
		for range 2 {
			if res, err := lim.Allow(t.Context(), "k"); err != nil || !res.Allowed {
				t.Fatalf("%v: %+v, %v", limit, res, err)
			}
			for _, key := range admin.Keys(t.Context(), "*").Val() {
				if ttl := admin.PTTL(t.Context(), key).Val(); ttl < time.Second || ttl > 3*time.Hour {
					t.Errorf("%v: the key %s lives for %v", limit, key, ttl)
				}
			}
		}
		must(t, admin.FlushAll(t.Context()).Err())
	}
	for _, limit := range limitertest.Limits(limiter.PerSecond(1000)) {
		lim := newLimiter(t, redistest.Client(t, srv), limit, patient())
		_, err := lim.Allow(t.Context(), "k")
		must(t, err)
		key := admin.Keys(t.Context(), "holdfast:v2:*").Val()[0]
		must(t, admin.Persist(t.Context(), key).Err())
		until(t, "the key expires again", func() bool {
			_, err := lim.Allow(t.Context(), "k")
			return err == nil && admin.PTTL(t.Context(), key).Val() > 0
		})
		must(t, admin.FlushAll(t.Context()).Err())
	}
}

func TestRedisTypes(t *testing.T) {
	srv := redistest.Start(t)
	admin := redistest.Admin(t, srv)
	for limit, want := range map[limiter.Limit]string{
		limiter.FixedWindow(limiter.PerHour(9)):           "string",
		limiter.SlidingWindowLog(limiter.PerHour(9)):      "zset",
		limiter.SlidingWindowCounter(limiter.PerHour(9)):  "string",
		limiter.TokenBucket(limiter.PerHour(9), 9):        "string",
		limiter.LeakyBucket(limiter.PerHour(9), 9):        "string",
		limiter.LeakyBucketShaping(limiter.PerHour(9), 9): "string",
		limiter.GCRA(limiter.PerHour(9), 9):               "string",
	} {
		lim := newLimiter(t, redistest.Client(t, srv), limit, patient())
		if _, err := lim.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		keys := admin.Keys(t.Context(), "*").Val()
		if len(keys) != 1 || !strings.HasSuffix(keys[0], ":{k}") {
			t.Errorf("%v: keys %q", limit, keys)
		}
		if got := admin.Type(t.Context(), keys[0]).Val(); got != want {
			t.Errorf("%v is kept in a %s, want a %s", limit, got, want)
		}
		must(t, admin.FlushAll(t.Context()).Err())
	}
}

// TestForeignState: a key that something else uses is an error that names it,
// not a reason to fall back, and does not count against Redis.
func TestForeignState(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := redistest.Admin(t, srv)
	for _, limit := range limitertest.Limits(limiter.PerHour(10)) {
		lim := newLimiter(t, redistest.Client(t, srv), limit, patient())
		if _, err := lim.Allow(t.Context(), "customer:7"); err != nil {
			t.Fatal(err)
		}
		key := admin.Keys(t.Context(), "*").Val()[0]
		for what, spoil := range map[string]func() error{
			"another type": func() error { return admin.SAdd(t.Context(), key, "x").Err() },
			"other text":   func() error { return admin.Set(t.Context(), key, "what is this", 0).Err() },
			"other fields": func() error { return admin.HSet(t.Context(), key, "t", "1e300", "v", "nan", "l", "x").Err() },
		} {
			must(t, admin.Del(t.Context(), key).Err())
			must(t, spoil())
			for range 20 {
				_, err := lim.Allow(t.Context(), "customer:7")
				if !errors.Is(err, limiter.ErrState) || !strings.Contains(err.Error(), `"customer:7"`) {
					t.Fatalf("%v, %s: %v", limit, what, err)
				}
			}
		}
		if res, err := lim.Allow(t.Context(), "another"); err != nil || res.Source != limiter.SourceRedis {
			t.Errorf("%v: another key: %+v, %v", limit, res, err)
		}
		must(t, admin.FlushAll(t.Context()).Err())
	}
}

func TestBadArgumentsSendNothing(t *testing.T) {
	srv := redistest.Start(t)
	lim := newLimiter(t, redistest.Client(t, srv), good, patient())
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	_, _ = lim.AllowN(t.Context(), "", 1)
	_, _ = lim.AllowN(t.Context(), "k", -100)
	_, _ = lim.AllowN(t.Context(), "k", 11)
	_, _ = lim.Allow(t.Context(), "k", limiter.GCRA(limiter.PerSecond(0), 1))
	_, _ = lim.Allow(cancelled, "k")
	if n := redistest.Calls(t, srv, "evalsha") + redistest.Calls(t, srv, "eval"); n != 0 {
		t.Errorf("%d scripts were run", n)
	}
}

func TestScriptIsLoadedOnce(t *testing.T) {
	srv := redistest.Start(t)
	lim := newLimiter(t, redistest.Client(t, srv), good, patient())
	for range 10 {
		if _, err := lim.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	if n := redistest.Calls(t, srv, "eval"); n != 1 {
		t.Errorf("the script was sent %d times", n)
	}
	if n := redistest.Calls(t, srv, "evalsha"); n != 10 {
		t.Errorf("%d calls by name for 10 decisions", n)
	}
}

func TestCallLimitKeepsState(t *testing.T) {
	srv := redistest.Start(t)
	for i, raise := range [][2]limiter.Limit{
		{limiter.FixedWindow(limiter.PerHour(10)), limiter.FixedWindow(limiter.PerHour(20))},
		{limiter.SlidingWindowLog(limiter.PerHour(10)), limiter.SlidingWindowLog(limiter.PerHour(20))},
		{limiter.SlidingWindowCounter(limiter.PerHour(10)), limiter.SlidingWindowCounter(limiter.PerHour(20))},
		{limiter.TokenBucket(limiter.PerHour(10), 10), limiter.TokenBucket(limiter.PerHour(10), 20)},
		{limiter.LeakyBucket(limiter.PerHour(10), 10), limiter.LeakyBucket(limiter.PerHour(10), 20)},
		{limiter.GCRA(limiter.PerHour(10), 10), limiter.GCRA(limiter.PerHour(10), 20)},
	} {
		lim := newLimiter(t, redistest.Client(t, srv), raise[0], patient(), limiter.WithPrefix(fmt.Sprint("tier", i)))
		if res, err := lim.AllowN(t.Context(), "k", 8); err != nil || !res.Allowed {
			t.Fatalf("%+v, %v", res, err)
		}
		res, err := lim.Peek(t.Context(), "k", raise[1])
		if err != nil || res.Remaining != 12 || res.Limit != raise[1] {
			t.Errorf("%v raised to %v after 8: %+v, %v", raise[0], raise[1], res, err)
		}
	}
}
