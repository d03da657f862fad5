package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/limiter"
)

type config struct {
	workers, rate, burst int
	length, kill, back   time.Duration
}

func (c config) validate() error {
	switch {
	case c.workers < 1:
		return fmt.Errorf("workers is %d: must be at least 1", c.workers)
	case c.length < time.Second:
		return fmt.Errorf("for is %v: must be at least 1s", c.length)
	case c.kill <= 0 || c.back <= c.kill || c.back >= c.length:
		return fmt.Errorf("kill, back and for are %v, %v and %v: must be above 0 and in this order", c.kill, c.back, c.length)
	}
	return nil
}

// fleet is the workers and what they have done.
type fleet struct {
	limit       limiter.Limit
	workers     []*worker
	api         *api
	transitions atomic.Int64 // of any worker, between Redis and on its own
	admitted    atomic.Int64
	denied      atomic.Int64
	failed      atomic.Int64
	redis       atomic.Int64
	local       atomic.Int64
	slowest     atomic.Int64 // of the current second
}

// worker stands for a process: it shares nothing with the others but Redis.
type worker struct {
	rdb   *redis.Client
	lim   *limiter.Limiter
	local []span // times in which it decided on its own
}

func newFleet(cfg config, opt *redis.Options, a *api) (*fleet, error) {
	f := &fleet{limit: limiter.TokenBucket(limiter.PerSecond(cfg.rate), cfg.burst), api: a}
	for range cfg.workers {
		own := *opt
		rdb := redis.NewClient(&own)
		lim, err := limiter.New(rdb, f.limit,
			limiter.WithPrefix("outage-demo"),
			limiter.WithProcess(fmt.Sprint("worker ", len(f.workers))), // each stands for a process
			limiter.WithLogger(slog.New(slog.DiscardHandler)),
		)
		if err != nil {
			return nil, errors.Join(err, rdb.Close(), f.close())
		}
		f.workers = append(f.workers, &worker{rdb: rdb, lim: lim})
	}
	return f, nil
}

func (f *fleet) close() error {
	var errs []error
	for _, w := range f.workers {
		errs = append(errs, w.lim.Close(), w.rdb.Close())
	}
	return errors.Join(errs...)
}

// work calls the API whenever the limiter allows it, at more than twice the rate
// of the limit over the whole fleet.
func (f *fleet) work(ctx context.Context, w *worker, begin time.Time, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	alone := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		start := time.Now()
		// The end of the demonstration must not be counted as a fault.
		res, err := w.lim.Allow(context.WithoutCancel(ctx), "third-party-api")
		if ctx.Err() != nil {
			return
		}
		f.slow(time.Since(start))
		if now := res.Source != limiter.SourceRedis; now != alone {
			alone = now
			f.transitions.Add(1)
			if alone {
				w.local = append(w.local, span{start.Sub(begin), time.Hour})
			} else {
				w.local[len(w.local)-1].to = time.Since(begin)
			}
		}
		switch {
		case err != nil:
			f.failed.Add(1)
			continue
		case res.Source == limiter.SourceRedis:
			f.redis.Add(1)
		default:
			f.local.Add(1)
		}
		if !res.Allowed {
			f.denied.Add(1)
			continue
		}
		f.admitted.Add(1)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.api.url, nil)
		if err != nil {
			continue
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
}

func (f *fleet) slow(d time.Duration) {
	for old := f.slowest.Load(); int64(d) > old && !f.slowest.CompareAndSwap(old, int64(d)); old = f.slowest.Load() {
	}
}

// breakers returns the state of the fleet's breakers in one word, or the number of
// those that are not closed.
func (f *fleet) breakers() string {
	n := 0
	for _, w := range f.workers {
		if w.lim.Health().Servers[0].State != breaker.Closed {
			n++
		}
	}
	switch n {
	case 0:
		return "closed"
	case len(f.workers):
		return "open"
	}
	return fmt.Sprintf("%d of %d open", n, len(f.workers))
}

// run starts everything, prints a line per second and returns what happened.
func run(ctx context.Context, cfg config, out io.Writer) (*report, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	// The client's own complaints about the outage would tear the table apart.
	logging.Disable()
	srv, err := demo.StartRedis()
	if err != nil {
		return nil, err
	}
	defer srv.Close()
	a, err := startAPI()
	if err != nil {
		return nil, err
	}
	defer a.server.Close()
	f, err := newFleet(cfg, srv.Options, a)
	if err != nil {
		return nil, err
	}

	fmt.Fprintf(out, "Redis: %s\n", srv.What)
	fmt.Fprintf(out, "%d workers call an API that allows %v; while Redis is away each holds to its claim on it, at most 1/%d here.\n\n", cfg.workers, f.limit, cfg.workers)

	workCtx, stop := context.WithTimeout(ctx, cfg.length)
	defer stop()
	var wg sync.WaitGroup
	start := time.Now()
	every := time.Duration(float64(time.Second) * float64(cfg.workers) / (2.4 * float64(cfg.rate)))
	for _, w := range f.workers {
		wg.Go(func() { f.work(workCtx, w, start, every) })
	}
	r := &report{limit: f.limit, budget: 50 * time.Millisecond, workers: cfg.workers}
	err = f.watch(workCtx, cfg, srv, start, r, out)
	stop()
	wg.Wait()
	r.length = time.Since(start)
	for _, w := range f.workers {
		r.alone = append(r.alone, w.local)
	}
	r.apiCalls, r.admitted, r.errors = a.calls.Load(), f.admitted.Load(), f.failed.Load()
	r.redis, r.local, r.transitions = f.redis.Load(), f.local.Load(), f.transitions.Load()
	return r, errors.Join(err, f.close())
}

// watch kills and restarts Redis at their times and prints the table.
func (f *fleet) watch(ctx context.Context, cfg config, srv *demo.Redis, start time.Time, r *report, out io.Writer) error {
	fmt.Fprintf(out, "%6s %9s %7s %7s %7s %7s  %-12s %9s  %s\n", "second", "admitted", "denied", "limit", "redis", "local", "breaker", "slowest", "")
	at := func(d time.Duration) <-chan time.Time {
		if srv.Kill == nil {
			return nil
		}
		return time.After(time.Until(start.Add(d)))
	}
	kill, back := at(cfg.kill), at(cfg.back)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var admitted, denied, byRedis, local int64
	event := ""
	for second := 1; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-kill:
			event, r.outages = "<- Redis killed", 1
			if err := srv.Kill(); err != nil {
				return err
			}
		case <-back:
			event = "<- Redis is back, empty"
			if err := srv.Restart(); err != nil {
				return err
			}
		case <-tick.C:
			slowest := time.Duration(f.slowest.Swap(0))
			r.slowest = max(r.slowest, slowest)
			a, d, b, l := f.admitted.Load(), f.denied.Load(), f.redis.Load(), f.local.Load()
			fmt.Fprintf(out, "%6d %9d %7d %7d %7d %7d  %-12s %9s  %s\n", second, a-admitted, d-denied, f.limit.Rate().N, b-byRedis, l-local,
				f.breakers(), slowest.Round(10*time.Microsecond), event)
			admitted, denied, byRedis, local = a, d, b, l
			event = ""
			second++
		}
	}
}
