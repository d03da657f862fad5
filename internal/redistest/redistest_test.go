package redistest

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

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
	check(t, c.Masters[0].Kill())
	admin := Admin(t, c.Replicas[0][0])
	for deadline := time.Now().Add(20 * time.Second); admin.Do(context.Background(), "role").Val().([]any)[0] != "master"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the replica was not promoted")
		}
	}
	check(t, c.Masters[0].Restart())
}

func TestSentinelFailover(t *testing.T) {
	s := StartSentinel(t, 1, 3)
	check(t, s.Master.Kill())
	admin := Admin(t, s.Replicas[0])
	for deadline := time.Now().Add(20 * time.Second); admin.Do(context.Background(), "role").Val().([]any)[0] != "master"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the replica was not promoted")
		}
	}
}

func TestTLS(t *testing.T) {
	srv := StartWith(t, redisproc.Options{TLS: true})
	if srv.TLSConfig() == nil || srv.Restart() != nil {
		t.Error("no TLS")
	}
}

func TestBadConfigIsSaid(t *testing.T) {
	Require(t)
	_, err := redisproc.Start(redisproc.Options{Config: [][]string{{"no-such-directive", "1"}}})
	if err == nil {
		t.Error("a bad directive was accepted")
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
