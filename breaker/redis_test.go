package breaker_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// server is a redis-server on a Unix socket in a directory of its own.
type server struct {
	socket, dir string
	*redis.Client
}

// startRedis runs a redis-server for the test, which is skipped, or fails where
// Redis is required, without one.
func startRedis(t *testing.T) *server {
	t.Helper()
	redistest.Require(t)
	path, err := redisproc.Find()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "breaker") // t.TempDir can exceed a socket's 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	s := &server{socket: filepath.Join(dir, "s"), dir: data}
	cmd := exec.Command(path, "--port", "0", "--unixsocket", s.socket, "--dir", data, "--save", "", "--lua-time-limit", "1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.Client = s.client(nil)
	t.Cleanup(func() {
		_ = s.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	lines := bufio.NewScanner(out)
	for ready := false; !ready; ready = strings.Contains(lines.Text(), "eady to accept connections") {
		if !lines.Scan() {
			t.Fatal("redis-server does not start")
		}
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the server
	return s
}

// client returns a new client without retries of any kind.
func (s *server) client(f func(*redis.Options)) *redis.Client {
	o := &redis.Options{Network: "unix", Addr: s.socket, MaxRetries: -1, DialerRetries: 1}
	if f != nil {
		f(o)
	}
	return redis.NewClient(o)
}

func (s *server) must(t *testing.T, args ...any) {
	t.Helper()
	if err := s.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

const script = "redis.call('SET', KEYS[1], ARGV[1], 'PX', 1000) return 1"

func eval(c *redis.Client) func(context.Context) error {
	return func(ctx context.Context) error {
		return c.Eval(ctx, script, []string{"k"}, "v").Err()
	}
}

// TestClassifyRealReplies makes a real server say what the tables say it says.
func TestClassifyRealReplies(t *testing.T) {
	s := startRedis(t)
	config := func(kv ...any) func(t *testing.T) {
		return func(t *testing.T) { s.must(t, append([]any{"CONFIG", "SET"}, kv...)...) }
	}
	do := func(args ...any) func(context.Context) error {
		return func(ctx context.Context) error { return s.Do(ctx, args...).Err() }
	}
	as := func(f func(*redis.Options), call func(*redis.Client) func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			c := s.client(f)
			defer func() { _ = c.Close() }()
			return call(c)(ctx)
		}
	}
	user := func(o *redis.Options) { o.Username, o.Password = "u", "p" }
	none := func(*testing.T) {}

	for _, tt := range []struct {
		name    string
		prepare func(*testing.T)
		call    func(context.Context) error
		restore func(*testing.T)
		text    string // what the error contains; empty where releases differ
		want    breaker.Class
		since   int // of which major version on servers do so; 0 is any
	}{
		{name: "fine", prepare: none, call: eval(s.Client), restore: none, want: breaker.ClassOK},
		{"noscript", none, do("EVALSHA", sha, 0), none, "NOSCRIPT", breaker.ClassNoScript, 0},
		{"no function", none, do("FCALL", "nosuch", 0), none, "Function not found", breaker.ClassNoScript, 7},
		{"nil", none, do("GET", "nosuch"), none, "redis: nil", breaker.ClassBug, 0},
		{"wrongtype", func(t *testing.T) { s.must(t, "RPUSH", "list", "x") },
			do("EVAL", "return redis.call('INCR', 'list')", 0), none, "WRONGTYPE", breaker.ClassBug, 0},
		{"lua error", none, do("EVAL", "return nothing.there", 0), none, "script", breaker.ClassBug, 0},
		{"unknown command", none, do("NOSUCH"), none, "unknown command", breaker.ClassBug, 0},
		{"oom", config("maxmemory", "1"), eval(s.Client), config("maxmemory", "0"), "OOM", breaker.ClassReadOnly, 0},
		{"noreplicas", config("min-replicas-to-write", "1"), eval(s.Client), config("min-replicas-to-write", "0"),
			"NOREPLICAS", breaker.ClassReadOnly, 7}, // before, scripts write all the same
		{"readonly", func(t *testing.T) { s.must(t, "REPLICAOF", "127.0.0.1", "1") }, eval(s.Client), none,
			"READONLY", breaker.ClassReadOnly, 0},
		{"readonly with flags", none, do("EVAL", "#!lua\n"+script, 1, "k", "v"), none,
			"", breaker.ClassReadOnly, 7},
		{"masterdown", config("replica-serve-stale-data", "no"), eval(s.Client), func(t *testing.T) {
			config("replica-serve-stale-data", "yes")(t)
			s.must(t, "REPLICAOF", "NO", "ONE")
		}, "MASTERDOWN", breaker.ClassUnavailable, 0},
		{"noperm", func(t *testing.T) { s.must(t, "ACL", "SETUSER", "u", "on", ">p", "~*", "+ping") },
			as(user, eval), none, "NOPERM", breaker.ClassPermission, 0},
		{"noperm inside", func(t *testing.T) { s.must(t, "ACL", "SETUSER", "u", "+eval") },
			as(user, eval), none, "", breaker.ClassPermission, 0},
		{"noperm key", func(t *testing.T) { s.must(t, "ACL", "SETUSER", "u", "resetkeys", "~other", "+set") },
			as(user, eval), none, "NOPERM", breaker.ClassPermission, 0},
		{"noperm in the handshake", none, as(func(o *redis.Options) { user(o); o.DB = 1 }, eval), none,
			"NOPERM", breaker.ClassPermission, 0},
		{"wrongpass", none, as(func(o *redis.Options) { o.Username, o.Password = "u", "wrong" }, eval), none,
			"WRONGPASS", breaker.ClassUnavailable, 0},
		{"no such db", none, as(func(o *redis.Options) { o.DB = 1000 }, eval), none,
			"out of range", breaker.ClassBug, 0},
		{"noauth", config("requirepass", "p"), as(nil, eval), config("requirepass", ""),
			"NOAUTH", breaker.ClassUnavailable, 0},
		{"max clients", config("maxclients", "1"), as(nil, eval), config("maxclients", "1000"),
			"", breaker.ClassUnavailable, 0}, // the reply, or what the closing socket does to our write
		{"misconf", func(t *testing.T) {
			config("save", "1 1")(t)
			if err := os.Remove(s.dir); err != nil { // where the snapshot would go
				t.Fatal(err)
			}
			s.must(t, "BGSAVE")
			for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
				if strings.Contains(s.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err") {
					return
				}
			}
			t.Fatal("the snapshot does not fail")
		}, eval(s.Client), config("save", ""), "MISCONF", breaker.ClassReadOnly, 0},
		{"socket timeout", none, as(func(o *redis.Options) { o.ReadTimeout = 20 * time.Millisecond }, func(c *redis.Client) func(context.Context) error {
			return func(ctx context.Context) error { return c.Do(ctx, "BLPOP", "nosuch", 5).Err() }
		}), none, "timeout", breaker.ClassUnavailable, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			redistest.Since(t, tt.since, 0, tt.name)
			tt.prepare(t)
			err := tt.call(t.Context())
			tt.restore(t)
			text := ""
			if err != nil {
				text = err.Error()
			}
			t.Logf("%q", text)
			if !strings.Contains(text, tt.text) {
				t.Fatalf("%q lacks %q", text, tt.text)
			}
			if got := breaker.Classify(t.Context(), err); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// A script that does not end: others are told BUSY, an operator kills it.
func TestClassifyBusy(t *testing.T) {
	s := startRedis(t)
	ctx := t.Context()
	killed := make(chan error, 1)
	loop := s.client(func(o *redis.Options) { o.ReadTimeout = time.Minute })
	defer func() { _ = loop.Close() }()
	go func() { killed <- loop.Eval(ctx, "while true do end", nil).Err() }()

	for end := time.Now().Add(10 * time.Second); ; {
		err := eval(s.Client)(ctx)
		if err != nil {
			if c := breaker.Classify(ctx, err); c != breaker.ClassUnavailable || !strings.HasPrefix(err.Error(), "BUSY") {
				t.Errorf("%v: %v", err, c)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatal("never busy")
		}
	}
	s.must(t, "SCRIPT", "KILL")
	if err := <-killed; breaker.Classify(ctx, err) != breaker.ClassUnavailable {
		t.Errorf("%v: %v", err, breaker.Classify(ctx, err))
	}
}

// The contexts and the clients that end a real call in real time.
func TestClassifyRealContexts(t *testing.T) {
	s := startRedis(t)
	ended := func(ctx context.Context, c *redis.Client) error {
		return c.Do(ctx, "BLPOP", "nosuch", 5).Err()
	}
	tight := s.client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	defer func() { _ = tight.Close() }()

	caller, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := ended(caller, tight); breaker.Classify(caller, err) != breaker.ClassCaller {
		t.Errorf("the caller's deadline: %v: %v", err, breaker.Classify(caller, err))
	}
	ours, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := ended(ours, tight); !breaker.Classify(t.Context(), err).Failure() {
		t.Errorf("our deadline: %v: %v", err, breaker.Classify(t.Context(), err))
	}

	closed := s.client(nil)
	_ = closed.Close()
	if err := ended(t.Context(), closed); breaker.Classify(t.Context(), err) != breaker.ClassUnavailable {
		t.Errorf("closed client: %v: %v", err, breaker.Classify(t.Context(), err))
	}

	small := s.client(func(o *redis.Options) { o.PoolSize, o.PoolTimeout = 1, time.Millisecond })
	defer func() { _ = small.Close() }()
	conn := small.Conn()
	if err := conn.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := ended(t.Context(), small); breaker.Classify(t.Context(), err) != breaker.ClassUnavailable {
		t.Errorf("pool timeout: %v: %v", err, breaker.Classify(t.Context(), err))
	}
	_ = conn.Close()
}

// Clients without a server: refused, unresolved, timed out, no shard, no node.
func TestClassifyUnreachable(t *testing.T) {
	refuse := func(context.Context, string, string) (net.Conn, error) { return nil, errRefused }
	hang := func(ctx context.Context, network, addr string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Err: dialTimeout{}}
	}
	for name, c := range map[string]redis.UniversalClient{
		"refused":      redis.NewClient(&redis.Options{Dialer: refuse, MaxRetries: -1, DialerRetries: 1}),
		"dial timeout": redis.NewClient(&redis.Options{Dialer: hang, MaxRetries: -1, DialerRetries: 1}),
		"cluster": redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{"a:1"}, Dialer: refuse, MaxRedirects: -1, MaxRetries: -1, DialerRetries: 1}),
		"cluster without nodes": redis.NewClusterClient(&redis.ClusterOptions{MaxRedirects: -1, MaxRetries: -1}),
		"ring without shards":   redis.NewRing(&redis.RingOptions{MaxRetries: -1}),
		"sentinels": redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "m", SentinelAddrs: []string{"a:1"}, Dialer: refuse, MaxRetries: -1, DialerRetries: 1}),
	} {
		err := c.Ping(t.Context()).Err()
		if got := breaker.Classify(t.Context(), err); got != breaker.ClassUnavailable {
			t.Errorf("%s: %v: %v", name, err, got)
		}
		_ = c.Close()
	}
}
