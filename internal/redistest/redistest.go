// Package redistest gives tests real Redis servers, and networks that fail.
package redistest

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
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
	cleanup(t, srv.Close, srv)
	return srv
}

// cleanup ends servers with the test, and logs what they logged if it failed.
func cleanup(t testing.TB, end func() error, servers ...*redisproc.Server) {
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Error(err)
		}
		if !t.Failed() {
			return
		}
		for _, s := range servers {
			t.Logf("redis-server %s logged:\n%s", s.Addr(), s.Logs())
		}
	})
}

// StartCluster runs a cluster for the length of the test.
func StartCluster(t testing.TB, masters, replicas int, config ...[]string) *redisproc.Cluster {
	t.Helper()
	Require(t)
	c, err := redisproc.StartCluster(masters, replicas, config...)
	if err != nil {
		t.Fatal(err)
	}
	cleanup(t, c.Close, c.Nodes()...)
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
	cleanup(t, s.Close, s.Nodes()...)
	return s
}

// parallel is how many tests run at once that say that they may: most wait for servers and
// for time, few compute.
const parallel = "4"

// VerifyNoLeaks runs the tests of a package and fails when a goroutine is left.
// Two of go-redis itself sleep for up to a second after their client is closed: one
// between attempts to dial, and one when dialling had failed before.
func VerifyNoLeaks(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", parallel)
	}
	const pool = "github.com/redis/go-redis/v9/internal/pool.(*ConnPool)."
	goleak.VerifyTestMain(watched{m}, goleak.IgnoreAnyFunction(pool+"dialConn"), goleak.IgnoreAnyFunction(pool+"tryDial"))
}

// watched says with tests that failed whether the machine stood still.
type watched struct{ tests goleak.TestingM }

func (w watched) Run() int {
	s := watchStalls()
	code := w.tests.Run()
	s.report(os.Stderr, code != 0)
	return code
}

// Require skips the test, or fails it, where there is no redis-server. It also skips with
// -short, which is for tests that need no server.
func Require(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server")
	}
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

// Since skips the test on servers before a version, which lack what it is about.
func Since(t testing.TB, major, minor int, what string) {
	t.Helper()
	Require(t)
	if !redisproc.AtLeast(major, minor) {
		t.Skipf("%s: since Redis %d.%d", what, major, minor)
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

// Client returns a client as users make it: with an address and nothing else,
// but the certificate of a server that has one.
func Client(t testing.TB, srv *redisproc.Server) *redis.Client {
	t.Helper()
	return closed(t, redis.NewClient(&redis.Options{Addr: srv.Addr(), TLSConfig: srv.TLSConfig()}))
}

// Admin returns a client for the test's own commands, which fails fast.
func Admin(t testing.TB, srv *redisproc.Server) *redis.Client {
	t.Helper()
	return closed(t, admin(srv))
}

func admin(srv *redisproc.Server) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: srv.Addr(), TLSConfig: srv.TLSConfig(), MaxRetries: -1, DialerRetries: 1, DialTimeout: 10 * time.Second,
		ReadTimeout: 10 * time.Second, ContextTimeoutEnabled: true,
	})
}

func closed[C io.Closer](t testing.TB, c C) C {
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Behind returns a proxy in front of a server, and a client that goes through it: opt with
// the address of the proxy.
func Behind(t testing.TB, srv *redisproc.Server, opt redis.Options) (*faultproxy.Proxy, *redis.Client) {
	t.Helper()
	p, err := faultproxy.New(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	opt.Addr = p.Addr()
	return p, closed(t, redis.NewClient(&opt))
}

// Until waits for something to become true, and fails the test when it does not within
// a minute: a busy machine must not fail it.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// Calls returns how many times the server has run a command, such as "evalsha"
// or "script|load", since it was started, also from within scripts.
func Calls(t testing.TB, srv *redisproc.Server, command string) int64 {
	t.Helper()
	return executed(t, srv)[command]
}

// Commands returns how often the server has executed any command, of clients and of scripts.
func Commands(t testing.TB, srv *redisproc.Server) (sum int64) {
	t.Helper()
	for command, n := range executed(t, srv) {
		if command != "info" && command != "hello" && !strings.HasPrefix(command, "client") { // those of this package
			sum += n
		}
	}
	return sum
}

// executed is how often a server has executed each command.
func executed(t testing.TB, srv *redisproc.Server) map[string]int64 {
	t.Helper()
	client := admin(srv)
	defer client.Close()
	info, err := client.Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int64{}
	for line := range strings.Lines(info) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		calls, _, _ := strings.Cut(rest, ",")
		if all[name], err = strconv.ParseInt(calls, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	return all
}
