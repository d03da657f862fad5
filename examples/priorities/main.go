// Priorities: reports, of which there are always too many, and checkouts share the
// limit of an API. The last fifth of it is for checkouts, and halfway the limit is
// cut to half while everything runs.
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
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/limiter"
)

type config struct {
	rate, checkouts int
	reserve         float64
	length          time.Duration
}

func main() {
	var cfg config
	flag.IntVar(&cfg.rate, "rate", 200, "requests per second that the API allows")
	flag.IntVar(&cfg.checkouts, "checkouts", 15, "checkouts per second; of reports there are ten times the limit")
	flag.Float64Var(&cfg.reserve, "reserve", 0.2, "part of the limit that is for checkouts")
	flag.DurationVar(&cfg.length, "length", 3*time.Second, "how long each of the three runs takes")
	demo.Main("priorities", &cfg, run)
}

// count is what became of one kind of request.
type count struct{ asked, denied int }

func (c count) String() string {
	return fmt.Sprintf("%d of %d denied", c.denied, c.asked)
}

func run(ctx context.Context, cfg config, out io.Writer) error {
	if cfg.checkouts < 1 || cfg.length <= 0 {
		return fmt.Errorf("checkouts and length are %d and %v: must be above 0", cfg.checkouts, cfg.length)
	}
	server, err := demo.StartRedis()
	if err != nil {
		return err
	}
	defer server.Close()
	rdb := redis.NewClient(server.Options)
	defer rdb.Close()
	fmt.Fprintf(out, "Redis: %s\n%d requests per second for %d checkouts and %d reports per second.\n\n", server.What, cfg.rate, cfg.checkouts, 10*cfg.rate)
	limit := func(rate int) limiter.Limit { return limiter.GCRA(limiter.PerSecond(rate), max(1, rate/4)) }

	newLimiter := func(prefix string, opts ...limiter.Option) (*limiter.Limiter, error) {
		return limiter.New(rdb, limit(cfg.rate), append(opts, limiter.WithPrefix(fmt.Sprint(prefix, time.Now().UnixNano())), limiter.WithShare(1))...)
	}
	plain, err := newLimiter("priorities-demo:plain:")
	if err != nil {
		return err
	}
	defer plain.Close()
	reserved, err := newLimiter("priorities-demo:reserved:", limiter.WithCriticalHeadroom(cfg.reserve))
	if err != nil {
		return err
	}
	defer reserved.Close()
	for _, r := range []struct {
		what string
		lim  *limiter.Limiter
		cut  bool
	}{
		{"first come, first served", plain, false},
		{fmt.Sprintf("with a reserve of %.0f %%", 100*cfg.reserve), reserved, false},
		{"and with half of the limit", reserved, true},
	} {
		if r.cut {
			if err := r.lim.SetLimit(limit(max(2, cfg.rate/2))); err != nil {
				return err
			}
			// What is used beyond the new burst drains first: half of a burst of a quarter of a second, at half the rate.
			select {
			case <-time.After(time.Second / 4):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		checkouts, reports, err := compete(ctx, r.lim, cfg)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%-27s checkouts: %-18v  reports: %v\n", r.what, checkouts, reports)
		if r.lim == reserved && checkouts.denied > 0 {
			return fmt.Errorf("%d checkouts were denied although %.0f %% of the limit are theirs", checkouts.denied, 100*cfg.reserve)
		}
	}
	return nil
}

// compete lets both kinds ask for a while.
func compete(ctx context.Context, lim *limiter.Limiter, cfg config) (checkouts, reports count, err error) {
	var wg sync.WaitGroup
	var errs [2]error
	wg.Go(func() { checkouts, errs[0] = ask(limiter.Critical(ctx), lim, cfg.checkouts, cfg.length) })
	wg.Go(func() { reports, errs[1] = ask(ctx, lim, 10*cfg.rate, cfg.length) })
	wg.Wait()
	if errs[0] != nil {
		return checkouts, reports, errs[0]
	}
	return checkouts, reports, errs[1]
}

// ask asks n times per second.
func ask(ctx context.Context, lim *limiter.Limiter, perSecond int, length time.Duration) (c count, err error) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); ; {
		since := time.Since(start)
		if since >= length {
			return c, nil
		}
		for ; c.asked < int(since.Seconds()*float64(perSecond)); c.asked++ {
			res, err := lim.Allow(ctx, "api")
			if err != nil {
				return c, err
			}
			if !res.Allowed {
				c.denied++
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return c, ctx.Err()
		}
	}
}
