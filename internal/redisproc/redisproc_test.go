//go:build unix

package redisproc_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// orphan, when set in the environment, makes this test program the parent that
// TestDiesWithParent kills.
const orphan = "HOLDFAST_TEST_ORPHAN"

func TestMain(m *testing.M) {
	if os.Getenv(orphan) != "" {
		parent()
	}
	redistest.VerifyNoLeaks(m)
}

// parent starts a server, says its process id, and waits to be killed.
func parent() {
	srv, err := redisproc.Start(redisproc.Options{})
	if err != nil {
		println(err.Error())
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString(strconv.Itoa(srv.PID()) + "\n")
	select {}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// soon polls for what happens in another process.
func soon(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func TestDiesWithParent(t *testing.T) {
	redistest.Require(t)
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a child that its parent has died")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), orphan+"=1", "TMPDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(errors.Join(err, cmd.Wait()))
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	must(t, err)
	must(t, syscall.Kill(pid, syscall.SIGSTOP)) // frozen, too
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	soon(t, "the server is gone", func() bool { return dead(pid) })
}

// dead is true of a process that is gone, or only waits for a foster parent to
// take note of its end.
func dead(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestEndOfTheProcessIsNoticed(t *testing.T) {
	srv := redistest.Start(t)
	_ = redistest.Admin(t, srv).ShutdownNoSave(context.Background())
	soon(t, "not running", func() bool { return !srv.Running() && srv.PID() == 0 })
	for _, f := range []func() error{srv.Freeze, srv.Thaw} {
		if f() == nil {
			t.Error("no error for a process that is gone")
		}
	}
	must(t, srv.Terminate())
	must(t, srv.Kill())
	must(t, srv.Restart())
	must(t, redistest.Admin(t, srv).Ping(context.Background()).Err())
}

// A frozen server answers nothing from the moment Freeze returns.
func TestFreezeIsDoneWhenItReturns(t *testing.T) {
	srv := redistest.Start(t)
	for range 50 {
		must(t, srv.Freeze())
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(srv.PID()), "stat"))
		if errors.Is(err, os.ErrNotExist) {
			t.Skip("no /proc")
		}
		if !strings.Contains(string(stat), ") T ") {
			t.Fatalf("not stopped: %s", stat)
		}
		must(t, srv.Thaw())
	}
}

// Nobody, ourselves included, gets the port of a server that is down.
func TestPortIsKeptWhileDown(t *testing.T) {
	srv := redistest.Start(t)
	for range 3 {
		must(t, srv.Kill())
		if c, err := net.Dial("tcp", srv.Addr()); err == nil {
			_ = c.Close()
			t.Fatal("the port of a killed server accepts")
		}
		must(t, srv.Restart())
	}
}

func TestSavedDataComesBack(t *testing.T) {
	srv := redistest.Start(t, []string{"appendonly", "yes"}, []string{"appendfsync", "always"})
	ctx := context.Background()
	must(t, redistest.Admin(t, srv).Set(ctx, "k", "v", 0).Err())
	must(t, srv.Kill())
	must(t, srv.Restart())
	if v := redistest.Admin(t, srv).Get(ctx, "k").Val(); v != "v" {
		t.Errorf("saved data did not come back: %q", v)
	}
}

func TestBadOptions(t *testing.T) {
	redistest.Require(t)
	for says, o := range map[string]redisproc.Options{
		`"port"`:            {Config: [][]string{{"port", "1"}}},
		`"dir"`:             {Config: [][]string{{"DIR", "/"}}},
		"empty":             {Config: [][]string{{}}},
		"no-such-directive": {Config: [][]string{{"no-such-directive", "1"}}},
	} {
		srv, err := redisproc.Start(o)
		if err == nil {
			t.Errorf("%s: accepted", says)
			must(t, srv.Close())
		} else if !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want it to say %s", err, says)
		}
	}
}

// All methods at once, then all that is left after Close.
func TestAnyOrder(t *testing.T) {
	srv := redistest.Start(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for k := range 8 {
				f := []func() error{srv.Kill, srv.Restart, srv.Freeze, srv.Thaw, srv.Terminate, srv.Restart}[(i+k)%6]
				_ = f() // freezing what is down is an error
				_, _, _, _ = srv.Running(), srv.PID(), srv.Addr(), srv.Logs()
			}
		})
	}
	wg.Wait()
	must(t, srv.Restart())
	must(t, redistest.Admin(t, srv).Ping(context.Background()).Err())
	must(t, srv.Freeze())
	for range 4 {
		wg.Go(func() {
			if err := srv.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if srv.Running() || srv.Restart() == nil || srv.Freeze() == nil {
		t.Error("a closed server goes on")
	}
	must(t, srv.Kill())
	must(t, srv.Terminate())
	if !strings.Contains(srv.Logs(), "Ready to accept connections") {
		t.Error("the logs are gone with the folder")
	}
}
