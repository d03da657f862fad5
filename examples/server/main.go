// Server: an API with plans. Requests are limited per address and per user at once, by
// the plan of the user; Prometheus finds metrics under /metrics, and people who is
// rejected most under /debug/limits, both on an address of their own.
//
// It uses REDIS_URL where that is set, else a redis-server found on PATH, else a
// Redis embedded in this program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/examples/internal/demo"
)

type config struct {
	addr, admin string
	trusted     string
	prefix      string // of what is kept in Redis
}

func main() {
	cfg := config{prefix: "server-demo"}
	flag.StringVar(&cfg.addr, "addr", "localhost:8080", "where the API is served")
	flag.StringVar(&cfg.admin, "admin", "localhost:9090", "where /metrics and /debug/limits are served: keep it private")
	flag.StringVar(&cfg.trusted, "trusted", "", "prefixes of the proxies in front of it, such as 10.0.0.0/8,fd00::/8; their X-Forwarded-For is trusted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, cfg, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, cfg config, out io.Writer) error {
	var trusted []netip.Prefix
	for s := range strings.SplitSeq(cfg.trusted, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return fmt.Errorf("trusted is %q: must be prefixes such as 10.0.0.0/8: %w", s, err)
		}
		trusted = append(trusted, p)
	}
	server, err := demo.StartRedis()
	if err != nil {
		return err
	}
	defer server.Close()
	rdb := redis.NewClient(server.Options)
	defer rdb.Close()
	app, err := newApp(rdb, cfg.prefix, trusted)
	if err != nil {
		return err
	}
	defer app.close()

	public, err := net.Listen("tcp", cfg.addr)
	if err != nil {
		return err
	}
	defer public.Close()
	private, err := net.Listen("tcp", cfg.admin)
	if err != nil {
		return err
	}
	defer private.Close()
	fmt.Fprintf(out, "Redis: %s\n\nThe API:   http://%s\nMetrics:   http://%s/metrics\nRefused:   http://%[3]s/debug/limits\n\nTry:\n", server.What, public.Addr(), private.Addr())
	for _, key := range []string{"free-key", "pro-key"} {
		fmt.Fprintf(out, "  for i in $(seq 12); do curl -si http://%s/v1/things -H 'Authorization: Bearer %s' | grep -iE '^HTTP|^ratelimit:'; done\n", public.Addr(), key)
	}
	fmt.Fprintf(out, "  curl -s http://%[1]s/debug/limits\n  curl -s http://%[1]s/metrics | grep ^holdfast\n", private.Addr())
	return serve(ctx, map[net.Listener]http.Handler{public: app.public, private: app.private})
}

// serve serves until ctx ends, and then what is under way.
func serve(ctx context.Context, all map[net.Listener]http.Handler) error {
	failed := make(chan error, len(all))
	var servers []*http.Server
	for ln, h := range all {
		s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
		servers = append(servers, s)
		go func() { failed <- s.Serve(ln) }()
	}
	var err error
	running := len(servers)
	select {
	case <-ctx.Done():
	case err = <-failed:
		running--
	}
	grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, s := range servers {
		err = errors.Join(err, s.Shutdown(grace))
	}
	for range running {
		if stopped := <-failed; !errors.Is(stopped, http.ErrServerClosed) {
			err = errors.Join(err, stopped)
		}
	}
	return err
}
