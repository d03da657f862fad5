// Permits: programs that make exports for a tenant keep to two at a time over all of
// them, and take turns. One of them dies with an export begun: after the permit's time
// to live the others have its permit.
//
// It uses REDIS_URL where that is set, else a redis-server found on PATH, else a
// Redis embedded in this program.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

type config struct {
	max, programs, exports int
	each, ttl, budget      time.Duration
}

func main() {
	var cfg config
	flag.IntVar(&cfg.max, "max", 2, "exports at a time")
	flag.IntVar(&cfg.programs, "programs", 4, "programs")
	flag.IntVar(&cfg.exports, "exports", 6, "exports that each of them makes")
	flag.DurationVar(&cfg.each, "each", 200*time.Millisecond, "how long an export takes")
	flag.DurationVar(&cfg.ttl, "ttl", 2*time.Second, "time to live of a permit")
	flag.DurationVar(&cfg.budget, "budget", 50*time.Millisecond, "how long a call may wait for Redis before it is decided locally")
	demo.Main("permits", &cfg, run)
}

func run(ctx context.Context, cfg config, out io.Writer) error {
	if cfg.programs < 1 || cfg.exports < 1 || cfg.each <= 0 {
		return fmt.Errorf("programs, exports and each are %d, %d and %v: must be above 0", cfg.programs, cfg.exports, cfg.each)
	}
	server, err := demo.StartRedis()
	if err != nil {
		return err
	}
	defer server.Close()
	fmt.Fprintf(out, "Redis: %s\n%d programs, %d exports at a time, of %v each.\n\n", server.What, cfg.programs, cfg.max, cfg.each)
	rdb := redis.NewClient(server.Options)
	defer rdb.Close()
	prefix := fmt.Sprint("permits-demo:", time.Now().UnixNano())
	newProgram := func(name string) (*semaphore.Semaphore, error) {
		return semaphore.New(rdb, cfg.max, limiter.WithPrefix(prefix), limiter.WithProcess(name), limiter.WithBudget(cfg.budget), semaphore.WithTTL(cfg.ttl))
	}

	dies, err := newProgram("the one that dies")
	if err != nil {
		return err
	}
	if _, err := dies.Acquire(ctx, "tenant:7"); err != nil {
		return err
	}
	_ = dies.Close() // and never releases
	start := time.Now()
	fmt.Fprintln(out, "A program begins an export and dies.")

	var running, most, done atomic.Int64
	var second sync.Once
	var mu sync.Mutex
	var failed error
	var wg sync.WaitGroup
	for p := range cfg.programs {
		c, err := newProgram(fmt.Sprint("program ", p))
		if err != nil {
			return err
		}
		defer c.Close()
		wg.Go(func() {
			for range cfg.exports {
				permit, err := c.Acquire(ctx, "tenant:7")
				if err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
				n := running.Add(1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				if n == int64(cfg.max) {
					second.Do(func() {
						fmt.Fprintf(out, "All %d permits are in use by the living %v later.\n", cfg.max, time.Since(start).Round(10*time.Millisecond))
					})
				}
				select {
				case <-time.After(cfg.each):
					done.Add(1)
				case <-permit.Lost():
					fmt.Fprintln(out, "A permit was lost: the export is given up.")
				case <-ctx.Done():
				}
				running.Add(-1)
				if err := permit.Release(); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	fmt.Fprintf(out, "%d exports in %v, never more than %d at a time.\n", done.Load(), time.Since(start).Round(10*time.Millisecond), most.Load())
	if most.Load() > int64(cfg.max) {
		return fmt.Errorf("%d at a time with %d permits", most.Load(), cfg.max)
	}
	return nil
}
