// Package redistest gives tests real Redis servers.
package redistest

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/redisproc"
)

// Start runs a server for the length of the test. Where there is no
// redis-server the test is skipped, or fails if HOLDFAST_REQUIRE_REDIS is 1.
func Start(t testing.TB, config ...[]string) *redisproc.Server {
	t.Helper()
	return StartWith(t, redisproc.Options{Config: config})
}

// StartWith is Start with all options.
func StartWith(t testing.TB, opts redisproc.Options) *redisproc.Server {
	t.Helper()
	Require(t)
	srv, err := redisproc.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("redis-server %s logged:\n%s", srv.Addr(), srv.Logs())
		}
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	return srv
}

// StartCluster runs a cluster for the length of the test.
func StartCluster(t testing.TB, masters, replicas int) *redisproc.Cluster {
	t.Helper()
	Require(t)
	c, err := redisproc.StartCluster(masters, replicas)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// StartSentinel runs a master, replicas and sentinels for the length of the test.
func StartSentinel(t testing.TB, replicas, sentinels int) *redisproc.Sentinel {
	t.Helper()
	Require(t)
	s, err := redisproc.StartSentinel(replicas, sentinels)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// VerifyNoLeaks runs the tests of a package and fails when a goroutine is left.
// One of go-redis itself sleeps for up to a second after its client is closed,
// when dialling had failed before.
func VerifyNoLeaks(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// Require skips the test, or fails it, where there is no redis-server.
func Require(t testing.TB) {
	t.Helper()
	_, err := redisproc.Find()
	fatal, reason := missing(err, os.Getenv("HOLDFAST_REQUIRE_REDIS"))
	switch {
	case reason == "":
	case fatal:
		t.Fatal(reason)
	default:
		t.Skip(reason)
	}
}

// missing says why a test that needs Redis cannot run, and whether that is a
// failure.
func missing(err error, require string) (fatal bool, reason string) {
	if err == nil {
		return false, ""
	}
	if require == "1" {
		return true, fmt.Sprintf("HOLDFAST_REQUIRE_REDIS=1, but %v", err)
	}
	return false, err.Error()
}

// Client returns a client as users make it: with an address and nothing else.
func Client(t testing.TB, srv *redisproc.Server) *redis.Client {
	t.Helper()
	return closed(t, redis.NewClient(&redis.Options{Addr: srv.Addr()}))
}

// Admin returns a client for the test's own commands, which fails fast.
func Admin(t testing.TB, srv *redisproc.Server) *redis.Client {
	t.Helper()
	return closed(t, redis.NewClient(&redis.Options{
		Addr: srv.Addr(), MaxRetries: -1, DialerRetries: 1, ReadTimeout: 10 * time.Second, ContextTimeoutEnabled: true,
	}))
}

func closed(t testing.TB, c *redis.Client) *redis.Client {
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Calls returns how many times the server has run a command, such as "evalsha".
func Calls(t testing.TB, srv *redisproc.Server, command string) int64 {
	t.Helper()
	info, err := Admin(t, srv).Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`cmdstat_` + regexp.QuoteMeta(command) + `:calls=(\d+)`).FindStringSubmatch(info)
	if m == nil {
		return 0
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
