package main

import (
	"fmt"
	"os"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redisproc"
)

// server is the Redis of the demonstration.
type server struct {
	what    string
	options *redis.Options
	// kill and restart are nil for a server that is not ours.
	kill, restart func() error
	close         func()
}

func startRedis() (*server, error) {
	if url := os.Getenv("REDIS_URL"); url != "" {
		opt, err := redis.ParseURL(url)
		if err != nil {
			return nil, fmt.Errorf("REDIS_URL: %w", err)
		}
		return &server{
			what:    "the Redis of REDIS_URL at " + opt.Addr + ", which is not ours to kill: there will be no outage",
			options: opt, close: func() {},
		}, nil
	}
	if path, err := redisproc.Find(); err == nil {
		srv, err := redisproc.Start(redisproc.Options{})
		if err != nil {
			return nil, err
		}
		return &server{
			what: path + " at " + srv.Addr(), options: &redis.Options{Addr: srv.Addr()},
			kill: srv.Kill, restart: srv.Restart, close: func() { srv.Close() },
		}, nil
	}
	mini, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	return &server{
		what:    "a Redis embedded in this program at " + mini.Addr() + " (there is no redis-server on PATH)",
		options: &redis.Options{Addr: mini.Addr()},
		kill: func() error {
			mini.Close()
			mini.FlushAll() // a server that is killed loses what it held
			return nil
		},
		restart: mini.Restart,
		close:   mini.Close,
	}, nil
}
