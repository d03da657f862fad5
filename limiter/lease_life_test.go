package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limiter/limitertest"
)

// TestLeaseEnds: what is not spent within its age is not spent, and goes back. TestLeaseEndsInVirtualTime says when.
func TestLeaseEnds(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for i, limit := range leasable(100, 300*time.Hour) {
		t.Run(limit.Algorithm(), func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Client(t, srv)
			opts := []limiter.Option{patient(), limiter.WithLease(40, 3*time.Second), limiter.WithPrefix(fmt.Sprint("l", i))}
			lim, other := newLimiter(t, rdb, limit, opts...), newLimiter(t, rdb, limit, opts...)
			for range 2 {
				res, err := lim.Allow(t.Context(), "k")
				must(t, err)
				if !res.Allowed {
					t.Fatalf("%+v", res)
				}
			}
			rarely(t, "the lease goes back", func() bool {
				res, err := other.Peek(t.Context(), "k")
				must(t, err)
				return res.Remaining == 98
			})
			if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceRedis || res.Remaining != 97 {
				t.Errorf("after that: %+v, %v", res, err)
			}
		})
	}
}

// TestLeaseIsDropped: a block and a reset are heeded at once by the process that
// makes them, and what it held is not given back to what begins anew.
func TestLeaseIsDropped(t *testing.T) {
	for _, limit := range leasable(100, 300*time.Hour) {
		t.Run(limit.Algorithm(), func(t *testing.T) {
			onBoth(t, func(t *testing.T, client func() *redis.Client) {
				lim := newLimiter(t, client(), limit, patient(), limiter.WithLease(40, 50*time.Millisecond))
				allow := func() limiter.Result {
					t.Helper()
					res, err := lim.Allow(t.Context(), "k")
					must(t, err)
					return res
				}
				allow()
				must(t, lim.Block(t.Context(), "k", time.Hour))
				if res := allow(); res.Allowed || res.RetryAfter < 59*time.Minute {
					t.Errorf("blocked: %+v", res)
				}
				must(t, lim.Reset(t.Context(), "k"))
				if res := allow(); !res.Allowed || res.Source != limiter.SourceRedis || res.Remaining != 99 {
					t.Errorf("reset: %+v", res)
				}
				must(t, lim.Close())
				other := newLimiter(t, client(), limit, patient(), limiter.WithLease(40, 50*time.Millisecond))
				if res, err := other.Peek(t.Context(), "k"); err != nil || res.Remaining != 99 {
					t.Errorf("after Close: %+v, %v", res, err)
				}
			})
		})
	}
}

// TestLeaseOutlivesRedis: what is held was charged, and is spent while Redis is
// away; then this process decides by its share.
func TestLeaseOutlivesRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	lim := newLimiter(t, redistest.Admin(t, srv), limiter.GCRA(limiter.PerHour(100), 101), unhurried(), limiter.WithShare(0.1), limiter.WithLease(40, time.Minute))
	if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceRedis {
		t.Fatalf("%+v, %v", res, err)
	}
	must(t, srv.Kill())
	by := map[limiter.Source]int{}
	for range 200 {
		res, err := lim.Allow(t.Context(), "k")
		must(t, err)
		if res.Allowed {
			by[res.Source]++
		}
	}
	if by[limiter.SourceLease] != 39 || by[limiter.SourceLocal] == 0 || by[limiter.SourceLocal] > 10 {
		t.Errorf("admitted while Redis was away: %v", by)
	}
}

// TestCostBeyondALease is larger than what is ever held.
func TestCostBeyondALease(t *testing.T) {
	onBoth(t, func(t *testing.T, client func() *redis.Client) {
		lim := newLimiter(t, client(), limiter.FixedWindow(limiter.Per(100, 300*time.Hour)), patient(), limiter.WithLease(10, time.Minute))
		for i, c := range []struct {
			n, left int
			source  limiter.Source
		}{{30, 70, limiter.SourceRedis}, {1, 69, limiter.SourceRedis}, {20, 49, limiter.SourceRedis}, {1, 48, limiter.SourceRedis}, {1, 47, limiter.SourceLease}, {48, 47, limiter.SourceRedis}, {47, 0, limiter.SourceRedis}} {
			res, err := lim.AllowN(t.Context(), "k", c.n)
			if err != nil || res.Remaining != c.left || res.Source != c.source || res.Allowed == (c.n == 48) {
				t.Errorf("step %d, %d units: %+v, %v", i, c.n, res, err)
			}
		}
	})
}

// TestLeaseUnderWayIsDropped: what a call brings that was under way while the key
// was reset is of the time before.
func TestLeaseUnderWayIsDropped(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy, rdb := behind(t, srv, redis.Options{})
	lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerHour(100), 101), limiter.WithShare(1), limiter.WithLease(40, 5*time.Second), limiter.WithBudget(patience))
	res, err := lim.Allow(t.Context(), "k")
	must(t, err)
	calls := redistest.Calls(t, srv, "evalsha")
	proxy.Set(faultproxy.Mode{ReplyDelay: 300 * time.Millisecond})
	for res.Remaining > 78 { // half of the lease
		res, err = lim.Allow(t.Context(), "k")
		must(t, err)
	}
	until(t, "a call for more", func() bool { return redistest.Calls(t, srv, "evalsha") > calls })
	proxy.Set(faultproxy.Mode{})
	must(t, lim.Reset(t.Context(), "k"))
	for start := time.Now(); time.Since(start) < 500*time.Millisecond; time.Sleep(10 * time.Millisecond) {
		if res, err := lim.Peek(t.Context(), "k"); err != nil || res.Remaining != 100 {
			t.Fatalf("after %v: %+v, %v", time.Since(start), res, err)
		}
	}
}

// roomy is a limiter with leases whose buckets have room for what it holds back,
// so that what is left is the limit.
type roomy struct {
	*limiter.Limiter
	limit limiter.Limit
}

func (r roomy) named(res limiter.Result, err error) (limiter.Result, error) {
	if res.Limit != (limiter.Limit{}) {
		res.Limit, res.Remaining = r.limit, min(res.Remaining, r.limit.Burst())
	}
	return res, err
}

func (r roomy) AllowN(ctx context.Context, key string, n int) (limiter.Result, error) {
	return r.named(r.Limiter.AllowN(ctx, key, n))
}

func (r roomy) Peek(ctx context.Context, key string, _ ...limiter.Limit) (limiter.Result, error) {
	return r.named(r.Limiter.Peek(ctx, key))
}

func (r roomy) Wait(ctx context.Context, key string, opts ...limiter.CallOption) (*limiter.Reservation, error) {
	res, err := r.Limiter.Wait(ctx, key, opts...)
	if err == nil {
		res.Result, _ = r.named(res.Result, nil)
	}
	return res, err
}

// TestConformanceLease: a limiter with leases is like any other.
func TestConformanceLease(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	made := 0
	limitertest.Run(t, func(t *testing.T, limit limiter.Limit) limiter.Allower {
		made++
		opts := []limiter.Option{limiter.WithShare(1), limiter.WithBudget(patience), limiter.WithPrefix(fmt.Sprint("c", made))}
		rdb := redistest.Client(t, srv)
		own, age := limit, 20*time.Millisecond
		if limit.Rate().Per >= time.Minute {
			// What is over and not yet given back does not remain: on a machine that
			// is held up no lease must end within a case.
			age = time.Minute
		}
		switch limit.Algorithm() {
		case "leaky bucket shaping":
			return newLimiter(t, rdb, limit, opts...)
		case "token bucket":
			own = limiter.TokenBucket(limit.Rate(), limit.Burst()+1)
		case "leaky bucket":
			own = limiter.LeakyBucket(limit.Rate(), limit.Burst()+1)
		case "gcra":
			own = limiter.GCRA(limit.Rate(), limit.Burst()+1)
		}
		return roomy{newLimiter(t, rdb, own, append(opts, limiter.WithLease(3, age))...), limit}
	})
}

// TestLeasesOfPartsUnderFaults: 1,000 callers of a few split and leased keys, while
// Redis is killed, comes back, forgets its scripts, and keys are reset: no caller
// sees an error, every decision is counted once, and Close leaves nothing behind.
func TestLeasesOfPartsUnderFaults(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := redistest.Client(t, srv)
	lim := newLimiter(t, rdb, limiter.TokenBucket(limiter.PerSecond(2000), 2000), limiter.WithShare(1),
		limiter.WithBudget(patience), limiter.WithKeyShards(4), limiter.WithLease(50, 50*time.Millisecond))
	var stop atomic.Bool
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop.Store(true)
	by := make([]map[limiter.Source]int, 1000)
	for i := range by {
		by[i] = map[limiter.Source]int{}
		wg.Go(func() {
			for n := i; !stop.Load(); n++ {
				res, err := lim.AllowN(context.Background(), keys[n%5], 1+n%3)
				if err != nil || res.Allowed == (res.RetryAfter > 0) {
					t.Errorf("%+v, %v", res, err)
					return
				}
				by[i][res.Source]++
				time.Sleep(time.Millisecond)
			}
		})
	}
	seen := func(s limiter.Source, n uint64) {
		t.Helper()
		from := lim.Health().Decisions[s]
		until(t, "decisions by "+s.String(), func() bool { return lim.Health().Decisions[s] >= from+n })
	}
	seen(limiter.SourceLease, 500)
	must(t, srv.Kill())
	seen(limiter.SourceLocal, 500)
	must(t, srv.Restart())
	seen(limiter.SourceLease, 500)
	must(t, rdb.ScriptFlush(t.Context()).Err())
	for _, key := range keys[:5] {
		// It may find no time within the budget, and then says so.
		if err := lim.Reset(t.Context(), key); err != nil && !errors.Is(err, limiter.ErrUnavailable) {
			t.Error(err)
		}
	}
	seen(limiter.SourceLease, 500)
	stop.Store(true)
	wg.Wait()
	sum := map[limiter.Source]int{}
	for _, m := range by {
		for s, n := range m {
			sum[s] += n
		}
	}
	for s, n := range lim.Health().Decisions {
		if n != uint64(sum[s]) {
			t.Errorf("%d decisions by %v were counted as %d", sum[s], s, n)
		}
	}
	must(t, lim.Close())
}
