//go:build !race

package limiter_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestTenThousandWaiters: of one key, all of whom a window admits: no herd, and no memory
// once they have left.
func TestTenThousandWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		lim, decisions := counted(t, limiter.FixedWindow(limiter.PerSecond(n)))
		awayFromWindow(time.Second)
		if _, err := lim.Wait(t.Context(), "k", limiter.Cost(n)); err != nil {
			t.Fatal(err)
		}
		decisions.Store(0)
		var wg sync.WaitGroup
		var last atomic.Int64
		start := time.Now()
		for i := range n {
			wg.Go(func() {
				if _, err := lim.Wait(t.Context(), "k"); err != nil {
					t.Error(err)
				}
				last.Store(int64(time.Since(start)))
			})
			if i == 0 {
				synctest.Wait() // or all who come before there is a line ask
			}
		}
		synctest.Wait()
		if d := decisions.Load(); d > 3 {
			t.Errorf("%d decisions on arrival", d)
		}
		wg.Wait()
		if d := decisions.Load(); d > n+5 || time.Duration(last.Load()) != time.Second {
			t.Errorf("%d decisions, the last after %v", d, time.Duration(last.Load()))
		}
	})
}

// TestManyCallersOfAFarServer: where 200 callers begin at once, and each new connection is slow, Redis decides for
// all of them soon.
func TestManyCallersOfAFarServer(t *testing.T) {
	for _, away := range farTimes {
		for _, ends := range []bool{true, false} {
			sim.Test(t, func(t *testing.T, r *sim.Redis) {
				r.SetPath("a", func(p *sim.Path) { p.Delay = away / 2 })
				rdb := r.Client("a", redis.Options{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: ends})
				t.Cleanup(func() { _ = rdb.Close() })
				lim := newLimiter(t, rdb, limiter.GCRA(limiter.PerSecond(100_000), 100_000), limiter.WithProcess("a"))
				var late atomic.Int64
				start := time.Now()
				for i := range 200 {
					go func() {
						time.Sleep(time.Duration(i) * 500 * time.Microsecond)
						for time.Since(start) < 12*time.Second {
							res, err := lim.Allow(t.Context(), fmt.Sprint(i%26))
							if err != nil {
								t.Error(err)
							}
							if res.Source != limiter.SourceRedis && time.Since(start) > 6*time.Second {
								late.Add(1)
							}
							time.Sleep(400 * time.Millisecond)
						}
					}()
				}
				time.Sleep(13 * time.Second)
				synctest.Wait()
				if n := late.Load(); n > 0 {
					t.Errorf("%v away, ContextTimeoutEnabled %v: %d decisions without Redis after six seconds", away, ends, n)
				}
			})
		}
	}
}
