package sampled_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/sampled"
)

func newSampled(t *testing.T, rdb redis.UniversalClient, rate limiter.Rate, opts ...sampled.Option) *sampled.Limiter {
	t.Helper()
	s, err := sampled.New(rdb, rate, append([]sampled.Option{quiet, fast, limiter.WithExpectedProcesses(1)}, opts...)...)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestSampledBasics: arguments, sources, and what stays in Redis.
func TestSampledBasics(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	s := newSampled(t, rdb, limiter.PerSecond(100), sampled.WithInterval(100*time.Millisecond), limiter.WithBudget(time.Second))
	if s.Limit() != limiter.TokenBucket(limiter.PerSecond(100), 10) {
		t.Errorf("the limit is %v", s.Limit())
	}
	ctx := t.Context()
	for _, c := range []struct {
		key  string
		n    int
		want error
	}{{"", 1, limiter.ErrInvalidKey}, {"k", -1, limiter.ErrInvalidCost}, {"k", 11, limiter.ErrCostExceedsLimit}} {
		if res, err := s.AllowN(ctx, c.key, c.n); !errors.Is(err, c.want) || res.Allowed {
			t.Errorf("%q, %d: %+v, %v", c.key, c.n, res, err)
		}
	}
	if res, err := s.AllowN(ctx, "fresh", 0); err != nil || !res.Allowed || res.Remaining != 10 {
		t.Errorf("a look: %+v, %v", res, err)
	}
	if res, err := s.Allow(ctx, "k"); err != nil || !res.Allowed || res.Source != limiter.SourceLocal {
		t.Errorf("the first one: %+v, %v", res, err)
	}
	redistest.Until(t, "the fleet's rate is known", func() bool {
		res, err := s.Allow(ctx, "k")
		must(t, err)
		if res.Allowed == (res.RetryAfter > 0) || res.Remaining < 0 || res.Limit != s.Limit() {
			t.Fatalf("%+v", res)
		}
		return res.Source == limiter.SourceSampled
	})
	if h := s.Health(); h.Processes != 1 || h.Share != 1 || h.Decisions[limiter.SourceLocal]+h.Decisions[limiter.SourceSampled] == 0 || h.LocalKeys != 1 {
		t.Errorf("%+v", h)
	}
	// An idle one forgets its keys, leaves the reports and runs nothing.
	redistest.Until(t, "it leaves when nobody asks", func() bool { return len(rdb.Keys(ctx, "*").Val()) == 0 })
	if res, err := s.Allow(ctx, "k"); err != nil || !res.Allowed {
		t.Errorf("after a pause: %+v, %v", res, err)
	}
	redistest.Until(t, "it reports again", func() bool { return len(rdb.Keys(ctx, "*sampled*").Val()) > 0 })
	must(t, s.Close())
	must(t, s.Close())
	if keys := rdb.Keys(ctx, "*").Val(); len(keys) > 0 {
		t.Errorf("left in Redis: %v", keys)
	}
	if _, err := s.Allow(ctx, "k"); !errors.Is(err, limiter.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestSampledFollowsTheTop: what is asked for most is followed, however many keys
// there are, and memory is bounded.
func TestSampledFollowsTheTop(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	s := newSampled(t, rdb, limiter.PerSecond(1000), sampled.WithInterval(100*time.Millisecond), sampled.WithTopKeys(20), sampled.WithMaxLocalKeys(100), limiter.WithBudget(time.Second))
	ctx := t.Context()
	for i := range 1000 {
		if _, err := s.Allow(ctx, fmt.Sprint("first come ", i)); err != nil {
			t.Fatal(err)
		}
	}
	flood := 0
	redistest.Until(t, "the hot keys are followed", func() bool {
		followed := 0
		for i := range 10 {
			for range 20 {
				res, err := s.Allow(ctx, fmt.Sprint("hot ", i))
				must(t, err)
				if res.Source == limiter.SourceSampled {
					followed++
				}
			}
		}
		for range 50 {
			flood++
			if _, err := s.Allow(ctx, fmt.Sprint("cold ", flood)); err != nil {
				t.Fatal(err)
			}
		}
		return followed == 200
	})
	if n := s.Health().LocalKeys; n > 120 {
		t.Errorf("%d keys remembered", n)
	}
	if n := rdb.HLen(ctx, "holdfast:v1:sampled:{all}").Val(); n > 1+20 { // and the era
		t.Errorf("%d keys reported", n)
	}
}

// TestSampledBuriesTheDead: what a process asked for that died does not count for
// ever.
func TestSampledBuriesTheDead(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	ctx := t.Context()
	// A process that reported 50,000 per second long ago, and was not heard of since.
	long := float64(time.Now().Add(-time.Minute).UnixMicro())
	must(t, rdb.ZAdd(ctx, "holdfast:v1:sampled:{all}:p", redis.Z{Score: long, Member: "4711"}).Err())
	must(t, rdb.HSet(ctx, "holdfast:v1:sampled:{all}:4711", "", 1, "k", 50_000_000).Err())
	must(t, rdb.HSet(ctx, "holdfast:v1:sampled:{all}", "", 1, "k", 50_000_000).Err())
	s := newSampled(t, rdb, limiter.PerSecond(1000), sampled.WithInterval(100*time.Millisecond), limiter.WithBudget(time.Second))
	redistest.Until(t, "the dead one is forgotten", func() bool {
		if _, err := s.Allow(ctx, "k"); err != nil {
			t.Fatal(err)
		}
		sum, _ := rdb.HGet(ctx, "holdfast:v1:sampled:{all}", "k").Int64()
		return sum > 0 && sum < 50_000_000 && s.Health().Processes == 1
	})
	if n := rdb.Exists(ctx, "holdfast:v1:sampled:{all}:4711").Val(); n != 0 {
		t.Error("what it reported is still there")
	}
}

// TestSampledInAnOutage: no decision fails, the policy decides, and Redis is back in the game when it is back.
// TestSampledOutages says how much is admitted meanwhile, and that no decision waits.
func TestSampledInAnOutage(t *testing.T) {
	for _, policy := range []fallback.Policy{fallback.Local, fallback.Open, fallback.Closed} {
		t.Run(policy.String(), func(t *testing.T) {
			srv := redistest.Start(t)
			opts := []sampled.Option{sampled.WithInterval(100 * time.Millisecond), limiter.WithFallback(policy)}
			if policy == fallback.Local {
				opts = append(opts, limiter.WithShare(0.5))
			}
			s := newSampled(t, redistest.Client(t, srv), limiter.PerSecond(100), opts...)
			sampled := func() bool {
				res, err := s.Allow(t.Context(), "k")
				if err != nil && policy != fallback.Closed {
					t.Fatal(err)
				}
				return err == nil && res.Source == limiter.SourceSampled
			}
			redistest.Until(t, "Redis is known", sampled)
			must(t, srv.Freeze())
			redistest.Until(t, "the policy decides", func() bool {
				res, err := s.Allow(t.Context(), "k")
				switch policy {
				case fallback.Closed:
					return errors.Is(err, limiter.ErrUnavailable) && res.Source == limiter.SourceClosed && !res.Allowed
				case fallback.Open:
					must(t, err)
					return res.Source == limiter.SourceOpen && res.Allowed
				default:
					must(t, err)
					return res.Source == limiter.SourceLocal
				}
			})
			must(t, srv.Thaw())
			redistest.Until(t, "Redis is known again", sampled)
		})
	}
}

// TestSampledConcurrently: many goroutines and keys at once.
func TestSampledConcurrently(t *testing.T) {
	s := newSampled(t, redistest.Client(t, redistest.Start(t)), limiter.PerSecond(100), sampled.WithInterval(100*time.Millisecond), sampled.WithTopKeys(50))
	var calls atomic.Int64
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			for j := range 500 {
				if _, err := s.AllowN(t.Context(), fmt.Sprint("k", (i*j)%120), 1+j%3); err != nil {
					t.Error(err)
				}
				calls.Add(1)
			}
		})
	}
	wg.Wait()
	_ = s.Health()
}

// TestBadSampled: what is rejected, by name.
func TestBadSampled(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	for want, opt := range map[string]sampled.Option{
		"interval is 1ms":     sampled.WithInterval(time.Millisecond),
		"interval is 2m":      sampled.WithInterval(2 * time.Minute),
		"top keys is 0":       sampled.WithTopKeys(0),
		"max local keys is 0": sampled.WithMaxLocalKeys(0),
		"share is 2":          limiter.WithShare(2),
		"option is nil":       nil,
	} {
		if _, err := sampled.New(rdb, limiter.PerSecond(1), opt); !errors.Is(err, limiter.ErrInvalidConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	for _, rate := range []limiter.Rate{{}, limiter.PerSecond(0), limiter.PerSecond(-1), limiter.Per(1, -1), limiter.Per(1, 0), limiter.Per(1, 1500)} {
		if _, err := sampled.New(rdb, rate); !errors.Is(err, limiter.ErrInvalidConfig) {
			t.Errorf("%v: %v", rate, err)
		}
	}
	if _, err := sampled.New(nil, limiter.PerSecond(1)); !errors.Is(err, limiter.ErrInvalidConfig) {
		t.Errorf("no client: %v", err)
	}
}
