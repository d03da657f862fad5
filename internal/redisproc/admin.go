package redisproc

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// admin returns a client that gives up soon: who asks tries again.
func admin(s *Server) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: s.Addr(), TLSConfig: s.TLSConfig(), MaxRetries: -1, DialerRetries: 1, PoolSize: 1,
		DialTimeout: 10 * time.Second, ReadTimeout: 5 * time.Second,
	})
}

func do(s *Server, args ...any) error {
	c := admin(s)
	defer c.Close()
	return c.Do(context.Background(), args...).Err()
}

func text(s *Server, args ...any) (string, error) {
	c := admin(s)
	defer c.Close()
	return c.Do(context.Background(), args...).Text()
}

func addrs(servers []*Server) []string {
	var all []string
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return all
}

func closeAll(servers []*Server) error {
	var errs []error
	for _, s := range servers {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
