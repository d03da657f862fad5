package limiter_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestBlockIsObeyedUntilRedisKnows: a block that Redis does not know is obeyed by
// the process that asked for it, and sent when Redis is back.
func TestBlockIsObeyedUntilRedisKnows(t *testing.T) {
	proxy, rdb := behind(t, redistest.Start(t), redis.Options{MaxRetries: -1, DialerRetries: 1})
	// The breaker never opens: Redis is back before it could.
	never := limiter.WithBreaker(breaker.Settings{MinRequests: 1000, ConsecutiveFailures: 1000})
	lim := newLimiter(t, rdb, good, unhurried(), limiter.WithShare(1), never)
	other := newLimiter(t, rdb, good, unhurried(), limiter.WithShare(1))
	proxy.Set(faultproxy.Mode{Refuse: true})
	proxy.Reset()
	if err := lim.Block(t.Context(), "k", time.Hour); !errors.Is(err, limiter.ErrUnavailable) {
		t.Fatal(err)
	}
	proxy.Pass()
	for range 3 {
		if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Allowed || res.RetryAfter < 50*time.Minute {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	m := newMulti(t, limiter.Part{Name: "blocked", Limiter: lim}, limiter.Part{Name: "other", Limiter: newLimiter(t, rdb, good, unhurried(), limiter.WithPrefix("other"))})
	if res, err := m.Allow(t.Context(), "k"); err != nil || res.Allowed || res.Denied != "blocked" {
		t.Errorf("in a Multi: %+v, %v", res, err)
	}
	n := 0
	until(t, "the others know", func() bool {
		n++
		_, err := lim.Allow(t.Context(), fmt.Sprint("charged", n))
		must(t, err)
		res, err := other.Peek(t.Context(), "k")
		return err == nil && !res.Allowed && res.Source == limiter.SourceRedis
	})
	// The others can know before the answer of Redis has arrived here.
	until(t, "Redis is asked", func() bool {
		res, err := lim.Allow(t.Context(), "k")
		if err != nil || res.Allowed {
			t.Fatalf("when Redis knows: %+v, %v", res, err)
		}
		return res.Source != limiter.SourceLocal
	})
	must(t, lim.Reset(t.Context(), "k"))
	if res, err := lim.Allow(t.Context(), "k"); err != nil || !res.Allowed {
		t.Errorf("after a reset: %+v, %v", res, err)
	}
}

// TestBlockIsObeyedInAnOutage: by the process that made it, whatever its policy, and also where Redis knows it.
func TestBlockIsObeyedInAnOutage(t *testing.T) {
	for _, policy := range []fallback.Policy{fallback.Local, fallback.Open} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			lim, _ := simulatedLimiter(t, r, "a", limiter.FixedWindow(limiter.PerHour(100)), limiter.WithFallback(policy))
			must(t, lim.Block(t.Context(), "k", time.Minute))
			cut(t, r, "a", lim)
			if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Allowed || res.Source != limiter.SourceLocal || res.RetryAfter < 30*time.Second {
				t.Errorf("%v: %+v, %v", policy, res, err)
			}
			time.Sleep(time.Minute)
			if res, err := lim.Allow(t.Context(), "k"); err != nil || !res.Allowed {
				t.Errorf("%v: afterwards %+v, %v", policy, res, err)
			}
		})
	}
}

// TestBlockEndsForLargeCosts: what a process could not admit by its claim may be asked for again when its block
// ends, and not when the claim would have produced as much.
func TestBlockEndsForLargeCosts(t *testing.T) {
	for _, policy := range []fallback.Policy{fallback.Open, fallback.Local} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			lim, _ := simulatedLimiter(t, r, "a", limiter.GCRA(limiter.PerMinute(60), 60), limiter.WithFallback(policy), limiter.WithExpectedProcesses(10))
			cut(t, r, "a", lim)
			if err := lim.Block(t.Context(), "k", time.Minute); !errors.Is(err, limiter.ErrUnavailable) {
				t.Fatal(err)
			}
			for _, cost := range []limiter.CallOption{limiter.Cost(3), limiter.Cost(60), limiter.AtMost(60), limiter.AtMost(1000)} {
				res, err := lim.Allow(t.Context(), "k", cost)
				if err != nil || res.Allowed || res.RetryAfter < 50*time.Second || res.RetryAfter > time.Minute {
					t.Errorf("%v, %T(%v): %+v, %v", policy, cost, cost, res, err)
				}
			}
		})
	}
}

// TestBlockIsSentWithoutOtherKeys: a process whose only key is
// blocked tells Redis of the block all the same, and its breaker closes by that.
func TestBlockIsSentWithoutOtherKeys(t *testing.T) {
	proxy, rdb := behind(t, redistest.Start(t), redis.Options{MaxRetries: -1, DialerRetries: 1})
	lim := newLimiter(t, rdb, good, unhurried(), limiter.WithShare(1))
	other := newLimiter(t, rdb, good, unhurried(), limiter.WithShare(1))
	cutOff(t, proxy, lim)
	if err := lim.Block(t.Context(), "k", time.Hour); !errors.Is(err, limiter.ErrUnavailable) {
		t.Fatal(err)
	}
	proxy.Pass()
	until(t, "the others know", func() bool {
		if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Allowed {
			t.Fatalf("%+v, %v", res, err)
		}
		res, err := other.Peek(t.Context(), "k")
		return err == nil && !res.Allowed && res.Source == limiter.SourceRedis
	})
	// The probe that brought the block is not over when others see it.
	until(t, "the breaker closes", func() bool { return stateOf(lim)() == breaker.Closed })
}

// TestBlockKeepsWhatIsUsed: a block by a fast limit does not shorten the life of what a slow limit of the calls has charged.
func TestBlockKeepsWhatIsUsed(t *testing.T) {
	srv := redistest.Start(t)
	rdb := redistest.Client(t, srv)
	slow, fast := limiter.PerHour(10), limiter.PerSecond(100)
	for _, c := range [][2]limiter.Limit{
		{limiter.GCRA(slow, 10), limiter.GCRA(fast, 100)},
		{limiter.TokenBucket(slow, 10), limiter.TokenBucket(fast, 100)},
		{limiter.LeakyBucket(slow, 10), limiter.LeakyBucket(fast, 100)},
		{limiter.LeakyBucketShaping(slow, 10), limiter.LeakyBucketShaping(fast, 100)},
		{limiter.FixedWindow(slow), limiter.FixedWindow(fast)},
		{limiter.SlidingWindowCounter(slow), limiter.SlidingWindowCounter(fast)},
		{limiter.SlidingWindowLog(slow), limiter.SlidingWindowLog(fast)},
	} {
		t.Run(c[0].Algorithm(), func(t *testing.T) {
			lim := newLimiter(t, rdb, c[1], patient())
			if res, err := lim.Allow(t.Context(), "k", c[0], limiter.Cost(10)); err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
			key := rdb.Keys(t.Context(), "*{k}").Val()[0]
			before := rdb.PTTL(t.Context(), key).Val()
			must(t, lim.Block(t.Context(), "k", time.Second))
			if after := rdb.PTTL(t.Context(), key).Val(); before-after > time.Minute {
				t.Errorf("%s lives for %v, and for %v before the block", key, after, before)
			}
			must(t, rdb.FlushAll(t.Context()).Err())
		})
	}
}
