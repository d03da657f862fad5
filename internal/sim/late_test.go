package sim

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/limiter"
)

// noticed is a connection whose end is counted.
type noticed struct {
	*conn
	once  sync.Once
	ended *atomic.Int64
}

func (c *noticed) Close() error {
	c.once.Do(func() { c.ended.Add(1) })
	return c.conn.Close()
}

// TestLateAnswersKeepTheirConnections: a client that keeps to deadlines does not end a
// connection for an answer that is a little late, or a server with more load than it can
// carry would have to accept a new one for each call.
func TestLateAnswersKeepTheirConnections(t *testing.T) {
	standing(t, 1, 1, limiter.GCRA(limiter.PerHour(10_000), 10_000), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
		var dialled, ended atomic.Int64
		rdb := redis.NewClient(&redis.Options{
			Addr: l.srv.address(), Protocol: 2, ContextTimeoutEnabled: true,
			OnConnect: func(context.Context, *redis.Conn) error { return nil }, // so that each call has a goroutine
			Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
				c, err := l.net.dial(ctx, "late", addr)
				if err != nil {
					return nil, err
				}
				dialled.Add(1)
				return &noticed{conn: c.(*conn), ended: &ended}, nil
			},
		})
		lim := must(limiter.New(rdb, limiter.GCRA(limiter.PerHour(10_000), 10_000), limiter.WithShare(1), limiter.WithBudget(400*time.Millisecond),
			limiter.WithBreaker(breaker.Settings{MinRequests: 1000, ConsecutiveFailures: 1000}), limiter.WithLogger(slog.New(slog.DiscardHandler))))
		defer func() { _ = lim.Close(); _ = rdb.Close() }()
		for range 3 {
			if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceRedis {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		var wg sync.WaitGroup
		for range 8 { // connections: while one answer is late, the next call has another one
			wg.Go(func() { _ = rdb.Ping(t.Context()).Err() })
		}
		wg.Wait()
		l.net.set("late", l.srv.address(), func(p *Path) { p.Delay = 250 * time.Millisecond })
		before := dialled.Load() + ended.Load()
		for i := range 10 {
			if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != limiter.SourceLocal {
				t.Fatalf("decision %d: %+v, %v", i, res, err)
			}
		}
		if n := dialled.Load() + ended.Load() - before; n > 3 {
			t.Errorf("connections were dialled or ended %d times for ten late answers", n)
		}
	})
}
