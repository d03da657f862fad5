package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/analytics"
	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

func TestMain(m *testing.M) {
	if os.Getenv("HOLDFAST_TEST_COMMAND") != "" {
		main()
		return
	}
	logging.Disable()
	redistest.VerifyNoLeaks(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shell runs commands as a person does, or a script.
type shell struct {
	t        *testing.T
	env      map[string]string
	terminal bool
}

// run returns the exit code, and what was printed.
func (s shell) run(args ...string) (code int, out, errs string) {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	p := program{env: func(name string) string { return s.env[name] }, out: &stdout, errs: &stderr, terminal: s.terminal}
	code = p.run(s.t.Context(), args)
	return code, stdout.String(), stderr.String()
}

// numbers are what differs from run to run.
var numbers = regexp.MustCompile(`\d+-\d\d-\d\dT[\d:]+Z|\d[\d.hmµ]*s\b|127\.0\.0\.1:\d+|[0-9a-f]{16}\b`)

// want runs a command, and compares what it prints but for times and addresses.
func (s shell) want(code int, golden string, args ...string) {
	s.t.Helper()
	got, out, errs := s.run(args...)
	out = spikes.ReplaceAllString(out, "")
	if out = numbers.ReplaceAllString(out+errs, "#"); got != code || fields(out) != fields(golden) {
		s.t.Errorf("holdfast %s: %d\n%s\nwant %d\n%s", strings.Join(args, " "), got, out, code, golden)
	}
}

// fields are the words, with one space between them and without empty lines: the widths of columns depend on
// what is in them.
func fields(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 0 {
			lines = append(lines, strings.Join(words, " "))
		}
	}
	return strings.Join(lines, "\n")
}

// spikes are what check notes on a busy machine.
var spikes = regexp.MustCompile(`(?s)note    one of 30 round trips.*?\n\n`)

func newLimiter(t *testing.T, srv *redisproc.Server, l limiter.Limit, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	lim, err := limiter.New(redistest.Client(t, srv), l, append([]limiter.Option{
		limiter.WithBudget(3 * time.Second), limiter.WithLogger(slog.New(slog.DiscardHandler)), limiter.WithProcess("worker-1"),
	}, opts...)...)
	must(t, err)
	t.Cleanup(func() { must(t, lim.Close()) })
	return lim
}

// TestEveryCommand: what an operator sees of a fleet, and can do.
func TestEveryCommand(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := shell{t: t, env: map[string]string{"REDIS_URL": "redis://" + srv.Addr()}}
	s.want(exitFound, `no process sent a heartbeat under the prefix holdfast within a minute: none decided anything, all have closed, or have a fixed share (WithShare)`, "fleet")
	lim := newLimiter(t, srv, limiter.TokenBucket(limiter.PerMinute(1), 10))
	for range 4 {
		_, err := lim.Allow(t.Context(), "customer:42")
		must(t, err)
	}
	redistest.Until(t, "the heartbeat", func() bool {
		_, out, _ := s.run("fleet")
		return strings.Contains(out, "worker-1")
	})
	s.want(exitDone, `
1 under the prefix holdfast; the share of each is 1

  process              heartbeat        where
  worker-1             # ago
breakers, limits and debts are shown of programs that call analytics.Publish`, "fleet")
	s.want(exitDone, `
customer:42  prefix holdfast

token bucket
  limit       token bucket 1/1m burst 10
  used        4, 6 remain
  reset       in #
  used since  #
  stored      holdfast:v2:tb:{customer:42}, for #`, "inspect", "customer:42")
	s.want(exitDone, `
customer:42 is blocked until #
changed holdfast:v2:tb:{customer:42}`, "block", "customer:42", "1h")
	s.want(exitDone, `
customer:42  prefix holdfast

token bucket
  limit       token bucket 1/1m burst 10
  used        4, 0 remain
  blocked     for #
  next unit   in #
  reset       in #
  used since  #
  stored      holdfast:v2:tb:{customer:42}, for #`, "inspect", "customer:42")
	s.want(exitDone, `
changed holdfast:v2:tb:{customer:42}
note: a process that was denied a moment ago may deny the key for up to # more; a process that blocked the key itself, as httpclient does after a 429, obeys its own block until that ends`, "unblock", "customer:42")
	s.want(exitDone, `
changed holdfast:v2:tb:{customer:42}
note: a process that was denied a moment ago may deny the key for up to # more; leases that processes hold are spent until they end`, "reset", "customer:42")
	s.want(exitFound, `
customer:42  prefix holdfast
nothing is stored: the key was not used lately, is fully reset, or has another prefix`, "inspect", "customer:42")
	s.want(exitFound, `nothing to change: no state is stored for customer:42 under the prefix holdfast`, "reset", "customer:42")
	s.want(exitDone, `there is no table of limits under this prefix`, "limits")
	s.want(exitUsage, `
holdfast limits: say which table by -table NAME: it is the one that the program gives to limits.New
usage: holdfast limits [set NAME TEXT | rm NAME]
holdfast limits -h has the flags`, "limits", "set", "gold", "200/s")
	s.want(exitDone, `
plans  version 1
  gold                 token bucket 200/# burst 400`, "limits", "-table", "plans", "set", "gold", "200/s burst 400")
	s.want(exitDone, `
plans  version 1
  gold                 token bucket 200/# burst 400`, "limits")
	s.want(exitDone, `
plans  version 2
  is empty: each program uses its own limits`, "limits", "rm", "gold", "-table=plans")
	s.want(exitFound, `
plans  version 2
  is empty: each program uses its own limits`, "limits", "rm", "gold", "-table=plans")
	s.want(exitDone, `
#  Redis 7.0.15, master, round trip # (slowest of 30 #)

note    maxmemory is not set
        so: a flood of keys can use all memory of the machine, which then ends the process of Redis
        do: set maxmemory, under noeviction

note    nothing is saved to disk (save is empty, appendonly is no)
        so: a restart gives each key one burst more, and loses blocks and the tables of limits
        do: set appendonly yes and appendfsync everysec if that matters

note    no replica follows this server
        so: while it is down, decisions are made locally
        do: add a replica, with Sentinel or as a cluster, if that is too long

nothing to mend was found`, "check")
	must(t, redistest.Admin(t, srv).ConfigSet(t.Context(), "tcp-keepalive", "0").Err())
	if code, out, _ := s.run("check"); code != exitFound || !strings.Contains(out, "risk    tcp-keepalive is 0") {
		t.Errorf("%d\n%s", code, out)
	}
}

// TestCheckAsALimiter: a user with the permissions of a limiter, which may read neither INFO nor CONFIG, is shown what was not
// checked.
func TestCheckAsALimiter(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, strings.Fields("user lim on >secret ~holdfast:* -@all +hello +evalsha +evalsha_ro +eval +eval_ro +del"+
		" +time +get +set +setrange +mget +pexpire +pttl +zcount +zadd +zrem +zcard"+
		" +zscore +zrangebyscore +zrevrange +zremrangebyscore +zremrangebyrank"))
	s := shell{t: t, env: map[string]string{"REDIS_URL": "redis://" + srv.Addr(), "REDIS_USER": "lim", "REDIS_PASSWORD": "secret"}}
	s.want(exitDone, `
#  Redis of an unknown version, of an unknown role, round trip # (slowest of 30 #)

note    INFO cannot be read: NOPERM this user has no permissions to run the 'info' command
        so: the version, the role, memory and what was evicted are not known, and were not checked
        do: check with a user that has +info and +config|get; limiters need neither

note    CONFIG cannot be read: NOPERM this user has no permissions to run the 'config|get' command
        so: persistence, replicas and timeouts were not checked
        do: check with a user that has +config|get; managed servers often do not show it

nothing to mend was found`, "check")
}

// TestPublished: what processes publish is added up, found by a key that an operator types, and used to say
// what remains.
func TestPublished(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := shell{t: t, env: map[string]string{"REDIS_URL": "redis://" + srv.Addr(), "HOLDFAST_KEY_SECRET": "secret"}}
	s.want(exitFound, "no process publishes its denials under the prefix holdfast: see analytics.Publish", "top")
	top, err := analytics.New(10, analytics.WithHashedKeys([]byte("secret")))
	must(t, err)
	lim := newLimiter(t, srv, limiter.GCRA(limiter.PerMinute(1), 10), limiter.WithHooks(top.Hooks()))
	for range 15 {
		_, err := lim.Allow(t.Context(), "customer:42")
		must(t, err)
	}
	pub, err := analytics.Publish(redistest.Client(t, srv), map[string]analytics.Source{"api": {Top: top, Health: lim.Health, Limit: lim.Limit}}, analytics.WithPublishProcess("worker-1"))
	must(t, err)
	defer pub.Close()
	redistest.Until(t, "it is published, and the heartbeat sent", func() bool {
		_, out, _ := s.run("fleet")
		return strings.Contains(out, "decisions:") && !strings.Contains(out, "none")
	})
	hash := analytics.ShownKey("customer:42", []byte("secret"))
	golden := `
api  5 denied since # #, in 1 process
        denied or less by      allowed  last         key
             5          0            0  # ago  ` + hash
	day := regexp.MustCompile(`\d+-\d\d-\d\d [\d:]{8}`)
	for _, args := range [][]string{{"top"}, {"top", "customer:42"}, {"top", "-n", "1", "customer:42", "other"}} {
		if code, out, errs := s.run(args...); code != exitDone || fields(numbers.ReplaceAllString(day.ReplaceAllString(strings.ReplaceAll(out, hash, "hash"), "# #"), "#")) != fields(strings.ReplaceAll(golden, hash, "hash")) {
			t.Errorf("%v: %d\n%s%s\nwant\n%s", args, code, out, errs, golden)
		}
	}
	if code, out, _ := s.run("top", "other"); code != exitDone || strings.Contains(out, hash) {
		t.Errorf("%d\n%s", code, out)
	}
	if _, out, _ := s.run("fleet"); !strings.Contains(out, "gcra 1/1m burst 10; decisions: ") || !strings.Contains(out, "pid ") {
		t.Error(out)
	}
	if _, out, _ := s.run("inspect", "customer:42"); !strings.Contains(out, "used        10, 0 remain") || !strings.Contains(out, "gcra 1/1m burst 10") {
		t.Errorf("the published limit is not used:\n%s", out)
	}
}

// TestBench: each algorithm is measured, alone and with others, and what it leaves in Redis is gone within seconds.
func TestBench(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := shell{t: t, env: map[string]string{"REDIS_URL": "redis://" + srv.Addr()}}
	code, out, errs := s.run("bench", "-for", "200ms", "-callers", "4")
	if code != exitDone || strings.Count(out, "%") != 14 || !strings.Contains(out, "budget") {
		t.Errorf("%d\n%s%s", code, out, errs)
	}
	rdb := redistest.Admin(t, srv)
	for _, key := range rdb.Keys(t.Context(), "holdfast-bench*").Val() {
		if ttl := rdb.PTTL(t.Context(), key).Val(); ttl == -1 || ttl > 5*time.Second { // -2: it is gone by now
			t.Errorf("%s lives for %v", key, ttl)
		}
	}
}

// TestBenchWithoutScripts: where Redis makes no decision, no figure is printed, but why it makes none.
func TestBenchWithoutScripts(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	must(t, redistest.Admin(t, srv).ACLSetUser(t.Context(), "reader", "on", ">secret", "~*", "+@all", "-@scripting").Err())
	s := shell{t: t, env: map[string]string{"REDIS_URL": "redis://reader:secret@" + srv.Addr()}}
	code, out, errs := s.run("bench", "-for", "10ms", "-callers", "1")
	if code != exitFailure || out != "" || !strings.Contains(errs, "redis made no decision of") || !strings.Contains(errs, "NOPERM") {
		t.Errorf("%d\n%s%s", code, out, errs)
	}
}

// TestLive: in a terminal top is renewed until the person ends it.
func TestLive(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	out := &screens{most: 3, full: cancel}
	p := program{env: func(string) string { return "" }, out: out, errs: new(bytes.Buffer), terminal: true}
	code := p.run(ctx, []string{"top", "-url", srv.Addr(), "-every", "100ms", "-color", "never"})
	const screen = "\x1b[H\x1b[2Jno process publishes its denials under the prefix holdfast: see analytics.Publish\n\nCtrl-C ends; renewed every 100ms\n"
	if code != exitDone || out.text.String() != strings.Repeat(screen, 3) {
		t.Errorf("%d\n%q", code, out.text.String())
	}
}

// screens keeps what was written, and counts how often the screen was cleared.
type screens struct {
	n, most int
	full    func()
	text    strings.Builder
}

func (s *screens) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "\x1b[2J") {
		if s.n++; s.n == s.most {
			s.full()
		}
	}
	return s.text.Write(b)
}

// TestJSON: each command prints one value that a program can read, and nothing else.
func TestJSON(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := shell{t: t, env: map[string]string{"REDIS_URL": "redis://" + srv.Addr()}}
	lim := newLimiter(t, srv, limiter.TokenBucket(limiter.PerMinute(1), 10))
	_, err := lim.Allow(t.Context(), "k")
	must(t, err)
	for _, args := range [][]string{
		{"inspect", "k"}, {"fleet"}, {"check"}, {"block", "k", "1h"}, {"unblock", "k"}, {"reset", "k"},
		{"limits", "-table", "plans", "set", "gold", "200/s burst 400"}, {"limits"}, {"bench", "-for", "300ms", "-callers=1"},
	} {
		code, out, errs := s.run(append(args, "-json")...)
		var value any
		if err := json.Unmarshal([]byte(out), &value); err != nil || code != exitDone || errs != "" {
			t.Errorf("holdfast %v: %d, %v\n%s%s", args, code, err, out, errs)
		}
		if args[0] == "inspect" && !regexp.MustCompile(`"used": 1,\s+"remaining": 9,\s+"retry_after": 0,\s+"reset_after": \d`).MatchString(out) {
			t.Error(out)
		}
	}
}

// TestMistakesOnTheCommandLine: each is explained, and has its exit code.
func TestMistakesOnTheCommandLine(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := shell{t: t, env: map[string]string{"REDIS_URL": "redis://" + srv.Addr()}}
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitUsage, "holdfast inspect KEY", nil},
		{exitUsage, `there is no command "tpo"`, []string{"tpo"}},
		{exitUsage, "usage: holdfast inspect KEY", []string{"inspect"}},
		{exitUsage, "2 arguments, want KEY", []string{"inspect", "a", "b"}},
		{exitUsage, "2 arguments, want KEY", []string{"reset", "a", "b"}},
		{exitUsage, "2 arguments, want KEY", []string{"unblock", "a", "b"}},
		{exitUsage, "3 arguments, want KEY DURATION", []string{"block", "k", "1h", "x"}},
		{exitUsage, "1 arguments, want KEY DURATION", []string{"block", "k"}},
		{exitUsage, "1 arguments, want none", []string{"check", "x"}},
		{exitUsage, "4 arguments, want [set NAME TEXT | rm NAME]", []string{"limits", "set", "gold", "1/s", "x"}},
		{exitUsage, "-nothing", []string{"check", "-nothing"}},
		{exitUsage, `"soon" is none`, []string{"block", "k", "soon"}},
		{exitUsage, `"lots"`, []string{"inspect", "k", "-limit", "lots"}},
		{exitUsage, "prefix", []string{"inspect", "k", "-prefix", "{}"}},
		{exitUsage, "-color", []string{"check", "-color", "blue"}},
		{exitUsage, "-shards is -1: must be 0 to 64", []string{"inspect", "k", "-shards=-1"}},
		{exitUsage, "-shards is 65: must be 0 to 64", []string{"inspect", "k", "-shards", "65"}},
		{exitUsage, "-n is -1: must not be negative", []string{"top", "-n=-1"}},
		{exitUsage, "-every is 99ms: must be at least 100ms", []string{"top", "-every", "99ms"}},
		{exitUsage, "-callers is 0: must be at least 1", []string{"bench", "-callers=0"}},
		{exitUsage, "-callers is -1: must be at least 1", []string{"bench", "-callers=-1"}},
		{exitUsage, "-for is 1ms: must be at least 10ms", []string{"bench", "-for", "1ms"}},
		{exitUsage, "-timeout is -1s: must be above 0", []string{"check", "-timeout=-1s"}},
		{exitUsage, "-timeout is 0s: must be above 0", []string{"check", "-timeout", "0"}},
		{exitUsage, "the flags, which stand behind the command", []string{"-json", "check"}},
		{exitUsage, "limits takes set NAME TEXT, rm NAME, or nothing", []string{"limits", "set", "gold"}},
		{exitUsage, "limits takes set NAME TEXT, rm NAME, or nothing", []string{"limits", "rm"}},
		{exitUsage, "limits takes set NAME TEXT, rm NAME, or nothing", []string{"limits", "-table", "plans", "rm", "gold", "1/s"}},
		{exitUsage, `"lots"`, []string{"limits", "-table", "plans", "set", "gold", "lots"}},
		{exitUsage, "at most 366 days", []string{"block", "k", "-1h"}},
		{exitUsage, "at most 366 days", []string{"block", "k", "10000h"}},
		{exitUsage, "key is empty", []string{"inspect", ""}},
		{exitUsage, "shards is 65", []string{"block", "k", "1h", "-shards", "65"}},
		{exitUsage, "must not contain", []string{"limits", "-table", "a b", "set", "gold", "1/s"}},
		{exitFailure, "127.0.0.1:1", []string{"check", "-url", "127.0.0.1:1"}},
		{exitFailure, "unknown scheme", []string{"check", "-url", "http://localhost"}},
		{exitFailure, "master_name", []string{"check", "-url", "redis+sentinel://localhost:26379"}},
		{exitFailure, "no such file", []string{"check", "-ca", "missing"}},
		{exitFailure, "no such file", []string{"check", "-cert", "missing", "-key", "missing"}},
		{exitDone, "usage: holdfast block KEY DURATION", []string{"block", "-h"}},
		{exitDone, "holdfast check", []string{"help"}},
	} {
		args := c.args
		if c.says == "at most 366 days" && args[2][0] == '-' {
			args = []string{"block", "--", "k", "-1h"}
		}
		code, out, errs := s.run(args...)
		if code != c.code || !strings.Contains(out+errs, c.says) || (code == exitDone) != (errs == "") {
			t.Errorf("holdfast %q: %d\n%s%s", args, code, out, errs)
		}
	}
}

// TestKeysAreShownSafely: a key cannot write to the terminal, and colours are for terminals.
func TestKeysAreShownSafely(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := shell{t: t, env: map[string]string{"REDIS_URL": "redis://" + srv.Addr()}, terminal: true}
	for _, args := range [][]string{
		{"inspect", "a\x1b[2Jb"}, {"inspect", "a\u202eb"}, {"inspect", "a\u2028b"}, {"limits", "-table", "\x1b[2J"}, {"fleet", "-prefix", "\x1b[2J"},
		{"limits", "-table", "plans", "set", "\u202e", "1/s"}, {"inspect", "-\x1b[2J"},
	} {
		if _, out, errs := s.run(append([]string{args[0], "-color", "never"}, args[1:]...)...); strings.ContainsAny(out+errs, "\x1b\u202e\u2028") {
			t.Errorf("%q: %q, %q", args, out, errs)
		}
	}
	for _, c := range []struct {
		s      shell
		args   []string
		colour bool
	}{
		{s, []string{"check"}, true},
		{s, []string{"check", "-color", "never"}, false},
		{shell{t: t, env: map[string]string{"REDIS_URL": s.env["REDIS_URL"], "NO_COLOR": "1"}, terminal: true}, []string{"check"}, false},
		{shell{t: t, env: s.env}, []string{"check"}, false},
		{shell{t: t, env: s.env}, []string{"check", "-color=always"}, true},
	} {
		if _, out, _ := c.s.run(c.args...); strings.Contains(out, "\x1b[") != c.colour {
			t.Errorf("%v: %q", c.args, out)
		}
	}
}

// TestConnections: TLS, users, sentinels and unix-like addresses without a scheme.
func TestConnections(t *testing.T) {
	t.Parallel()
	secure := redistest.StartWith(t, redisproc.Options{TLS: true, Config: [][]string{strings.Fields("user ops on >secret ~* +@all")}})
	s := shell{t: t, env: map[string]string{"REDIS_URL": "rediss://" + secure.Addr() + "?skip_verify=true", "REDIS_USER": "ops", "REDIS_PASSWORD": "secret"}}
	// What check says of a round trip on a busy machine is not about TLS.
	if code, out, errs := s.run("limits"); code != exitDone {
		t.Errorf("TLS: %d\n%s%s", code, out, errs)
	}
	s.env["REDIS_PASSWORD"] = "wrong"
	if code, out, errs := s.run("check"); code != exitFailure || !strings.Contains(errs, "needs another user or password: WRONGPASS") || !strings.Contains(errs, "REDIS_PASSWORD") {
		t.Errorf("a wrong password: %d\n%s%s", code, out, errs)
	}
	if code, _, errs := s.run("check", "-url", "redis+sentinel://:swordfish@127.0.0.1:1?master_name=x&sentinel_password=swordfish"); code != exitFailure || strings.Contains(errs, "swordfish") {
		t.Errorf("passwords of sentinels: %d, %s", code, errs)
	}
	closed := redistest.StartWith(t, redisproc.Options{Config: [][]string{{"requirepass", "secret"}}})
	if code, _, errs := s.run("top", "-url", closed.Addr(), "-user", "", "-once"); code != exitFailure || strings.Contains(errs, "does not answer") {
		t.Errorf("no password: %d, %s", code, errs)
	}
	s.env["REDIS_URL"] = "rediss://" + secure.Addr()
	if code, out, errs := s.run("check"); code != exitFailure || !strings.Contains(errs, "certificate") {
		t.Errorf("an unknown certificate: %d\n%s%s", code, out, errs)
	}
}

// TestInterrupted: a run ends when its context does.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	srv := redistest.Start(t)
	p := program{env: func(string) string { return "" }, out: new(bytes.Buffer), errs: new(bytes.Buffer)}
	if code := p.run(ctx, []string{"check", "-url", srv.Addr()}); code != exitFailure {
		t.Error(code)
	}
}

// TestHelpShowsNoPassword: what stands in the environment is no default that the help of a command prints.
func TestHelpShowsNoPassword(t *testing.T) {
	t.Parallel()
	s := shell{t: t, env: map[string]string{"REDIS_URL": "redis://user:secret@redis.internal:6379"}}
	if code, out, errs := s.run("check", "-h"); code != exitDone || !strings.Contains(out, "REDIS_URL") || strings.Contains(out+errs, "secret") {
		t.Errorf("%d\n%s%s", code, out, errs)
	}
}
