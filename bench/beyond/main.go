// Beyond measures what decides about more than one limit: several at once, permits in
// flight, reservations, and sampled fleets of real processes, on a redis-server that
// it starts. All take turns in every round; the figures are medians.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/bench/internal/machine"
	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

func main() {
	out := flag.String("out", "", "file to write the tables to")
	rounds := flag.Int("rounds", 15, "rounds, in each of which all take a turn")
	length := flag.Duration("turn", 200*time.Millisecond, "length of a turn")
	worker := flag.String("worker", "", "used by the program itself: one process of a fleet")
	flag.Parse()
	logging.Disable()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	err := work(*worker)
	if *worker == "" {
		err = run(*out, *rounds, *length)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "beyond:", err)
		os.Exit(1)
	}
}

func run(out string, rounds int, length time.Duration) error {
	watch := machine.New()
	srv, err := redisproc.Start(redisproc.Options{})
	if err != nil {
		return err
	}
	defer srv.Close()
	var doc bytes.Buffer
	if err := operations(&doc, srv, rounds, length); err != nil {
		return err
	}
	if err := sampledSpeed(&doc, srv); err != nil {
		return err
	}
	if err := fleets(&doc, srv); err != nil {
		return err
	}
	return watch.Publish(out, "make bench-beyond", doc.String())
}

// operation is what one caller does again and again. What do returns, if anything, is done
// after it, and is not part of its time.
type operation struct {
	name string
	goal string
	do   func(key string) (after func() error, err error)
}

// operations compares them with one decision.
func operations(doc *bytes.Buffer, srv *redisproc.Server, rounds int, length time.Duration) error {
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	ctx := context.Background()
	usual := limiter.GCRA(limiter.PerSecond(100), 100) // with far fewer on each key
	newLimiter := func(prefix string, limit limiter.Limit) (*limiter.Limiter, error) {
		return limiter.New(rdb, limit, limiter.WithPrefix(prefix), limiter.WithShare(1), limiter.WithBudget(time.Second))
	}
	one, err := newLimiter("one", usual)
	if err != nil {
		return err
	}
	defer one.Close()
	var parts []limiter.Part
	for _, part := range []struct {
		name  string
		limit limiter.Limit
	}{
		{"user", usual},
		{"tenant", limiter.GCRA(limiter.PerSecond(1000), 1000)},
		{"all", limiter.FixedWindow(limiter.PerHour(1_000_000_000))},
	} {
		l, err := newLimiter(part.name, part.limit)
		if err != nil {
			return err
		}
		defer l.Close()
		parts = append(parts, limiter.Part{Name: part.name, Limiter: l})
	}
	multi, err := limiter.NewMulti(parts...)
	if err != nil {
		return err
	}
	sem, err := semaphore.New(rdb, 1_000_000, limiter.WithShare(1), limiter.WithBudget(time.Second))
	if err != nil {
		return err
	}
	defer sem.Close()
	admitted := func(res limiter.Result, err error) error {
		if err == nil && (!res.Allowed || res.Source != limiter.SourceRedis) {
			err = fmt.Errorf("%+v", res)
		}
		return err
	}
	acquire := func(key string) (func() error, error) {
		s, err := sem.TryAcquire(ctx, key)
		if err != nil {
			return nil, err
		}
		return s.Release, admitted(s.Result, nil)
	}
	list := []operation{
		{"one decision", "", func(key string) (func() error, error) { return nil, admitted(one.Allow(ctx, key)) }},
		{"`Multi` of three limits", "1.5", func(key string) (func() error, error) {
			res, err := multi.Allow(ctx, key)
			return nil, admitted(res.Result, err)
		}},
		{"a permit: `TryAcquire`", "1.3", acquire},
		{"the same with its `Release`", "", both(acquire)},
		{"`Reserve` and `Cancel`", "", both(func(key string) (func() error, error) {
			r, err := one.Reserve(ctx, key, limiter.Cost(5))
			if err != nil {
				return nil, err
			}
			return func() error { return r.Cancel(ctx) }, admitted(r.Result, nil)
		})},
	}
	doc.WriteString("| × one decision | 1 caller | 8 callers | goal |\n|---|---|---|---|\n")
	var ratios [2][]string
	var base [2]time.Duration
	for c, callers := range []int{1, 8} {
		times := make([][]time.Duration, len(list))
		for round := range rounds + 1 {
			for i := range list {
				i = (i + round) % len(list)
				took, err := turn(list[i], callers, length)
				if err != nil {
					return fmt.Errorf("%s: %w", list[i].name, err)
				}
				if round > 0 { // the first one warms up
					times[i] = append(times[i], took)
				}
			}
		}
		base[c] = median(times[0])
		for i := range list {
			ratios[c] = append(ratios[c], fmt.Sprintf("%.2f", float64(median(times[i]))/float64(base[c])))
		}
	}
	for i, op := range list {
		goal := op.goal
		if goal != "" {
			goal = "≤ " + goal
		}
		fmt.Fprintf(doc, "| %s | %s | %s | %s |\n", op.name, ratios[0][i], ratios[1][i], goal)
	}
	doc.WriteString("\n")
	return nil
}

// both does at once what do would leave for after it.
func both(do func(string) (func() error, error)) func(string) (func() error, error) {
	return func(key string) (func() error, error) {
		after, err := do(key)
		if err != nil {
			return nil, err
		}
		return nil, after()
	}
}

// turn lets callers do op for a while, and returns the time of one, divided by the number of
// callers.
func turn(op operation, callers int, length time.Duration) (time.Duration, error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	done, sum := 0, time.Duration(0)
	start := time.Now()
	for i := range callers {
		wg.Go(func() {
			n, took := 0, time.Duration(0)
			var err error
			for begin := start; err == nil && begin.Sub(start) < length; n++ {
				begin = time.Now()
				var after func() error
				after, err = op.do(keys[(i*7919+n)%len(keys)])
				took += time.Since(begin)
				if err == nil && after != nil {
					err = after()
				}
			}
			mu.Lock()
			defer mu.Unlock()
			sum += took
			if done += n; err != nil {
				failed = err
			}
		})
	}
	wg.Wait()
	return sum / time.Duration(callers*max(1, done)), failed
}

var keys = func() (all []string) {
	for i := range 10_000 {
		all = append(all, fmt.Sprint("key:", i))
	}
	return all
}()

func median[T time.Duration | float64](all []T) T {
	slices.Sort(all)
	return all[len(all)/2]
}
