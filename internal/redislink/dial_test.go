package redislink_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/internal/sim"
)

// TestCallersWithLittleTimeGetAConnection: where all callers leave before a connection is made, which takes three round trips
// and the time to dial, one is made nevertheless, and they are answered from then on.
func TestCallersWithLittleTimeGetAConnection(t *testing.T) {
	for _, ends := range []bool{false, true} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			client := r.Client("a", redis.Options{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: ends})
			_ = client.Close()
			opt := *client.Options()
			opt.DisableIdentity = false
			r.SetPath("a", func(p *sim.Path) { p.Delay = 500 * time.Microsecond })
			dial := opt.Dialer
			opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				select {
				case <-time.After(5 * time.Millisecond):
					return dial(ctx, network, addr)
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			rdb := redis.NewClient(&opt)
			defer rdb.Close()
			askWithLittleTime(t, rdb, 50*time.Millisecond)
		})
	}
}

// TestConnectionsLongerThanTheBudget: where a connection takes more round trips than there is time for, it is made nevertheless, by calls
// whose callers have left, and is there for those that come later, one at a time or many at once; also when all connections end later.
func TestConnectionsLongerThanTheBudget(t *testing.T) {
	for _, callers := range []int{1, 100} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			client := r.Client("a", redis.Options{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
			_ = client.Close()
			opt := *client.Options()
			opt.DisableIdentity = false
			r.SetPath("a", func(p *sim.Path) { p.Delay = 10 * time.Millisecond })
			rdb := redis.NewClient(&opt)
			defer rdb.Close()
			l, err := redislink.New(redislink.Config{Client: rdb, Process: "a", Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close(func() {})
			a := limitOf(t, algo.GCRA, 1_000_000)
			var answered atomic.Int64
			for range 50 {
				answered.Store(0)
				var wg sync.WaitGroup
				for i := range callers {
					wg.Go(func() {
						if _, class, _ := ask(t.Context(), l, a, fmt.Sprint("k", i), 1); class == breaker.ClassOK {
							answered.Add(1)
						}
					})
				}
				wg.Wait()
				time.Sleep(100 * time.Millisecond)
			}
			if n := answered.Load(); n != int64(callers) {
				t.Errorf("of the last %d callers %d were answered: %+v", callers, n, rdb.PoolStats())
			}
			r.Crash()
			failed := 0
			for range 20 {
				if _, class, _ := ask(t.Context(), l, a, "k", 1); class != breaker.ClassOK {
					failed++
				}
				time.Sleep(100 * time.Millisecond)
			}
			if failed > 4 {
				t.Errorf("after the connections had ended %d calls had no answer", failed)
			}
		})
	}
}

// TestRareCallersWithLittleTime: those who have the time for one round trip are answered also where seconds pass between them.
func TestRareCallersWithLittleTime(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		r.SetPath("a", func(p *sim.Path) { p.Delay = 500 * time.Microsecond })
		rdb := r.Client("a", redis.Options{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
		defer rdb.Close()
		askWithLittleTime(t, rdb, 2*time.Second)
	})
}

// TestConnectionsAreNotAnswers: a server that answers at once is not slow where every call has to make a connection first, which
// takes longer than an answer may.
func TestConnectionsAreNotAnswers(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		client := r.Client("a", redis.Options{MaxRetries: -1, DialerRetries: 1, ConnMaxIdleTime: time.Millisecond})
		_ = client.Close()
		opt := *client.Options()
		dial := opt.Dialer
		opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			time.Sleep(30 * time.Millisecond)
			return dial(ctx, network, addr)
		}
		rdb := redis.NewClient(&opt)
		defer rdb.Close()
		l, err := redislink.New(redislink.Config{Client: rdb, Process: "a", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close(func() {})
		a := limitOf(t, algo.GCRA, 1000)
		for range 100 {
			began := time.Now()
			if _, class, err := ask(t.Context(), l, a, "k", 1); class != breaker.ClassOK || time.Since(began) < 30*time.Millisecond {
				t.Fatalf("after %v: %v, %v", time.Since(began), class, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// askWithLittleTime asks a hundred times, each time with 2 ms, which is enough for at least 95 of them.
func askWithLittleTime(t *testing.T, rdb *redis.Client, pause time.Duration) {
	t.Helper()
	l, err := redislink.New(redislink.Config{Client: rdb, Process: "a", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(func() {})
	a := limitOf(t, algo.GCRA, 1000)
	answered := 0
	for range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
		if _, class, _ := ask(ctx, l, a, "k", 1); class == breaker.ClassOK {
			answered++
		}
		cancel()
		time.Sleep(pause)
	}
	if answered < 95 {
		t.Errorf("%d of 100 were answered", answered)
	}
}
