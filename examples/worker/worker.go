package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/limiter"
)

// job is one message of the queue.
type job struct {
	id    int
	ready time.Time // not before
}

// counted is a limiter that counts who admitted.
type counted struct {
	*limiter.Limiter
	redis, local *atomic.Int64
}

func (c counted) AllowN(ctx context.Context, key string, n int) (limiter.Result, error) {
	res, err := c.Limiter.AllowN(ctx, key, n)
	if res.Allowed {
		if res.Source == limiter.SourceRedis {
			c.redis.Add(1)
		} else {
			c.local.Add(1)
		}
	}
	return res, err
}

// worker stands for a process: it shares nothing with the others but Redis and
// the queue.
type worker struct {
	rdb    *redis.Client
	lim    *limiter.Limiter
	client *http.Client
}

func newWorker(name string, opt *redis.Options, limit limiter.Limit, redisN, localN *atomic.Int64) (*worker, error) {
	own := *opt
	rdb := redis.NewClient(&own)
	quiet := slog.New(slog.DiscardHandler)
	lim, err := limiter.New(rdb, limit,
		limiter.WithPrefix("worker-demo"),
		limiter.WithProcess(name), // each stands for a process
		limiter.WithLogger(quiet),
	)
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	transport, err := httpclient.New(base,
		httpclient.WithLimiter(counted{lim, redisN, localN}),
		httpclient.WithLogger(quiet),
	)
	if err != nil {
		return nil, errors.Join(err, lim.Close(), rdb.Close())
	}
	// The time that a worker has for a job before another may get it.
	return &worker{rdb, lim, &http.Client{Transport: transport, Timeout: 10 * time.Second}}, nil
}

func (w *worker) close() error {
	w.client.CloseIdleConnections()
	return errors.Join(w.lim.Close(), w.rdb.Close())
}

// do sends a job. If it could not be done, again is when to try it again.
func (w *worker) do(ctx context.Context, url string, j job) (again time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(fmt.Sprint("job ", j.id)))
	if err != nil {
		return 0, err
	}
	// By it the API recognizes repetitions, so that a POST can be retried.
	req.Header.Set("Idempotency-Key", fmt.Sprint("job-", j.id))
	resp, err := w.client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*httpclient.Error](err); ok {
			return max(time.Second, e.Wait), nil // it was not even sent
		}
		return time.Second, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusCreated {
		return 0, nil
	}
	wait, _ := httpclient.Wait(resp)
	return max(time.Second, wait), nil
}

// run starts everything, works through the queue, and returns what happened.
func run(ctx context.Context, cfg config, out io.Writer) (*report, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	logging.Disable() // the client's own complaints about the outage
	srv, err := demo.StartRedis()
	if err != nil {
		return nil, err
	}
	defer srv.Close()
	limit := limiter.TokenBucket(limiter.PerSecond(cfg.rate), cfg.burst)
	// What it really allows is more than it says, as everywhere.
	a, err := startAPI(limiter.TokenBucket(limiter.PerSecond(cfg.rate*6/5), 6*cfg.burst))
	if err != nil {
		return nil, err
	}
	defer a.close()
	fmt.Fprintf(out, "Redis: %s\n", srv.What)
	fmt.Fprintf(out, "%d workers share a limit of %v. The API is out of order for %v every %v.\n\n", cfg.workers, limit, apiDown, apiEvery)

	f := &fleet{cfg: cfg, api: a, queue: make(chan job, cfg.jobs)}
	for i := range cfg.jobs {
		f.queue <- job{id: i}
	}
	f.left.Store(int64(cfg.jobs))
	for i := range cfg.workers {
		w, err := newWorker(fmt.Sprint("worker ", i), srv.Options, limit, &f.redis, &f.local)
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		f.workers = append(f.workers, w)
	}
	start := time.Now()
	err = f.work(ctx, srv, out)
	return f.report(time.Since(start)), errors.Join(err, f.close())
}

// fleet is the workers and their queue.
type fleet struct {
	cfg          config
	api          *api
	workers      []*worker
	queue        chan job
	left         atomic.Int64 // jobs that are not done
	given        atomic.Int64 // jobs that went back to the queue
	redis, local atomic.Int64 // requests admitted by
}

func (f *fleet) close() error {
	var errs []error
	for _, w := range f.workers {
		errs = append(errs, w.close())
	}
	return errors.Join(errs...)
}

// work runs all workers until the queue is done, and prints a line per second.
func (f *fleet) work(ctx context.Context, srv *demo.Redis, out io.Writer) error {
	ctx, done := context.WithCancelCause(ctx)
	defer done(nil)
	var wg sync.WaitGroup
	for _, w := range f.workers {
		for range 8 {
			wg.Go(func() { f.loop(ctx, w, done) })
		}
	}
	err := f.watch(ctx, srv, out)
	done(nil)
	wg.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		err = errors.Join(err, cause)
	}
	return err
}

// loop is one goroutine of a worker.
func (f *fleet) loop(ctx context.Context, w *worker, done context.CancelCauseFunc) {
	for {
		var j job
		select {
		case <-ctx.Done():
			return
		case j = <-f.queue:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(j.ready)):
		}
		again, err := w.do(ctx, f.api.url, j)
		switch {
		case err != nil: // the request could not even be made
			done(err)
			return
		case again > 0:
			f.given.Add(1)
			j.ready = time.Now().Add(again)
			f.queue <- j
		case f.left.Add(-1) == 0:
			done(nil)
			return
		}
	}
}

// watch kills and restarts Redis at their times and prints the table.
func (f *fleet) watch(ctx context.Context, srv *demo.Redis, out io.Writer) error {
	fmt.Fprintf(out, "%6s %9s %7s %7s %9s\n", "second", "jobs done", "redis", "local", "rejected")
	var kill, back <-chan time.Time
	if srv.Kill != nil {
		kill, back = time.After(f.cfg.kill), time.After(f.cfg.back)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var last report
	event := ""
	for second := 1; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-kill:
			event = "<- Redis killed"
			if err := srv.Kill(); err != nil {
				return err
			}
		case <-back:
			event = "<- Redis is back, empty"
			if err := srv.Restart(); err != nil {
				return err
			}
		case <-tick.C:
			r := f.report(0)
			fmt.Fprintf(out, "%6d %9d %7d %7d %9d  %s\n", second, r.done-last.done, r.redis-last.redis, r.local-last.local, r.rejected-last.rejected, event)
			last, event = *r, ""
			second++
		}
	}
}

func (f *fleet) report(took time.Duration) *report {
	r := &report{jobs: f.cfg.jobs, given: int(f.given.Load()), redis: f.redis.Load(), local: f.local.Load(), took: took}
	f.api.mu.Lock()
	defer f.api.mu.Unlock()
	r.done, r.rejected = len(f.api.seen), f.api.rejected
	for _, n := range f.api.seen {
		if n > 1 {
			r.twice++
		}
	}
	return r
}
