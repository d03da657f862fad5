package limiter_test

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/limiter"
)

// nowhere is a client whose server does not exist; nothing is dialled by New.
func nowhere(t testing.TB) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var good = limiter.GCRA(limiter.PerSecond(10), 10)

func TestNewRefuses(t *testing.T) {
	var none *redis.Client
	var cluster *redis.ClusterClient
	rdb := nowhere(t)
	for name, c := range map[string]struct {
		rdb   redis.UniversalClient
		limit limiter.Limit
		opts  []limiter.Option
		says  []string
	}{
		"nil client":          {nil, good, nil, []string{"client", "nil"}},
		"nil pointer":         {none, good, nil, []string{"client", "nil"}},
		"nil cluster":         {cluster, good, nil, []string{"client", "nil"}},
		"zero limit":          {rdb, limiter.Limit{}, nil, []string{"algorithm"}},
		"rate 0":              {rdb, limiter.GCRA(limiter.PerSecond(0), 1), nil, []string{"rate", "0", "at least 1"}},
		"rate -100":           {rdb, limiter.FixedWindow(limiter.PerSecond(-100)), nil, []string{"rate", "-100"}},
		"burst 0":             {rdb, limiter.TokenBucket(limiter.PerSecond(1), 0), nil, []string{"burst", "0"}},
		"burst overflow":      {rdb, limiter.TokenBucket(limiter.PerSecond(7), math.MaxInt), nil, []string{"burst", strconv.Itoa(math.MaxInt)}}, // 2^53, or in 32 bits the longest refill
		"window 0":            {rdb, limiter.SlidingWindowLog(limiter.Per(1, 0)), nil, []string{"period", "0s"}},
		"window negative":     {rdb, limiter.SlidingWindowLog(limiter.Per(1, -time.Second)), nil, []string{"period", "-1s"}},
		"window 1ns":          {rdb, limiter.FixedWindow(limiter.Per(1, 1)), nil, []string{"period", "1ns", "microseconds"}},
		"window 1000 years":   {rdb, limiter.FixedWindow(limiter.Per(1, math.MaxInt64/1000*1000)), nil, []string{"period", "366 days"}},
		"counter beyond 2^53": {rdb, limiter.SlidingWindowCounter(limiter.Per(200_000, 24*time.Hour)), nil, []string{"200000", "2^53"}},
		"prefix empty":        {rdb, good, []limiter.Option{limiter.WithPrefix("")}, []string{"prefix"}},
		"prefix with brace":   {rdb, good, []limiter.Option{limiter.WithPrefix("a{b")}, []string{"prefix", "a{b", "brace"}},
		"key shards 0":        {rdb, good, []limiter.Option{limiter.WithKeyShards(0)}, []string{"key shards", "0", "1 to 64"}},
		"key shards 65":       {rdb, good, []limiter.Option{limiter.WithKeyShards(65)}, []string{"key shards", "65", "1 to 64"}},
		"key shards > burst":  {rdb, good, []limiter.Option{limiter.WithKeyShards(11)}, []string{"key shards", "11", "burst"}},
		"key shards, shaping": {rdb, limiter.LeakyBucketShaping(limiter.PerSecond(10), 10), []limiter.Option{limiter.WithKeyShards(2)}, []string{"key shards", "shaping"}},
		"key shards > 2^53":   {rdb, limiter.GCRA(limiter.Per(1001, 24*time.Hour), 52_124), []limiter.Option{limiter.WithKeyShards(64)}, []string{"key shards", "2^53"}},
		"expected 0":          {rdb, good, []limiter.Option{limiter.WithExpectedProcesses(0)}, []string{"expected processes", "0", "1 to 1000000"}},
		"expected too many":   {rdb, good, []limiter.Option{limiter.WithExpectedProcesses(1_000_001)}, []string{"expected processes", "1000001", "1 to 1000000"}},
		"lease 0":             {rdb, good, []limiter.Option{limiter.WithLease(0, time.Second)}, []string{"lease", "0", "at least 1"}},
		"lease age 0":         {rdb, good, []limiter.Option{limiter.WithLease(1, 0)}, []string{"lease age", "0s"}},
		"lease age 2h":        {rdb, good, []limiter.Option{limiter.WithLease(1, 2*time.Hour)}, []string{"lease age", "2h"}},
		"lease > burst":       {rdb, good, []limiter.Option{limiter.WithLease(10, 100*time.Millisecond)}, []string{"lease", "10", "burst"}},
		"lease > part":        {rdb, good, []limiter.Option{limiter.WithLease(5, 100*time.Millisecond), limiter.WithKeyShards(2)}, []string{"lease", "5", "key shard"}},
		"lease > window":      {rdb, limiter.FixedWindow(limiter.PerSecond(10)), []limiter.Option{limiter.WithLease(11, time.Second)}, []string{"lease", "11", "units"}},
		"lease, shaping":      {rdb, limiter.LeakyBucketShaping(limiter.PerSecond(10), 10), []limiter.Option{limiter.WithLease(1, time.Second)}, []string{"lease", "shaping"}},
		"budget 0":            {rdb, good, []limiter.Option{limiter.WithBudget(0)}, []string{"budget", "0s"}},
		"budget 1h":           {rdb, good, []limiter.Option{limiter.WithBudget(time.Hour)}, []string{"budget", "1h"}},
		"policy":              {rdb, good, []limiter.Option{limiter.WithFallback(9)}, []string{"fallback", "9"}},
		"share 0":             {rdb, good, []limiter.Option{limiter.WithShare(0)}, []string{"share", "0"}},
		"share 2":             {rdb, good, []limiter.Option{limiter.WithShare(2)}, []string{"share", "2"}},
		"share NaN":           {rdb, good, []limiter.Option{limiter.WithShare(math.NaN())}, []string{"share", "NaN"}},
		"share Inf":           {rdb, good, []limiter.Option{limiter.WithShare(math.Inf(1))}, []string{"share", "Inf"}},
		"keys 0":              {rdb, good, []limiter.Option{limiter.WithMaxLocalKeys(0)}, []string{"max local keys", "0"}},
		"breaker":             {rdb, good, []limiter.Option{limiter.WithBreaker(breaker.Settings{FailureRatio: 2})}, []string{"FailureRatio", "2"}},
		"nil option":          {rdb, good, []limiter.Option{nil}, []string{"option"}},
	} {
		lim, err := limiter.New(c.rdb, c.limit, c.opts...)
		if lim != nil || !errors.Is(err, limiter.ErrInvalidConfig) {
			t.Errorf("%s: %v, want ErrInvalidConfig", name, err)
			continue
		}
		for _, part := range c.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", name, err, part)
			}
		}
	}
}

func TestCallLimitIsValidated(t *testing.T) {
	lim, err := limiter.New(nowhere(t), good)
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close()
	if _, err := lim.Allow(context.Background(), "k", limiter.GCRA(limiter.PerSecond(1), 0)); !errors.Is(err, limiter.ErrInvalidConfig) {
		t.Errorf("an invalid limit in a call: %v", err)
	}
}

// TestCallOptions: a cost and a limit of one call, in any order; the last one of a kind
// wins, and the zero limit is the limiter's own.
func TestCallOptions(t *testing.T) {
	own, tier := limiter.GCRA(limiter.PerHour(10), 10), limiter.GCRA(limiter.PerHour(20), 20)
	for i, c := range []struct {
		opts []limiter.CallOption
		want limiter.Limit
		left int
	}{
		{nil, own, 9},
		{[]limiter.CallOption{limiter.Limit{}}, own, 9},
		{[]limiter.CallOption{limiter.Cost(0)}, own, 10},
		{[]limiter.CallOption{limiter.Cost(3)}, own, 7},
		{[]limiter.CallOption{tier, limiter.Cost(3)}, tier, 17},
		{[]limiter.CallOption{limiter.Cost(3), tier}, tier, 17},
		{[]limiter.CallOption{tier, limiter.Cost(3), limiter.Limit{}, limiter.Cost(4)}, own, 6},
	} {
		lim, err := limiter.NewLocal(own)
		must(t, err)
		res, err := lim.Allow(t.Context(), "k", c.opts...)
		must(t, err)
		if !res.Allowed || res.Limit != c.want || res.Remaining != c.left {
			t.Errorf("case %d: %+v, want %v with %d remaining", i, res, c.want, c.left)
		}
		must(t, lim.Close())
	}
}

func TestClosed(t *testing.T) {
	ctx := context.Background()
	lim, err := limiter.New(nowhere(t), good)
	if err != nil {
		t.Fatal(err)
	}
	local, err := limiter.NewLocal(good)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := lim.Close(); err != nil {
			t.Error(err)
		}
		if err := local.Close(); err != nil {
			t.Error(err)
		}
	}
	_, err1 := lim.Allow(ctx, "k")
	_, err2 := local.Allow(ctx, "k")
	_, err3 := lim.Wait(ctx, "k")
	for _, err := range []error{err1, err2, err3, lim.Reset(ctx, "k"), local.Reset(ctx, "k"), lim.Block(ctx, "k", time.Second), local.Block(ctx, "k", time.Second)} {
		if !errors.Is(err, limiter.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

func TestCloseEndsAWait(t *testing.T) {
	local, err := limiter.NewLocal(limiter.GCRA(limiter.PerHour(1), 1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := local.Allow(context.Background(), "k"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := local.Wait(context.Background(), "k")
		ended <- err
	}()
	if err := local.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, limiter.ErrClosed) {
		t.Errorf("the wait ended with %v", err)
	}
}

func TestLimitPrintsAndCompares(t *testing.T) {
	for l, want := range map[limiter.Limit]string{
		limiter.TokenBucket(limiter.PerSecond(100), 200):             "token bucket 100/1s burst 200",
		limiter.FixedWindow(limiter.PerMinute(5)):                    "fixed window 5/1m",
		limiter.SlidingWindowLog(limiter.PerHour(5)):                 "sliding window log 5/1h",
		limiter.SlidingWindowCounter(limiter.Per(1, 90*time.Second)): "sliding window counter 1/1m30s",
		limiter.LeakyBucket(limiter.PerSecond(1), 5):                 "leaky bucket 1/1s burst 5",
		limiter.LeakyBucketShaping(limiter.PerSecond(1), 5):          "leaky bucket shaping 1/1s burst 5",
		limiter.GCRA(limiter.PerSecond(1), 5):                        "gcra 1/1s burst 5",
	} {
		if l.String() != want {
			t.Errorf("%q, want %q", l, want)
		}
	}
	if a, b := limiter.GCRA(limiter.PerSecond(10), 10), limiter.GCRA(limiter.PerMinute(600), 10); good != a || good == b {
		t.Error("limits compare by something else than their parameters")
	}
	if fw := limiter.FixedWindow(limiter.PerMinute(5)); fw.Burst() != 5 || fw.Rate() != limiter.PerMinute(5) {
		t.Errorf("%v: burst %d, rate %v", fw, fw.Burst(), fw.Rate())
	}
	for s, want := range map[limiter.Source]string{
		limiter.SourceRedis: "redis", limiter.SourceLocal: "local", limiter.SourceCache: "cache",
		limiter.SourceLease: "lease", limiter.SourceOpen: "open", limiter.SourceClosed: "closed", 99: "unknown source 99",
	} {
		if s.String() != want {
			t.Errorf("%q, want %q", s, want)
		}
	}
}

func TestPolicyOpen(t *testing.T) {
	lim := down(t, good, limiter.WithFallback(fallback.Open))
	for range 100 {
		res, err := lim.AllowN(context.Background(), "k", 10)
		if err != nil || !res.Allowed || res.Source != limiter.SourceOpen {
			t.Fatalf("%+v, %v", res, err)
		}
	}
}

func TestPolicyClosed(t *testing.T) {
	lim := down(t, good, limiter.WithFallback(fallback.Closed))
	for range 100 {
		res, err := lim.Allow(context.Background(), "k")
		if !errors.Is(err, limiter.ErrUnavailable) || res.Allowed || res.RetryAfter <= 0 || res.Source != limiter.SourceClosed {
			t.Fatalf("%+v, %v", res, err)
		}
	}
}

// down returns a limiter whose Redis refuses connections and whose breaker is
// open for the rest of the test.
func down(t *testing.T, limit limiter.Limit, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	opts = append([]limiter.Option{unhurried()}, append(opts, limiter.WithBreaker(breaker.Settings{MinRequests: 1, OpenMin: time.Hour, OpenMax: time.Hour}), quiet())...)
	lim, err := limiter.New(rdb, limit, append(opts, limiter.WithExpectedProcesses(1))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	if _, err := lim.Allow(context.Background(), "the one that opens the breaker"); err != nil && !errors.Is(err, limiter.ErrUnavailable) {
		t.Fatal(err)
	}
	if s := lim.Health().Servers[0].State; s != breaker.Open {
		t.Fatalf("the breaker is %v", s)
	}
	return lim
}
