//go:build unix

package redistest

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redisproc"
)

func TestMain(m *testing.M) { VerifyNoLeaks(m) }

func TestMissingRedisSkipsUnlessRequired(t *testing.T) {
	for _, c := range []struct {
		err     error
		require string
		fatal   bool
		says    string
	}{
		{nil, "", false, ""},
		{nil, "1", false, ""},
		{redisproc.ErrNotFound, "", false, "redis-server not found"},
		{redisproc.ErrNotFound, "1", true, "HOLDFAST_REQUIRE_REDIS=1"},
	} {
		fatal, reason := missing(c.err, c.require)
		if fatal != c.fatal || !strings.Contains(reason, c.says) || (reason == "") != (c.says == "") {
			t.Errorf("%v, %q: %v, %q", c.err, c.require, fatal, reason)
		}
	}
}

func TestFindWithoutBinary(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("HOLDFAST_REDIS_SERVER", "")
	if _, err := redisproc.Find(); !errors.Is(err, redisproc.ErrNotFound) {
		t.Errorf("error %v", err)
	}
}

// TestLife takes a server through all that tests do to one.
func TestLife(t *testing.T) {
	var pid int
	var dir string
	t.Run("server", func(t *testing.T) {
		srv := Start(t, []string{"maxmemory", "100mb"})
		admin := Admin(t, srv)
		ctx := context.Background()
		config := admin.ConfigGet(ctx, "*").Val()
		if dir = config["dir"]; config["maxmemory"] != "104857600" || dir == "" {
			t.Errorf("maxmemory %q, dir %q", config["maxmemory"], dir)
		}
		if err := admin.Set(ctx, "k", "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if n := Calls(t, srv, "set"); n != 1 {
			t.Errorf("%d calls of SET", n)
		}

		frozen := func() bool {
			ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			return admin.Ping(ctx).Err() != nil
		}
		check(t, srv.Freeze())
		if !frozen() {
			t.Error("a frozen server answers")
		}
		check(t, srv.Thaw())
		check(t, admin.Ping(ctx).Err())

		for _, end := range []func() error{srv.Kill, srv.Kill, srv.Terminate} {
			check(t, end())
			if srv.Running() || admin.Ping(ctx).Err() == nil {
				t.Error("an ended server runs")
			}
		}
		if err := srv.Freeze(); err == nil {
			t.Error("a server that does not run was frozen")
		}
		check(t, srv.Restart())
		if n := admin.Exists(ctx, "k").Val(); n != 0 {
			t.Error("a restart kept the data")
		}
		check(t, srv.Freeze())
		check(t, srv.Terminate())
		check(t, srv.Restart())
		pid = srv.PID()
	})
	if pid == 0 {
		t.SkipNow() // the subtest has said why
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the process is still there: %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func TestClusterFailover(t *testing.T) {
	c := StartCluster(t, 3, 1)
	const slot = 0
	old, err := c.MasterOf(slot)
	check(t, err)
	if old != c.Masters[0] {
		t.Fatalf("slot %d is served by %s", slot, old.Addr())
	}
	check(t, old.Kill())
	if s, err := c.MasterOf(slot); s != old || err != nil {
		t.Errorf("before a promotion: %v, %v", s, err)
	}
	promoted := old
	Until(t, "a replica is promoted", func() bool {
		promoted, err = c.MasterOf(slot)
		return err == nil && promoted != old
	})
	if promoted != c.Replicas[0][0] {
		t.Errorf("%s was promoted, not the replica of %s", promoted.Addr(), old.Addr())
	}
	check(t, c.WaitOK())
	check(t, old.Restart())
	check(t, c.WaitOK()) // as a replica now
	if s, err := c.MasterOf(slot); s != promoted || err != nil {
		t.Errorf("after the old master's return: %v, %v", s, err)
	}

	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	closed(t, client)
	ctx := context.Background()
	const key = "k"
	check(t, client.Set(ctx, key, "v", 0).Err())
	n, err := client.ClusterKeySlot(ctx, key).Result()
	check(t, err)
	from, err := c.MasterOf(int(n))
	check(t, err)
	to := c.Masters[1]
	if to == from {
		to = c.Masters[2]
	}
	check(t, c.MigrateSlot(int(n), from, to))
	if s, err := c.MasterOf(int(n)); s != to || err != nil {
		t.Errorf("after a migration: %v, %v", s, err)
	}
	if v, err := client.Get(ctx, key).Result(); v != "v" || err != nil {
		t.Errorf("a key that moved: %q, %v", v, err)
	}
	if v, err := Admin(t, to).Get(ctx, key).Result(); v != "v" || err != nil {
		t.Errorf("at the new owner: %q, %v", v, err)
	}
}

func TestSentinelFailover(t *testing.T) {
	s := StartSentinel(t, 1, 3)
	master := func() string {
		addr, err := Admin(t, s.Sentinels[0]).Do(t.Context(), "sentinel", "get-master-addr-by-name", redisproc.MasterName).StringSlice()
		check(t, err)
		return net.JoinHostPort(addr[0], addr[1])
	}
	if got := master(); got != s.Master.Addr() {
		t.Fatalf("the first sentinel names %s", got)
	}
	check(t, s.Master.Freeze())
	Until(t, "the replica is promoted", func() bool { return master() == s.Replicas[0].Addr() })
	// A sentinel remembers over a restart what it saw.
	for _, other := range s.Sentinels[1:] {
		check(t, other.Kill())
	}
	check(t, s.Sentinels[0].Restart())
	if got := master(); got != s.Replicas[0].Addr() {
		t.Errorf("after a restart the first sentinel names %s", got)
	}
}

func TestGroupSizes(t *testing.T) {
	for _, n := range [][2]int{{0, 0}, {-1, 1}, {1, -1}} {
		if _, err := redisproc.StartCluster(n[0], n[1]); err == nil {
			t.Errorf("a cluster of %v", n)
		}
		if _, err := redisproc.StartSentinel(n[1], n[0]); err == nil {
			t.Errorf("sentinels %v", n)
		}
	}
}

func TestTLS(t *testing.T) {
	srv := StartWith(t, redisproc.Options{TLS: true})
	check(t, srv.Restart())
	ctx := context.Background()
	check(t, Client(t, srv).Ping(ctx).Err())
	for name, conf := range map[string]*tls.Config{"no TLS": nil, "unknown authority": {ServerName: "127.0.0.1"}} {
		c := closed(t, redis.NewClient(&redis.Options{Addr: srv.Addr(), TLSConfig: conf, MaxRetries: -1, DialerRetries: 1}))
		if err := c.Ping(ctx).Err(); err == nil {
			t.Errorf("%s: the server answers", name)
		}
	}
	if Start(t).TLSConfig() != nil {
		t.Error("a server without TLS has a certificate")
	}
}

func TestACL(t *testing.T) {
	srv := Start(t, []string{"user", "default", "off"}, []string{"user", "app", "on", ">secret", "~app:*", "+get", "+set"})
	c := closed(t, redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "app", Password: "secret"}))
	ctx := context.Background()
	check(t, c.Set(ctx, "app:k", "v", 0).Err())
	if err := c.Set(ctx, "other", "v", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("a foreign key: %v", err)
	}
	check(t, srv.Restart()) // nobody may PING it
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
