// Package demo has what the example programs share.
package demo

import (
	"fmt"
	"os"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redisproc"
)

// Kind says whose a server is.
type Kind string

// The kinds of servers.
const (
	Foreign  Kind = "foreign"  // that of REDIS_URL
	Process  Kind = "process"  // a redis-server that we started
	Embedded Kind = "embedded" // in this program
)

// Redis is the server of a demonstration.
type Redis struct {
	What    string // for people
	Kind    Kind
	Options *redis.Options
	// Kill and Restart are nil for a server that is not ours.
	Kill, Restart func() error
	// Freeze and Thaw stop the process and let it go on; nil where there is none
	// that is ours.
	Freeze, Thaw func() error
	Close        func()
}

// StartRedis uses REDIS_URL where that is set, else starts a redis-server found
// on PATH, else one embedded in the program.
func StartRedis() (*Redis, error) {
	if url := os.Getenv("REDIS_URL"); url != "" {
		return UseForeign(url)
	}
	if _, err := redisproc.Find(); err == nil {
		return StartProcess()
	}
	return StartEmbedded()
}

// UseForeign uses the server of a URL, as REDIS_URL has it.
func UseForeign(url string) (*Redis, error) {
	opt, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("REDIS_URL: %w", err)
	}
	return &Redis{
		What: "the Redis of REDIS_URL at " + opt.Addr + ", which is not ours to kill: there will be no outage",
		Kind: Foreign, Options: opt, Close: func() {},
	}, nil
}

// StartProcess starts a redis-server found on PATH.
func StartProcess() (*Redis, error) {
	path, err := redisproc.Find()
	if err != nil {
		return nil, err
	}
	srv, err := redisproc.Start(redisproc.Options{})
	if err != nil {
		return nil, err
	}
	return &Redis{
		What: path + " at " + srv.Addr(), Kind: Process, Options: &redis.Options{Addr: srv.Addr()},
		Kill: srv.Kill, Restart: srv.Restart, Freeze: srv.Freeze, Thaw: srv.Thaw, Close: func() { srv.Close() },
	}, nil
}

// StartEmbedded starts a Redis in this program, behind a proxy: closed under a running script, it
// would answer that with an error that no Redis has.
func StartEmbedded() (*Redis, error) {
	mini, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	proxy, err := faultproxy.New(mini.Addr())
	if err != nil {
		mini.Close()
		return nil, err
	}
	return &Redis{
		What:    "a Redis embedded in this program at " + proxy.Addr() + " (there is no redis-server on PATH)",
		Kind:    Embedded,
		Options: &redis.Options{Addr: proxy.Addr()},
		Kill: func() error {
			proxy.Set(faultproxy.Mode{Refuse: true})
			proxy.Reset()
			mini.Close()
			mini.FlushAll() // a server that is killed loses what it held
			return nil
		},
		Restart: func() error {
			err := mini.Restart()
			proxy.Pass()
			return err
		},
		Close: func() {
			proxy.Close()
			mini.Close()
		},
	}, nil
}
