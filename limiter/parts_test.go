package limiter_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestMultiSpendsLeases: a part with leases spends them, whichever way it is asked.
func TestMultiSpendsLeases(t *testing.T) {
	onBoth(t, func(t *testing.T, client func() *redis.Client) {
		rdb := client()
		limit := limiter.FixedWindow(limiter.Per(100, 300*time.Hour))
		leased := newLimiter(t, rdb, limit, patient(), limiter.WithPrefix("leased"), limiter.WithLease(20, time.Minute))
		plain := newLimiter(t, rdb, limit, patient(), limiter.WithPrefix("plain"))
		m := newMulti(t, limiter.Part{Name: "leased", Limiter: leased}, limiter.Part{Name: "plain", Limiter: plain})
		for i := range 15 {
			res, err := m.Allow(t.Context(), "k")
			if err != nil || !res.Allowed || len(res.Parts) != 2 {
				t.Fatalf("%+v, %v", res, err)
			}
			want := limiter.SourceLease
			if i == 0 {
				want = limiter.SourceRedis // which is asked for the lease
			}
			// It asks ahead when half of a lease is spent.
			if got := res.Parts[0].Source; got != want && (i < 8 || got != limiter.SourceRedis) {
				t.Errorf("decision %d by %v, want %v", i, got, want)
			}
			if got := res.Parts[1].Source; got != limiter.SourceRedis {
				t.Errorf("decision %d of the plain part by %v", i, got)
			}
		}
		must(t, leased.Close())
		for _, part := range []string{"leased", "plain"} {
			check := newLimiter(t, rdb, limit, patient(), limiter.WithPrefix(part))
			if res, err := check.Peek(t.Context(), "k"); err != nil || res.Remaining != 85 {
				t.Errorf("%s: %+v, %v", part, res, err)
			}
		}
	})
}

// TestMultiUsesTheParts: a part with key shards charges those that it charges by itself,
// so that both together stay within the limit; also as the only one.
func TestMultiUsesTheParts(t *testing.T) {
	onBoth(t, func(t *testing.T, client func() *redis.Client) {
		rdb := client()
		for _, alone := range []bool{false, true} {
			name := fmt.Sprint("alone-", alone)
			split := newLimiter(t, rdb, limiter.FixedWindow(limiter.Per(10, 300*time.Hour)), patient(), limiter.WithPrefix(name), limiter.WithKeyShards(2))
			parts := []limiter.Part{{Name: "split", Limiter: split}}
			if !alone {
				parts = append(parts, limiter.Part{Name: "other", Limiter: newLimiter(t, rdb, limiter.FixedWindow(limiter.Per(100, 300*time.Hour)), patient(), limiter.WithPrefix("other"))})
			}
			m := newMulti(t, parts...)
			all := 0
			for i := range 40 {
				var res limiter.Result
				var err error
				if i%2 == 0 {
					res, err = m.AllowN(t.Context(), "k", 1)
				} else {
					res, err = split.Allow(t.Context(), "k")
				}
				must(t, err)
				if res.Allowed {
					all++
				}
			}
			if all != 10 {
				t.Errorf("%s: %d admitted of a limit of 10", name, all)
			}
		}
	})
}

// TestMultiKeepsHeadroomInAnOutage: what is kept for critical calls stays theirs without
// Redis, too.
func TestMultiKeepsHeadroomInAnOutage(t *testing.T) {
	limit := limiter.FixedWindow(limiter.Per(10, 300*time.Hour))
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	var parts []limiter.Part
	for _, name := range []string{"a", "b"} {
		parts = append(parts, limiter.Part{Name: name, Limiter: newLimiter(t, rdb, limit, unhurried(), hasty(time.Hour), limiter.WithShare(1),
			limiter.WithPrefix(name), limiter.WithCriticalHeadroom(0.2))})
	}
	m := newMulti(t, parts...)
	count := func(critical bool) (n int) {
		ctx := t.Context()
		if critical {
			ctx = limiter.Critical(ctx)
		}
		for range 20 {
			res, err := m.AllowN(ctx, "k", 1)
			if err != nil || res.Source != limiter.SourceLocal {
				t.Fatalf("%+v, %v", res, err)
			}
			if res.Allowed {
				n++
			}
		}
		return n
	}
	if n := count(false); n != 8 {
		t.Errorf("%d admitted of 10 of which 2 are kept", n)
	}
	if n := count(true); n != 2 {
		t.Errorf("%d critical calls admitted of the 2 that were kept", n)
	}
}

// TestGiveBacksOfSeveralKeys: those that share a call reach their own keys.
func TestGiveBacksOfSeveralKeys(t *testing.T) {
	for _, limit := range leasable(20, 300*time.Hour) {
		t.Run(limit.Algorithm(), func(t *testing.T) {
			onBoth(t, func(t *testing.T, client func() *redis.Client) {
				rdb := client()
				lim := newLimiter(t, rdb, limit, patient())
				const keys = 40
				cost := func(i int) int { return 1 + i%7 }
				var taken [keys]*limiter.Reservation
				for i := range keys {
					taken[i] = reserve(t, lim, fmt.Sprint("k", i), 10)
				}
				for _, a := range together(keys, func(i int) (limiter.Result, error) {
					return limiter.Result{}, taken[i].Settle(t.Context(), 10-cost(i))
				}) {
					must(t, a.err)
				}
				full := 20 + fractions(limit)
				for i := range keys {
					res, err := lim.Peek(t.Context(), fmt.Sprint("k", i))
					must(t, err)
					if want := full - 10 + cost(i); res.Remaining > want || res.Remaining < want-fractions(limit) {
						t.Errorf("key %d: %d remaining, want %d", i, res.Remaining, want)
					}
				}
			})
		})
	}
}

// TestLostSettlementIsNotRepeated: what was charged on top, and of which the reply was
// lost, is not charged again when Redis is back.
func TestLostSettlementIsNotRepeated(t *testing.T) {
	srv := redistest.Start(t)
	proxy, rdb := behind(t, srv, redis.Options{MaxRetries: -1, DialerRetries: 1})
	limit := limiter.FixedWindow(limiter.Per(100, 300*time.Hour))
	lim := newLimiter(t, rdb, limit, limiter.WithShare(1), unhurried(), hasty(50*time.Millisecond))
	r := reserve(t, lim, "k", 10)
	proxy.Set(faultproxy.Mode{CutAfter: 1}) // Redis gets the command, its reply is cut
	if err := r.Settle(t.Context(), 30); err != nil {
		t.Logf("settled: %v", err)
	}
	proxy.Pass()
	untilCharged(t, lim)
	direct := newLimiter(t, redistest.Client(t, srv), limit, patient())
	if res, err := direct.Peek(t.Context(), "k"); err != nil || res.Remaining != 70 {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestCallerWithLittleTimeIsAnswered: who has less time than the budget has three quarters of it
// for Redis, and not so little that a slow answer comes too late.
func TestCallerWithLittleTimeIsAnswered(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		lim, _ := simulatedLimiter(t, r, "a", good, patient())
		if _, err := lim.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		r.SetPath("a", func(p *sim.Path) { p.Delay = time.Second })
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if res, err := lim.Allow(ctx, "k"); err != nil || res.Source != limiter.SourceRedis {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// TestWaitErrorHasBothTimes: how long the wait would be, and what was left for it.
func TestWaitErrorHasBothTimes(t *testing.T) {
	err := &limiter.WaitError{RetryAfter: 3 * time.Second, Remaining: 1500 * time.Millisecond}
	for _, part := range []string{"3s", "1.5s"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %s", err, part)
		}
	}
}
