package limiter_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/sim"
)

// onBoth runs a test on a Redis, and in virtual time on a simulated one, which needs no server. Each client that the
// test makes is of another process.
func onBoth(t *testing.T, test func(t *testing.T, client func() *redis.Client)) {
	t.Helper()
	t.Run("server", func(t *testing.T) {
		srv := redistest.Start(t)
		test(t, func() *redis.Client { return redistest.Client(t, srv) })
	})
	t.Run("simulated", func(t *testing.T) {
		sim.Test(t, func(t *testing.T, r *sim.Redis) { test(t, clients(t, r)) })
	})
}

// clients returns what makes clients of a simulated Redis.
func clients(t *testing.T, r *sim.Redis) func() *redis.Client {
	n := 0
	return func() *redis.Client {
		n++
		rdb := r.Client(fmt.Sprint("p", n), redis.Options{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
}
