// Outage: a fleet of workers calls a rate-limited API while the Redis that holds
// the limit is killed and comes back.
//
// It uses REDIS_URL where that is set (and does not kill that server), else a
// redis-server found on PATH, else a Redis embedded in this program.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

func main() {
	cfg := config{}
	flag.IntVar(&cfg.workers, "workers", 4, "number of workers, each with its own client and limiter")
	flag.IntVar(&cfg.rate, "rate", 100, "the API's limit, in requests per second for the whole fleet")
	flag.IntVar(&cfg.burst, "burst", 20, "the API's burst")
	flag.DurationVar(&cfg.length, "for", 20*time.Second, "how long to run")
	flag.DurationVar(&cfg.kill, "kill", 5*time.Second, "when Redis is killed")
	flag.DurationVar(&cfg.back, "back", 12*time.Second, "when Redis is started again")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	report, err := run(ctx, cfg, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "outage:", err)
		os.Exit(1)
	}
	if !report.print(os.Stdout) {
		os.Exit(1)
	}
}
