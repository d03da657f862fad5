// Sampled: eight processes keep to a limit together without a call per decision, while
// what they are asked for becomes ten times as much.
//
// It uses REDIS_URL where that is set, else a redis-server found on PATH, else a
// Redis embedded in this program.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/sampled"
)

type config struct {
	processes, rate int
	interval        time.Duration
	intervals       int
}

func main() {
	var cfg config
	flag.IntVar(&cfg.processes, "processes", 8, "processes, all of them in this program")
	flag.IntVar(&cfg.rate, "rate", 2000, "requests per second that they may admit together")
	flag.DurationVar(&cfg.interval, "interval", 500*time.Millisecond, "how often each of them reports")
	flag.IntVar(&cfg.intervals, "intervals", 20, "how many intervals the run takes; halfway ten times as much is asked for")
	demo.Main("sampled", &cfg, run)
}

func run(ctx context.Context, cfg config, out io.Writer) error {
	if cfg.processes < 1 || cfg.intervals < 2 {
		return fmt.Errorf("processes and intervals are %d and %d: must be at least 1 and 2", cfg.processes, cfg.intervals)
	}
	server, err := demo.StartRedis()
	if err != nil {
		return err
	}
	defer server.Close()
	fmt.Fprintf(out, "Redis: %s\n%d processes admit %d per second. They are asked for half of that, then for five times.\n\n", server.What, cfg.processes, cfg.rate)

	prefix := fmt.Sprint("sampled-demo:", time.Now().UnixNano())
	asked, admitted := make([]int, cfg.intervals), make([]int, cfg.intervals)
	var mu sync.Mutex
	var failed error
	var wg sync.WaitGroup
	for range cfg.processes {
		rdb := redis.NewClient(server.Options)
		defer rdb.Close()
		s, err := sampled.New(rdb, limiter.PerSecond(cfg.rate), limiter.WithPrefix(prefix), sampled.WithInterval(cfg.interval))
		if err != nil {
			return err
		}
		defer s.Close()
		wg.Go(func() {
			a, b, err := cfg.process(ctx, s)
			mu.Lock()
			defer mu.Unlock()
			for i := range a {
				asked[i] += a[i]
				admitted[i] += b[i]
			}
			if err != nil {
				failed = err
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	part := float64(cfg.rate) * cfg.interval.Seconds()
	for i := range asked {
		fmt.Fprintf(out, "%5.1f s  asked %4.0f %%  admitted %4.0f %%  %s\n", float64(i+1)*cfg.interval.Seconds(),
			100*float64(asked[i])/part, 100*float64(admitted[i])/part, strings.Repeat("#", int(20*float64(admitted[i])/part+0.5)))
	}
	return nil
}

// process asks at a steady rate, and counts by interval.
func (cfg config) process(ctx context.Context, s *sampled.Limiter) (asked, admitted []int, err error) {
	asked, admitted = make([]int, cfg.intervals), make([]int, cfg.intervals)
	each := float64(cfg.rate) / float64(cfg.processes)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	due, last := 0.0, time.Now()
	for start := last; ; {
		now := time.Now()
		i := int(now.Sub(start) / cfg.interval)
		if i >= cfg.intervals {
			return asked, admitted, nil
		}
		rate := each / 2
		if i >= cfg.intervals/2 {
			rate = each * 5
		}
		for due += rate * now.Sub(last).Seconds(); due >= 1; due-- {
			res, err := s.Allow(ctx, "everything")
			if err != nil {
				return asked, admitted, err
			}
			asked[i]++
			if res.Allowed {
				admitted[i]++
			}
		}
		last = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return asked, admitted, ctx.Err()
		}
	}
}
