package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// TestHelp: the help is the same however it is asked for, and is printed as an error where no command was given.
func TestHelp(t *testing.T) {
	t.Parallel()
	const help = `holdfast shows and changes the limits in a Redis (REDIS_URL, or -url).

  holdfast check                             what in this Redis will hurt, in words
  holdfast inspect KEY                       what is stored for a key
  holdfast reset KEY                         forgets what was counted for a key, and its block
  holdfast block KEY DURATION                denies a key for a time, as 90s, 1h or 36h
  holdfast unblock KEY                       ends a block, and keeps what was counted
  holdfast limits [set NAME TEXT | rm NAME]  the tables of named limits, which fleets obey
  holdfast top [KEY...]                      the keys that the fleet denies most; live in a terminal
  holdfast fleet                             the processes that share the limits, their breakers and debts
  holdfast bench                             what this Redis can do for you: decisions per second, and how long one takes

holdfast COMMAND -h has the flags, which stand behind the command; -json prints JSON. The exit
code is 0 when all is well, 1 when something was found to mend or nothing is stored, 2 for a wrong
command line, and 3 when Redis cannot be reached or rejects it.
`
	s := shell{t: t}
	for _, name := range []string{"help", "-h", "-help", "--help"} {
		if code, out, errs := s.run(name, "more"); code != exitDone || out != help || errs != "" {
			t.Errorf("%s: %d\n%s%s", name, code, out, errs)
		}
	}
	if code, out, errs := s.run(); code != exitUsage || out != "" || errs != help {
		t.Errorf("nothing: %d\n%s%s", code, out, errs)
	}
	if code, out, errs := s.run("tpo"); code != exitUsage || out != "" || errs != "holdfast: there is no command \"tpo\"\n"+help {
		t.Errorf("no command: %d\n%s%s", code, out, errs)
	}
}

// TestHelpOfACommand: its flags are said with their defaults.
func TestHelpOfACommand(t *testing.T) {
	t.Parallel()
	code, out, errs := shell{t: t}.run("block", "-h")
	if code != exitDone || errs != "" || out != `usage: holdfast block KEY DURATION

denies a key for a time, as 90s, 1h or 36h

  -algorithm string
    	of the limiter, as "token bucket"; without it where the key has a state, else all seven
  -ca string
    	file with the certificates to trust, for TLS
  -cert string
    	file with the client's certificate
  -cluster
    	the URL is that of a node of a cluster; found out where possible
  -color string
    	auto, always or never; NO_COLOR is never (default "auto")
  -json
    	print JSON
  -key string
    	file with the client's key
  -prefix string
    	that of the limiters (HOLDFAST_PREFIX) (default "holdfast")
  -shards int
    	the number of WithKeyShards, if the limiter has it
  -timeout duration
    	for each call (default 5s)
  -url string
    	where Redis is: redis://, rediss://, redis+cluster://, redis+sentinel:// (REDIS_URL, else redis://localhost:6379)
  -user string
    	ACL user, where the URL has none (REDIS_USER); its password is REDIS_PASSWORD
` {
		t.Errorf("%d\n%s%s", code, out, errs)
	}
}

// TestFlagsOfEachCommand: it has those of all commands, and its own, with these defaults.
func TestFlagsOfEachCommand(t *testing.T) {
	t.Parallel()
	const all = "ca= cert= cluster=false color=auto json=false key= prefix=holdfast timeout=5s url= user="
	own := map[string]string{
		"check": "", "inspect": "limit= shards=0", "reset": "permits=false", "block": "algorithm= shards=0", "unblock": "", "limits": "table=",
		"top": "every=2s n=20 once=false", "fleet": "", "bench": "callers=64 for=1s",
	}
	for _, c := range commands() {
		want := strings.Fields(all + " " + own[c.name])
		p := program{env: func(string) string { return "" }}
		set, _, err := p.parse(c, []string{"a"})
		must(t, err)
		got := map[string]bool{}
		set.VisitAll(func(f *flag.Flag) { got[f.Name+"="+f.DefValue] = true })
		for _, f := range want {
			if !got[f] {
				t.Errorf("holdfast %s has no flag -%s, but %v", c.name, f, got)
			}
		}
		if len(got) != len(want) {
			t.Errorf("holdfast %s has %d flags, want %d", c.name, len(got), len(want))
		}
	}
}

// TestFlagsAreRead: flags stand before and behind arguments, and what follows "--" is none. The environment
// has what no flag says.
func TestFlagsAreRead(t *testing.T) {
	t.Parallel()
	env := map[string]string{"REDIS_URL": "redis://env", "REDIS_USER": "me", "REDIS_PASSWORD": "secret", "HOLDFAST_PREFIX": "mine"}
	c := commands()[3]
	for _, one := range []struct {
		args []string
		rest string
		want flags
	}{
		{
			[]string{"k", "1h"},
			"[k 1h]", flags{address: operator.Address{URL: "redis://env", User: "me", Password: "secret", Timeout: 5 * time.Second}, prefix: "mine", color: "auto"},
		},
		{
			[]string{"-cluster", "-shards", "64", "k", "-json", "-algorithm=gcra", "-url", "a:1", "-user", "you", "-prefix", "p", "-color", "never", "-ca", "x", "-cert", "y", "-key", "z", "-timeout", "1ns", "--", "-k", "--", "2"},
			"[k -k -- 2]",
			flags{
				address: operator.Address{URL: "a:1", User: "you", Password: "secret", Timeout: 1, Cluster: true, CA: "x", Cert: "y", Key: "z"},
				prefix:  "p", color: "never", json: true, shards: 64, algorithm: "gcra",
			},
		},
	} {
		p := program{env: func(name string) string { return env[name] }}
		if _, rest, err := p.parse(c, one.args); err != nil || fmt.Sprint(rest) != one.rest || p.flags != one.want {
			t.Errorf("%q: %v, %v\n%+v, want\n%+v", one.args, err, rest, p.flags, one.want)
		}
	}
}

// TestUsageError: a mistake is said in one line, with the usage below, on the standard error alone.
func TestUsageError(t *testing.T) {
	t.Parallel()
	code, out, errs := shell{t: t}.run("block", "k\x1b")
	if code != exitUsage || out != "" || errs != `holdfast block: 1 arguments, want KEY DURATION
usage: holdfast block KEY DURATION
holdfast block -h has the flags
` {
		t.Errorf("%d\n%s%s", code, out, errs)
	}
}

// TestPrintedJSON: it has names as they are, and says what cannot be printed.
func TestPrintedJSON(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	p := program{out: &out, errs: &errs, flags: flags{json: true}}
	p.print(command{}, map[string]string{"key": "<a&b>"})
	p.print(command{}, nil)
	if out.String() != "{\n  \"key\": \"<a&b>\"\n}\n" || errs.String() != "" {
		t.Errorf("%q, %q", &out, &errs)
	}
	p.print(command{}, func() {})
	if !strings.HasPrefix(errs.String(), "holdfast: json: ") || !strings.HasSuffix(errs.String(), "\n") {
		t.Errorf("%q", &errs)
	}
}

// unreachable is an operator of a Redis that does not answer.
func unreachable(t *testing.T) *operator.Operator {
	rdb := redis.NewClient(&redis.Options{MaxRetries: -1, DialerRetries: 1, Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no\tnetwork")
	}})
	t.Cleanup(func() { must(t, rdb.Close()) })
	op, err := operator.New(rdb, "holdfast")
	must(t, err)
	return op
}

// TestLiveWithoutRedis: in a terminal top says that Redis does not answer, and tries again; elsewhere it ends.
func TestLiveWithoutRedis(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	out := &screens{most: 2, full: cancel}
	p := program{env: func(string) string { return "" }, out: out, terminal: true, op: unreachable(t), flags: flags{every: 100 * time.Millisecond, color: "always"}}
	result, err := p.top(ctx, nil)
	screen := "\x1b[H\x1b[2J\x1b[31mredis does not answer:\x1b[0m \"no\\tnetwork\"\n\n\x1b[2mCtrl-C ends; renewed every 100ms\x1b[0m\n"
	if result != nil || err != nil || p.code != exitDone || out.text.String() != screen+screen {
		t.Errorf("%v, %v, %d\n%q", result, err, p.code, out.text.String())
	}
	for _, c := range []struct {
		name string
		f    flags
	}{{"once", flags{once: true}}, {"json", flags{json: true}}, {"no terminal", flags{}}} {
		var text bytes.Buffer
		p := program{env: p.env, out: &text, terminal: c.name != "no terminal", op: p.op, flags: c.f}
		p.every = time.Second
		if _, err := p.top(t.Context(), nil); err == nil || text.String() != "" {
			t.Errorf("%s: %v, %q", c.name, err, text.String())
		}
	}
}

// TestLiveThatIsEnded: a person who ends top while it asks is not bothered with an error, but a program is.
func TestLiveThatIsEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	p := program{env: func(string) string { return "" }, out: &out, terminal: true, op: unreachable(t), flags: flags{every: time.Second}}
	if result, err := p.top(ctx, nil); result != nil || err != nil || p.code != exitDone || out.String() != "" {
		t.Errorf("%v, %v, %d, %q", result, err, p.code, &out)
	}
	p.terminal = false
	if _, err := p.top(ctx, nil); err == nil {
		t.Error("no error")
	}
}

// TestConnectionsAreClosed: a command leaves none.
func TestConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := program{env: func(string) string { return "" }, out: new(bytes.Buffer), errs: new(bytes.Buffer)}
	if code := p.run(t.Context(), []string{"top", "-n", "0", "-url", srv.Addr()}); code != exitFound {
		t.Error(code)
	}
	if err := p.rdb.Ping(t.Context()).Err(); !errors.Is(err, redis.ErrClosed) {
		t.Error(err)
	}
}

// TestPermitsAreKept: a reset removes the permits that are held only where it is asked to.
func TestPermitsAreKept(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := shell{t: t, env: map[string]string{"REDIS_URL": srv.Addr()}}
	rdb := redistest.Admin(t, srv)
	must(t, rdb.ZAdd(t.Context(), "holdfast:v1:permits:{k}", redis.Z{Score: 1, Member: "m"}).Err())
	if code, out, _ := s.run("reset", "k"); code != exitFound {
		t.Errorf("%d, %s", code, out)
	}
	if code, out, _ := s.run("reset", "k", "-permits"); code != exitDone || !strings.HasPrefix(out, "changed holdfast:v1:permits:{k}\n") {
		t.Errorf("%d, %s, %v", code, out, rdb.Keys(t.Context(), "*"))
	}
}

// process runs the command as a process of its own.
func process(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "HOLDFAST_TEST_COMMAND=1", "REDIS_URL=127.0.0.1:1")
	return cmd
}

// TestProcess: the process has the exit code of the command, and prints what the command prints and nothing else,
// though the packages that it uses print errors, too.
func TestProcess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code      int
		out, errs string // how they begin
		lines     int    // of errors
		args      []string
	}{
		{exitDone, "holdfast shows and changes", "", 0, []string{"help"}},
		{exitDone, "usage: holdfast check", "", 0, []string{"check", "-h"}},
		{exitUsage, "", "holdfast check: flag provided but not defined: -nothing", 3, []string{"check", "-nothing"}},
		{exitFailure, "", "holdfast check: redis at redis://127.0.0.1:1 does not answer: ", 1, []string{"check"}},
	} {
		var out, errs bytes.Buffer
		cmd := process(c.args...)
		cmd.Stdout, cmd.Stderr = &out, &errs
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.HasPrefix(out.String(), c.out) || (c.out == "") != (out.String() == "") ||
			!strings.HasPrefix(errs.String(), c.errs) || strings.Count(errs.String(), "\n") != c.lines {
			t.Errorf("%q: %d\n%s%s", c.args, code, &out, &errs)
		}
	}
}

// TestTerminated: a process that is asked to end says why it did not do what it should, and its exit code does.
func TestTerminated(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("processes get no SIGTERM")
	}
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	cmd := process("check", "-url", silent.Addr().String(), "-timeout", "1m")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	must(t, cmd.Start())
	conn, err := silent.Accept()
	must(t, err)
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	must(t, silent.Close())
	must(t, conn.Close())
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitFailure || !strings.HasPrefix(errs.String(), "holdfast check: ") {
		t.Errorf("%v\n%s", cmd.ProcessState, &errs)
	}
}

// TestTerminals: what is written to a device is read by a person, unless that is a dumb one.
func TestTerminals(t *testing.T) {
	device, err := os.Open(os.DevNull)
	must(t, err)
	defer device.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	must(t, err)
	t.Setenv("TERM", "xterm")
	if !isTerminal(device) || isTerminal(file) {
		t.Errorf("device %v, file %v", isTerminal(device), isTerminal(file))
	}
	must(t, file.Close())
	if isTerminal(file) {
		t.Error("a closed file is a terminal")
	}
	t.Setenv("TERM", "dumb")
	if isTerminal(device) || isTerminal(file) {
		t.Error("a dumb terminal is one")
	}
}
