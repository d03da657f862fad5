package limiter_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// farTimes are up to what an answer may take and not be slow, half of the budget. Each connection takes one
// of them more.
var farTimes = []time.Duration{10 * time.Millisecond, 12500 * time.Microsecond, 18 * time.Millisecond, 22 * time.Millisecond}

// TestFarServerReturns: of a server whose answer takes up to half of the budget, which is not slow, decisions
// come again after an outage, although a probe is two of its round trips, and three where it has to dial.
func TestFarServerReturns(t *testing.T) {
	for _, away := range farTimes {
		for _, ends := range []bool{true, false} {
			sim.Test(t, func(t *testing.T, r *sim.Redis) {
				r.SetPath("a", func(p *sim.Path) { p.Delay = away / 2 })
				rdb := r.Client("a", redis.Options{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: ends})
				t.Cleanup(func() { _ = rdb.Close() })
				lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerSecond(1000), 1000), limiter.WithProcess("a"))
				byRedis := func(length time.Duration) (n, all int) {
					for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
						began := time.Now()
						res, err := lim.Allow(t.Context(), "k")
						if took := time.Since(began); err != nil || took > 50*time.Millisecond {
							t.Errorf("%v away: %+v after %v, %v", away, res, took, err)
						}
						all++
						if res.Source == limiter.SourceRedis {
							n++
						}
					}
					return n, all
				}
				byRedis(10 * time.Second) // connections are made
				for range 3 {
					if n, all := byRedis(2 * time.Second); n != all {
						t.Errorf("%v away, ContextTimeoutEnabled %v: %d of %d by Redis", away, ends, n, all)
					}
					r.SetPath("a", func(p *sim.Path) { p.Refused = true })
					byRedis(2500 * time.Millisecond)
					r.SetPath("a", func(p *sim.Path) { p.Refused = false })
					byRedis(12 * time.Second) // a probe that dials, and one more
				}
				if n, all := byRedis(2 * time.Second); n != all {
					t.Errorf("%v away, ContextTimeoutEnabled %v: %d of %d by Redis in the end", away, ends, n, all)
				}
			})
		}
	}
}

// TestProbesOutliveTheirCallers: callers that have the time for an answer, and less than a probe takes, which is several
// round trips, get decisions of Redis again after an outage.
func TestProbesOutliveTheirCallers(t *testing.T) {
	for _, away := range []time.Duration{time.Millisecond, 10 * time.Millisecond} {
		for _, ends := range []bool{true, false} {
			sim.Test(t, func(t *testing.T, r *sim.Redis) {
				r.SetPath("a", func(p *sim.Path) { p.Delay = away / 2 })
				rdb := r.Client("a", redis.Options{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: ends})
				t.Cleanup(func() { _ = rdb.Close() })
				lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerSecond(1000), 1000), limiter.WithProcess("a"))
				byRedis := func(length time.Duration) (n, all int) {
					for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
						ctx, cancel := context.WithTimeout(t.Context(), 2*away)
						res, err := lim.Allow(ctx, "k")
						cancel()
						if err != nil {
							t.Error(err)
						}
						if all++; res.Source == limiter.SourceRedis {
							n++
						}
					}
					return n, all
				}
				if _, err := lim.Allow(t.Context(), "k"); err != nil { // makes a connection
					t.Error(err)
				}
				for range 3 {
					if n, all := byRedis(2 * time.Second); n < all-3 { // one or two find that another connection has to be made
						t.Errorf("%v away, ContextTimeoutEnabled %v: %d of %d by Redis", away, ends, n, all)
					}
					r.SetPath("a", func(p *sim.Path) { p.Refused = true })
					byRedis(2500 * time.Millisecond)
					r.SetPath("a", func(p *sim.Path) { p.Refused = false })
					byRedis(12 * time.Second) // a probe that dials, and one more
				}
			})
		}
	}
}

// TestLateAnswersKeepConnections: callers with little time, of whom some are answered too late, are answered again when
// the server is as near as before: no connection has to be made in that time.
func TestLateAnswersKeepConnections(t *testing.T) {
	for _, ends := range []bool{true, false} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			far := func(d time.Duration) { r.SetPath("a", func(p *sim.Path) { p.Delay = d }) }
			far(500 * time.Microsecond)
			rdb := r.Client("a", redis.Options{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: ends})
			t.Cleanup(func() { _ = rdb.Close() })
			lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerSecond(1000), 1000), limiter.WithProcess("a"))
			if _, err := lim.Allow(t.Context(), "k"); err != nil { // makes a connection
				t.Error(err)
			}
			byRedis := func(n int) (by int) {
				for range n {
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
					if res, err := lim.Allow(ctx, "k"); err != nil {
						t.Error(err)
					} else if res.Source == limiter.SourceRedis {
						by++
					}
					cancel()
					time.Sleep(50 * time.Millisecond)
				}
				return by
			}
			far(5 * time.Millisecond)
			if n := byRedis(4); n != 0 {
				t.Errorf("%d of 4 late ones are by Redis", n)
			}
			far(500 * time.Microsecond)
			if n := byRedis(100); n != 100 {
				t.Errorf("ContextTimeoutEnabled %v: %d of 100 by Redis", ends, n)
			}
		})
	}
}
