package limiter_test

import (
	"context"
	"slices"
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

// leasable are limits of which exactly n units can be leased: buckets hold one
// back for what the rate produces meanwhile.
func leasable(n int, per time.Duration) []limiter.Limit {
	rate := limiter.Per(n, per)
	return []limiter.Limit{
		limiter.FixedWindow(rate),
		limiter.SlidingWindowLog(rate),
		limiter.SlidingWindowCounter(rate),
		limiter.TokenBucket(rate, n+1),
		limiter.LeakyBucket(rate, n+1),
		limiter.GCRA(rate, n+1),
	}
}

// TestLeaseIsSpentHere: k decisions take one call, what is told of them is what
// single calls would tell, and what is not spent goes back with Close.
func TestLeaseIsSpentHere(t *testing.T) {
	for _, limit := range leasable(100, time.Hour) {
		t.Run(limit.Algorithm().String(), func(t *testing.T) {
			srv := redistest.Start(t)
			rdb := redistest.Client(t, srv)
			opts := []limiter.Option{limiter.WithShare(1), limiter.WithLease(40, 10*time.Second)}
			lim, other := newLimiter(t, rdb, limit, opts...), newLimiter(t, rdb, limit, opts...)
			for i := range 19 {
				want := limiter.SourceLease
				if i == 0 {
					want = limiter.SourceRedis
				}
				res, err := lim.Allow(t.Context(), "k")
				if err != nil || !res.Allowed || res.Source != want || res.Remaining != 99-i || res.Limit != limit || res.ResetAfter <= 0 || res.RetryAfter != 0 {
					t.Fatalf("decision %d: %+v, %v", i, res, err)
				}
			}
			if n := redistest.Calls(t, srv, "evalsha") + redistest.Calls(t, srv, "eval"); n != 2 { // with the NOSCRIPT
				t.Errorf("%d calls for 19 decisions", n)
			}
			if res, err := other.Peek(t.Context(), "k"); err != nil || res.Remaining != 60 {
				t.Errorf("what is held is not charged: %+v, %v", res, err)
			}
			if res, err := lim.Peek(t.Context(), "k"); err != nil || res.Remaining != 81 {
				t.Errorf("what is held is not counted: %+v, %v", res, err)
			}
			// More than is held, from here and from there.
			if res, err := lim.AllowN(t.Context(), "k", 70); err != nil || !res.Allowed || res.Remaining != 11 {
				t.Errorf("70 of 81: %+v, %v", res, err)
			}
			if res, err := lim.AllowN(t.Context(), "k", 12); err != nil || res.Allowed || res.RetryAfter <= 0 {
				t.Errorf("12 of 11: %+v, %v", res, err)
			}
			// A lease of 3 times 3.
			if res, err := lim.AllowN(t.Context(), "k", 3); err != nil || !res.Allowed || res.Remaining != 8 {
				t.Errorf("3 of 11: %+v, %v", res, err)
			}
			if res, err := other.Peek(t.Context(), "k"); err != nil || res.Remaining > 2 {
				t.Errorf("%+v, %v", res, err)
			}
			must(t, lim.Close())
			if res, err := other.Peek(t.Context(), "k"); err != nil || res.Remaining != 8 {
				t.Errorf("after Close: %+v, %v", res, err)
			}
		})
	}
}

// TestLeasesAdmitTheLimit: processes that hold leases of one key admit the limit
// together, not one more, and not one less.
func TestLeasesAdmitTheLimit(t *testing.T) {
	for _, limit := range leasable(500, time.Hour) {
		t.Run(limit.Algorithm().String(), func(t *testing.T) {
			srv := redistest.Start(t)
			rdb := redistest.Client(t, srv)
			var fleet []*limiter.Limiter
			for i := range 4 {
				fleet = append(fleet, newLimiter(t, rdb, limit, limiter.WithShare(1), limiter.WithLease(30+i, 5*time.Second), limiter.WithBudget(5*time.Second)))
			}
			var admitted, asked atomic.Int64
			for _, a := range together(1000, func(i int) (res limiter.Result, err error) {
				for asked.Add(1) <= 6000 && err == nil {
					n := 1 + i%3
					if res, err = fleet[i%4].AllowN(t.Context(), "hot", n); res.Allowed {
						admitted.Add(int64(n))
					}
				}
				return res, err
			}) {
				if a.err != nil {
					t.Fatal(a.err)
				}
			}
			// What is still held, or on its way back.
			until(t, "the last unit", func() bool {
				for _, lim := range fleet {
					res, err := lim.Allow(t.Context(), "hot")
					must(t, err)
					if res.Allowed {
						admitted.Add(1)
					}
				}
				return admitted.Load() >= 500
			})
			time.Sleep(20 * time.Millisecond) // what comes back twice
			for _, lim := range fleet {
				if res, err := lim.Allow(t.Context(), "hot"); err != nil || res.Allowed {
					t.Errorf("one more: %+v, %v", res, err)
				}
			}
			if n := admitted.Load(); n != 500 {
				t.Errorf("%d units admitted, want 500", n)
			}
		})
	}
}

// TestLeasesStayWithinTheLimit: over any stretch of time, also where what was
// charged is spent later, goes back, and is lost with a process.
func TestLeasesStayWithinTheLimit(t *testing.T) {
	const n = 60
	per := 200 * time.Millisecond
	for _, limit := range []limiter.Limit{
		limiter.FixedWindow(limiter.Per(n, per)),
		limiter.SlidingWindowLog(limiter.Per(n, per)),
		limiter.SlidingWindowCounter(limiter.Per(n, per)),
		limiter.TokenBucket(limiter.Per(n, per), n),
		limiter.LeakyBucket(limiter.Per(n, per), n),
		limiter.GCRA(limiter.Per(n, per), n),
	} {
		t.Run(limit.Algorithm().String(), func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			rdb := redistest.Client(t, srv)
			type use struct{ start, end time.Time }
			var mu sync.Mutex
			var uses []use
			leased := 0
			stop := time.Now().Add(2 * time.Second)
			var wg sync.WaitGroup
			for process := range 4 {
				lim := newLimiter(t, rdb, limit, limiter.WithShare(1), limiter.WithLease(10, 50*time.Millisecond), limiter.WithBudget(5*time.Second))
				for caller := range 3 {
					wg.Go(func() {
						for i := 0; time.Now().Before(stop); i++ {
							start := time.Now()
							res, err := lim.Allow(context.Background(), "hot")
							end := time.Now()
							if err != nil {
								t.Error(err)
								return
							}
							if res.Allowed {
								mu.Lock()
								uses = append(uses, use{start, end})
								if res.Source == limiter.SourceLease {
									leased++
								}
								mu.Unlock()
							}
							// Bursts and pauses, so that leases also grow old.
							if (i+caller)%7 == 0 {
								time.Sleep(time.Duration(10+20*process) * time.Millisecond)
							} else {
								time.Sleep(time.Millisecond)
							}
						}
					})
				}
			}
			wg.Wait()
			if leased == 0 || len(uses) < n {
				t.Fatalf("%d admitted, %d by leases", len(uses), leased)
			}
			slices.SortFunc(uses, func(a, b use) int { return a.start.Compare(b.start) })
			// A decision is made somewhere between its start and its end: within
			// a stretch are certainly those which began and ended there.
			within := func(from, to time.Time) (n int) {
				for _, u := range uses {
					if !u.start.Before(from) && !u.end.After(to) {
						n++
					}
				}
				return n
			}
			for i := 0; i < len(uses); i += 3 {
				from := uses[i].start
				switch limit.Algorithm() {
				case limiter.AlgorithmFixedWindow, limiter.AlgorithmSlidingWindowCounter:
					from = from.Truncate(per)
					if got := within(from, from.Add(per-time.Microsecond)); got > n {
						t.Fatalf("%d in an aligned window", got)
					}
				case limiter.AlgorithmSlidingWindowLog:
					if got := within(from, from.Add(per-time.Microsecond)); got > n {
						t.Fatalf("%d in a window", got)
					}
				default:
					for _, span := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond, per, 2 * per} {
						most := n + int(n*span/per)
						if got := within(from, from.Add(span)); got > most {
							t.Fatalf("%d in %v, at most %d", got, span, most)
						}
					}
				}
			}
		})
	}
}

// TestLeaseEnds: what is not spent within its age is not spent, and goes back.
func TestLeaseEnds(t *testing.T) {
	for _, limit := range leasable(100, time.Hour) {
		t.Run(limit.Algorithm().String(), func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			rdb := redistest.Client(t, srv)
			opts := []limiter.Option{limiter.WithShare(1), limiter.WithLease(40, time.Second)}
			lim, other := newLimiter(t, rdb, limit, opts...), newLimiter(t, rdb, limit, opts...)
			for range 2 {
				res, err := lim.Allow(t.Context(), "k")
				must(t, err)
				if !res.Allowed {
					t.Fatalf("%+v", res)
				}
			}
			left := func() int {
				res, err := other.Peek(t.Context(), "k")
				must(t, err)
				return res.Remaining
			}
			if n := left(); n != 60 {
				t.Errorf("%d remaining for others, want 60", n)
			}
			until(t, "the lease goes back", func() bool { return left() == 98 })
			if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceRedis || res.Remaining != 97 {
				t.Errorf("after that: %+v, %v", res, err)
			}
			// Slow use asks for more before the age is over.
			for i := range 30 {
				time.Sleep(50 * time.Millisecond)
				if res, err := lim.Allow(t.Context(), "k"); err != nil || !res.Allowed || res.Source != limiter.SourceLease {
					t.Fatalf("decision %d: %+v, %v", i, res, err)
				}
			}
		})
	}
}

// TestLeaseAsksAhead: with a Redis that takes 20 ms, only the first decision
// waits for it.
func TestLeaseAsksAhead(t *testing.T) {
	srv := redistest.Start(t)
	proxy, rdb := behind(t, srv, redis.Options{})
	lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerHour(10_000), 10_000), limiter.WithShare(1), limiter.WithLease(200, 10*time.Second), limiter.WithBudget(5*time.Second))
	if _, err := lim.Peek(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	proxy.Set(faultproxy.Mode{ReplyDelay: 20 * time.Millisecond})
	for i := range 1000 {
		if res, err := lim.Allow(t.Context(), "k"); err != nil || !res.Allowed || i > 0 && res.Source != limiter.SourceLease {
			t.Fatalf("decision %d: %+v, %v", i, res, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestLeaseOfOneWhoLeft: a caller that leaves does not take along what its call
// brings.
func TestLeaseOfOneWhoLeft(t *testing.T) {
	srv := redistest.Start(t)
	proxy, rdb := behind(t, srv, redis.Options{})
	lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerHour(100), 101), limiter.WithShare(1), limiter.WithLease(40, 10*time.Second), limiter.WithBudget(5*time.Second))
	if _, err := lim.Peek(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	proxy.Set(faultproxy.Mode{ReplyDelay: 100 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if res, err := lim.Allow(ctx, "k"); err != context.Canceled {
		t.Fatalf("%+v, %v", res, err)
	}
	proxy.Set(faultproxy.Mode{})
	until(t, "the lease", func() bool {
		res, err := lim.Peek(t.Context(), "k")
		return err == nil && res.Remaining == 100
	})
	if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceLease || res.Remaining != 99 {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestLeaseIsDropped: a block and a reset are heeded at once by the process that
// makes them, and what it held is not given back to what begins anew.
func TestLeaseIsDropped(t *testing.T) {
	for _, limit := range leasable(100, time.Hour) {
		t.Run(limit.Algorithm().String(), func(t *testing.T) {
			srv := redistest.Start(t)
			lim := newLimiter(t, redistest.Client(t, srv), limit, limiter.WithShare(1), limiter.WithLease(40, 50*time.Millisecond))
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
			other := newLimiter(t, redistest.Client(t, srv), limit, limiter.WithShare(1), limiter.WithLease(40, 50*time.Millisecond))
			if res, err := other.Peek(t.Context(), "k"); err != nil || res.Remaining != 99 {
				t.Errorf("after Close: %+v, %v", res, err)
			}
		})
	}
}

// TestLeaseOutlivesRedis: what is held was charged, and is spent while Redis is
// away; then this process decides by its share.
func TestLeaseOutlivesRedis(t *testing.T) {
	srv := redistest.Start(t)
	rdb := redistest.Client(t, srv)
	lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerHour(100), 101), limiter.WithShare(0.1), limiter.WithLease(40, time.Minute))
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
	srv := redistest.Start(t)
	lim := newLimiter(t, redistest.Client(t, srv), limiter.FixedWindow(limiter.PerHour(100)), limiter.WithShare(1), limiter.WithLease(10, time.Minute))
	for i, c := range []struct {
		n, left int
		source  limiter.Source
	}{{30, 70, limiter.SourceRedis}, {1, 69, limiter.SourceRedis}, {20, 49, limiter.SourceRedis}, {1, 48, limiter.SourceRedis}, {1, 47, limiter.SourceLease}, {48, 47, limiter.SourceRedis}, {47, 0, limiter.SourceRedis}} {
		res, err := lim.AllowN(t.Context(), "k", c.n)
		if err != nil || res.Remaining != c.left || res.Source != c.source || res.Allowed == (c.n == 48) {
			t.Errorf("step %d, %d units: %+v, %v", i, c.n, res, err)
		}
	}
}

// TestLeaseUnderWayIsDropped: what a call brings that was under way while the key
// was reset is of the time before.
func TestLeaseUnderWayIsDropped(t *testing.T) {
	srv := redistest.Start(t)
	proxy, rdb := behind(t, srv, redis.Options{})
	lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerHour(100), 101), limiter.WithShare(1), limiter.WithLease(40, 5*time.Second), limiter.WithBudget(5*time.Second))
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
	if !res.Limit.IsZero() {
		res.Limit, res.Remaining = r.limit, min(res.Remaining, r.limit.Burst())
	}
	return res, err
}

func (r roomy) AllowN(ctx context.Context, key string, n int) (limiter.Result, error) {
	return r.named(r.Limiter.AllowN(ctx, key, n))
}

func (r roomy) Peek(ctx context.Context, key string, _ ...limiter.CallOption) (limiter.Result, error) {
	return r.named(r.Limiter.Peek(ctx, key))
}

func (r roomy) WaitN(ctx context.Context, key string, n int, _ ...limiter.CallOption) (limiter.Result, error) {
	return r.named(r.Limiter.WaitN(ctx, key, n))
}

// TestConformanceLease: a limiter with leases is like any other.
func TestConformanceLease(t *testing.T) {
	limitertest.Run(t, func(t *testing.T, limit limiter.Limit) limiter.Allower {
		opts := []limiter.Option{limiter.WithShare(1), limiter.WithBudget(5 * time.Second)}
		rdb := redistest.Client(t, redistest.Start(t))
		own := limit
		switch limit.Algorithm() {
		case limiter.AlgorithmLeakyBucketShaping:
			return newLimiter(t, rdb, limit, opts...)
		case limiter.AlgorithmTokenBucket:
			own = limiter.TokenBucket(limit.Rate(), limit.Burst()+1)
		case limiter.AlgorithmLeakyBucket:
			own = limiter.LeakyBucket(limit.Rate(), limit.Burst()+1)
		case limiter.AlgorithmGCRA:
			own = limiter.GCRA(limit.Rate(), limit.Burst()+1)
		}
		return roomy{newLimiter(t, rdb, own, append(opts, limiter.WithLease(3, 20*time.Millisecond))...), limit}
	})
}
