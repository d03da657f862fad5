package limiter_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limiter/limitertest"
)

// splittable are the limits whose keys can be split.
func splittable(rate limiter.Rate) []limiter.Limit {
	var out []limiter.Limit
	for _, l := range limitertest.Limits(rate) {
		if l.Algorithm() != "leaky bucket shaping" {
			out = append(out, l)
		}
	}
	return out
}

// TestKeyShardsAdmitTheLimit: the parts together are the limit, also where it
// cannot be divided evenly: not one more, and not one less.
func TestKeyShardsAdmitTheLimit(t *testing.T) {
	t.Parallel()
	for _, limit := range splittable(limiter.PerHour(101)) {
		t.Run(limit.Algorithm(), func(t *testing.T) {
			srv := redistest.Start(t)
			rdb := redistest.Client(t, srv)
			var fleet []*limiter.Limiter
			for range 2 {
				fleet = append(fleet, newLimiter(t, rdb, limit, limiter.WithShare(1), limiter.WithKeyShards(8), limiter.WithBudget(5*time.Second)))
			}
			var admitted atomic.Int64
			for _, a := range together(600, func(i int) (limiter.Result, error) {
				res, err := fleet[i%2].Allow(t.Context(), "hot")
				if res.Allowed {
					admitted.Add(1)
				}
				return res, err
			}) {
				if a.err != nil || a.res.Limit != limit || a.res.Allowed == (a.res.RetryAfter > 0) || a.res.Source != limiter.SourceRedis && a.res.Source != limiter.SourceCache {
					t.Fatalf("%+v, %v", a.res, a.err)
				}
			}
			if n := admitted.Load(); n != 101 {
				t.Errorf("%d admitted, want 101", n)
			}
			if names, err := rdb.Keys(t.Context(), "*:{hot%00*}*").Result(); err != nil || len(names) < 8 {
				t.Errorf("the parts in Redis: %v, %v", names, err)
			}
		})
	}
}

// TestKeyShardsAsASingleKey: what the operations say of a split key.
func TestKeyShardsAsASingleKey(t *testing.T) {
	onBoth(t, func(t *testing.T, client func() *redis.Client) {
		limit := limiter.GCRA(limiter.PerHour(40), 40)
		lim := newLimiter(t, client(), limit, limiter.WithShare(1), limiter.WithKeyShards(4))
		peek := func() limiter.Result {
			t.Helper()
			res, err := lim.Peek(t.Context(), "k")
			must(t, err)
			return res
		}
		if res := peek(); !res.Allowed || res.Remaining != 10 || res.ResetAfter != 0 || res.Limit != limit {
			t.Errorf("an unused key: %+v", res)
		}
		if res, err := lim.AllowN(t.Context(), "k", 11); !errors.Is(err, limiter.ErrCostExceedsLimit) || !strings.Contains(err.Error(), "at most 10") {
			t.Errorf("more than a part: %+v, %v", res, err)
		}
		for range 3 {
			if res, err := lim.AllowN(t.Context(), "k", 10); err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		// The one part left is found, whoever's turn it is.
		if res := peek(); !res.Allowed || res.Remaining != 10 {
			t.Errorf("after three parts of four: %+v", res)
		}
		admitted := 0
		for range 12 {
			res, err := lim.AllowN(t.Context(), "k", 10)
			must(t, err)
			if res.Allowed {
				admitted++
			}
		}
		if admitted != 1 {
			t.Errorf("%d admitted of the last part", admitted)
		}
		if res := peek(); res.Remaining != 0 {
			t.Errorf("a used key: %+v", res)
		}
		must(t, lim.Block(t.Context(), "k", 3*time.Hour))
		if res := peek(); res.Allowed || res.RetryAfter < 2*time.Hour {
			t.Errorf("a blocked key: %+v", res)
		}
		must(t, lim.Reset(t.Context(), "k"))
		if res := peek(); !res.Allowed || res.Remaining != 10 {
			t.Errorf("a key that was reset: %+v", res)
		}
		if res, err := lim.Allow(t.Context(), "k", limiter.Cost(3), limiter.GCRA(limiter.PerHour(8), 8)); !errors.Is(err, limiter.ErrCostExceedsLimit) {
			t.Errorf("more than a part of another limit: %+v, %v", res, err)
		}
		if res, err := lim.Allow(t.Context(), "k", limiter.GCRA(limiter.PerHour(3), 3)); !errors.Is(err, limiter.ErrInvalidConfig) {
			t.Errorf("a limit with fewer units than parts: %+v, %v", res, err)
		}
	})
}

// TestBrokenParts: the error of a part names the key.
func TestBrokenParts(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerHour(40), 40), limiter.WithShare(1), limiter.WithKeyShards(4))
	must(t, rdb.Del(t.Context(), "holdfast:v2:gcra:{broken%0001}").Err())
	for i := range 4 {
		must(t, rdb.HSet(t.Context(), fmt.Sprintf("holdfast:v2:gcra:{broken%%000%d}", i), "f", 1).Err())
	}
	if _, err := lim.Allow(t.Context(), "broken"); !errors.Is(err, limiter.ErrState) || !strings.Contains(err.Error(), `"broken"`) {
		t.Errorf("a broken key: %v", err)
	}
}

// TestKeyShardsRetryAfter: a caller who is alone, and sleeps for exactly what it
// was told, is admitted when it comes back.
func TestKeyShardsRetryAfter(t *testing.T) {
	t.Parallel()
	for _, limit := range splittable(limiter.Per(12, 200*time.Millisecond)) {
		t.Run(limit.Algorithm(), func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, client func() *redis.Client) {
				lim := newLimiter(t, client(), limit, limiter.WithShare(1), limiter.WithKeyShards(3), limiter.WithBudget(patience))
				denials := 0
				for i := 0; i < 200 && denials < 5; i++ {
					res, err := lim.AllowN(t.Context(), "k", 3)
					must(t, err)
					if res.Allowed {
						continue
					}
					denials++
					time.Sleep(res.RetryAfter)
					if again, err := lim.AllowN(t.Context(), "k", 3); err != nil || !again.Allowed {
						t.Fatalf("after %v: %+v, %v", res.RetryAfter, again, err)
					}
				}
				if denials == 0 {
					t.Error("never denied")
				}
			})
		})
	}
}

// TestKeyShardsInACluster: the parts are on every master, and a master that dies
// takes its parts along, not the key.
func TestKeyShardsInACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ReadTimeout: patience, WriteTimeout: patience})
	defer rdb.Close()
	limit := limiter.TokenBucket(limiter.PerHour(80), 80)
	lim := newLimiter(t, rdb, limit, patient(), limiter.WithKeyShards(16))
	admitted := 0
	for range 200 {
		res, err := lim.Allow(t.Context(), "hot")
		must(t, err)
		if res.Allowed {
			admitted++
		}
	}
	if admitted != 80 {
		t.Errorf("%d admitted, want 80", admitted)
	}
	for i, m := range c.Masters {
		if n := redistest.Calls(t, m, "set"); n < 10 {
			t.Errorf("master %d charged %d units of 80", i, n)
		}
	}
	must(t, c.Masters[0].Kill())
	other := newLimiter(t, rdb, limit, limiter.WithShare(1), limiter.WithKeyShards(16), limiter.WithPrefix("other"))
	by := map[limiter.Source]int{}
	for range 80 {
		res, err := other.Allow(t.Context(), "hot")
		must(t, err)
		if res.Allowed {
			by[res.Source]++
		}
	}
	if by[limiter.SourceRedis] == 0 || by[limiter.SourceLocal] == 0 || by[limiter.SourceRedis]+by[limiter.SourceLocal] > 80 {
		t.Errorf("with a master dead, admitted %v", by)
	}
}
