// Worker: a fleet of queue workers sends jobs to an API that has a limit and its
// bad moments, while the Redis that holds the limit is killed and comes back.
//
// It uses REDIS_URL where that is set (and does not kill that server), else a
// redis-server found on PATH, else a Redis embedded in this program.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"
)

type config struct {
	jobs, workers, rate, burst int
	kill, back                 time.Duration
}

func (c config) validate() error {
	switch {
	case c.jobs < 1 || c.workers < 1 || c.rate < 1 || c.burst < 1:
		return fmt.Errorf("jobs, workers, rate and burst are %d, %d, %d and %d: must be at least 1", c.jobs, c.workers, c.rate, c.burst)
	case c.kill <= 0 || c.back <= c.kill:
		return fmt.Errorf("kill and back are %v and %v: must be above 0 and in this order", c.kill, c.back)
	}
	return nil
}

func main() {
	cfg := config{}
	flag.IntVar(&cfg.jobs, "jobs", 600, "number of jobs in the queue")
	flag.IntVar(&cfg.workers, "workers", 3, "number of workers, each standing for a process of eight goroutines")
	flag.IntVar(&cfg.rate, "rate", 50, "requests per second that the fleet may send")
	flag.IntVar(&cfg.burst, "burst", 10, "requests that it may send at once")
	flag.DurationVar(&cfg.kill, "kill", 3*time.Second, "when Redis is killed")
	flag.DurationVar(&cfg.back, "back", 8*time.Second, "when Redis is started again")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r, err := run(ctx, cfg, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	if !r.print(os.Stdout) {
		os.Exit(1)
	}
}

// report is what came of a run.
type report struct {
	jobs, done, twice, rejected, given int
	redis, local                       int64
	took                               time.Duration
}

// print writes the outcome and reports whether it is a good one.
func (r *report) print(out io.Writer) bool {
	good := r.done == r.jobs && r.twice == 0
	fmt.Fprintf(out, "\n%d of %d jobs done in %v, %d of them twice; the API rejected %d requests; %d jobs went back to the queue;\n",
		r.done, r.jobs, r.took.Round(10*time.Millisecond), r.twice, r.rejected, r.given)
	fmt.Fprintf(out, "%d requests were admitted by Redis, %d by the workers on their own.\n", r.redis, r.local)
	if good {
		fmt.Fprintln(out, "Every job was done, once.")
	} else {
		fmt.Fprintln(out, "JOBS WERE LOST OR DONE TWICE.")
	}
	return good
}
