// Demo: a page that shows the algorithms at work, and a fleet that keeps to its limit
// while its Redis is killed, frozen and slowed by the buttons on it.
//
// It uses REDIS_URL where that is set, through a proxy on which the buttons act, and
// leaves that server alone; else a redis-server found on PATH, else a Redis embedded
// in this program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/examples/internal/demo"
)

func main() {
	cfg := config{slowBy: 200 * time.Millisecond} // the page says so
	flag.StringVar(&cfg.addr, "addr", "localhost:8080", "where to serve the page; when the port is taken, the next free one")
	flag.IntVar(&cfg.processes, "processes", 4, "how many processes share the limit of the outage panel")
	flag.IntVar(&cfg.rate, "rate", 100, "that limit, in requests per second")
	flag.IntVar(&cfg.burst, "burst", 20, "its burst")
	flag.DurationVar(&cfg.budget, "budget", 50*time.Millisecond, "how long a decision may take by Redis")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, cfg, os.Stdout); err != nil {
		complain(err)
		os.Exit(1)
	}
}

func complain(err error) { fmt.Fprintln(os.Stderr, "demo:", err) }

// run serves the page until ctx ends.
func run(ctx context.Context, cfg config, out io.Writer) (err error) {
	if err := cfg.validate(); err != nil {
		return err
	}
	// The client's own complaints about the outage say nothing that the page doesn't.
	logging.Disable()
	ls, port, err := listen(cfg.addr, out)
	if err != nil {
		return err
	}
	defer func() {
		for _, l := range ls {
			_ = l.Close()
		}
	}()
	srv, err := demo.StartRedis()
	if err != nil {
		return err
	}
	defer srv.Close()
	a, err := newApp(cfg, srv)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close()) }()

	host, _, _ := net.SplitHostPort(cfg.addr)
	h, err := a.handler(isLoopback(host))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Redis: %s\n", a.redisState().What)
	if !isLoopback(host) {
		fmt.Fprintf(out, "Warning: %s can be reached by other machines, and anyone there can press the buttons.\n", cfg.addr)
	}
	if host == "" || host == "0.0.0.0" || host == "::" {
		host = "localhost"
	}
	fmt.Fprintf(out, "Open http://%s in a browser. Ctrl-C ends it.\n", net.JoinHostPort(host, fmt.Sprint(port)))
	return serve(ctx, h, ls, a)
}

// serve answers on all listeners until ctx ends, and then ends the streams of events,
// which would otherwise last as long as their pages.
func serve(ctx context.Context, h http.Handler, ls []net.Listener, a *app) error {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	failed := make(chan error, len(ls))
	for _, l := range ls {
		go func() { failed <- server.Serve(l) }()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	a.cancel()
	a.hub.close()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if server.Shutdown(last) != nil {
		_ = server.Close()
	}
	return err
}
