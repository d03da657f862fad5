package limiter_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
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

// decisions is a hook of a client that counts calls of scripts.
type decisions struct{ atomic.Int64 }

func (*decisions) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d *decisions) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" || cmd.Name() == "eval" {
			d.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (*decisions) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestLeaseIsSpentHere: k decisions take one call, what callers are told of them is what
// single calls would tell, and what is not spent goes back with Close.
func TestLeaseIsSpentHere(t *testing.T) {
	for _, limit := range leasable(100, 300*time.Hour) {
		t.Run(limit.Algorithm(), func(t *testing.T) {
			onBoth(t, func(t *testing.T, client func() *redis.Client) {
				rdb, calls := client(), new(decisions)
				rdb.AddHook(calls)
				opts := []limiter.Option{patient(), limiter.WithLease(40, 10*time.Second)}
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
				if n := calls.Load(); n != 2 { // with the NOSCRIPT
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
		})
	}
}

// TestLeasesAdmitTheLimit: processes that hold leases of one key admit the limit
// together, not one more, and not one less.
func TestLeasesAdmitTheLimit(t *testing.T) {
	t.Parallel()
	for _, limit := range leasable(500, 300*time.Hour) {
		t.Run(limit.Algorithm(), func(t *testing.T) {
			onBoth(t, func(t *testing.T, client func() *redis.Client) {
				rdb := client()
				var fleet []*limiter.Limiter
				for i := range 4 {
					fleet = append(fleet, newLimiter(t, rdb, limit, limiter.WithShare(1), limiter.WithLease(30+i, 5*time.Second), limiter.WithBudget(patience)))
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
		})
	}
}

// TestLeasesStayWithinTheLimit: over any stretch of time, also where what was
// charged is spent later, goes back, and is lost with a process.
func TestLeasesStayWithinTheLimit(t *testing.T) {
	t.Parallel()
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
		t.Run(limit.Algorithm(), func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			rdb := redistest.Client(t, srv)
			type use struct{ start, end time.Time }
			var mu sync.Mutex
			var uses []use
			leased := 0
			stop := time.Now().Add(2 * time.Second)
			more := func() bool {
				mu.Lock()
				defer mu.Unlock()
				return time.Now().Before(stop) || (leased == 0 || len(uses) < n) && time.Since(stop) < patience
			}
			var wg sync.WaitGroup
			for process := range 4 {
				lim := newLimiter(t, rdb, limit, limiter.WithShare(1), limiter.WithLease(10, 50*time.Millisecond), limiter.WithBudget(patience))
				for caller := range 3 {
					wg.Go(func() {
						for i := 0; more(); i++ {
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
				case "fixed window", "sliding window counter":
					from = from.Truncate(per)
					if got := within(from, from.Add(per-time.Microsecond)); got > n {
						t.Fatalf("%d in an aligned window", got)
					}
				case "sliding window log":
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
