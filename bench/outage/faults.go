package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// fault is one fault, and how it is ended.
type fault struct {
	name       string
	begin, end func(*stage) error
}

func network(m faultproxy.Mode) func(*stage) error {
	return func(s *stage) error { s.proxy.Set(m); return nil }
}

// afresh switches the network and breaks the connections that are open.
func afresh(m faultproxy.Mode) func(*stage) error {
	return func(s *stage) error {
		s.proxy.Set(m)
		s.proxy.Reset()
		return nil
	}
}

func set(name, value string) func(*stage) error {
	return func(s *stage) error { return s.admin.ConfigSet(context.Background(), name, value).Err() }
}

func command(args ...any) func(*stage) error {
	return func(s *stage) error { return s.admin.Do(context.Background(), args...).Err() }
}

func nothing(*stage) error { return nil }

func then(steps ...func(*stage) error) func(*stage) error {
	return func(s *stage) error {
		for _, step := range steps {
			if err := step(s); err != nil {
				return err
			}
		}
		return nil
	}
}

var (
	pass    = network(faultproxy.Mode{})
	restore = afresh(faultproxy.Mode{})
)

var faults = []fault{
	{"killed, back empty", func(s *stage) error { return s.srv.Kill() }, func(s *stage) error { return s.srv.Restart() }},
	{"restarted at once, empty", func(s *stage) error { return s.srv.Restart() }, nothing},
	{"frozen (SIGSTOP)", func(s *stage) error { return s.srv.Freeze() }, func(s *stage) error { return s.srv.Thaw() }},
	{"black hole", afresh(faultproxy.Mode{BlackHole: true}), restore},
	{"replies lost (half-open)", network(faultproxy.Mode{HalfOpen: true}), restore},
	{"reset on connect", afresh(faultproxy.Mode{Refuse: true}), pass},
	{"replies cut", network(faultproxy.Mode{CutAfter: 20}), pass},
	{"slow by 40 ms", network(faultproxy.Mode{ReplyDelay: 40 * time.Millisecond}), restore},
	{"slow by 100 ms", network(faultproxy.Mode{ReplyDelay: 100 * time.Millisecond}), restore},
	{"slow by 1 s", network(faultproxy.Mode{ReplyDelay: time.Second}), restore},
	{"throttled to 100 B/s", network(faultproxy.Mode{BytesPerSecond: 100}), restore},
	{"out of memory", set("maxmemory", "1"), set("maxmemory", "0")},
	{"cannot persist (MISCONF)", misconf, set("stop-writes-on-bgsave-error", "no")},
	{"read-only replica", command("replicaof", "127.0.0.1", "1"), command("replicaof", "no", "one")},
	{"too few replicas", set("min-replicas-to-write", "1"), set("min-replicas-to-write", "0")},
	{"too many clients", then(set("maxclients", "1"), restore), set("maxclients", "10000")},
	{"password rotated", then(set("requirepass", "new"), restore), then(command("auth", "new"), set("requirepass", ""))},
	{"busy script", busy, func(s *stage) error { _ = s.admin.ScriptKill(context.Background()).Err(); return nil }},
	{"FLUSHALL", command("flushall"), nothing},
	{"SCRIPT FLUSH", command("script", "flush"), nothing},
}

// misconf makes a snapshot fail, after which Redis rejects writes: the folder it
// would be written to is taken away.
func misconf(s *stage) error {
	dir, err := os.MkdirTemp("", "holdfast-")
	if err != nil {
		return err
	}
	if err := then(set("stop-writes-on-bgsave-error", "yes"), set("save", "3600 1"), set("dir", dir))(s); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return command("bgsave")(s)
}

// busy keeps the server in a script until it is killed.
func busy(s *stage) error {
	if err := set("lua-time-limit", "1")(s); err != nil {
		return err
	}
	go func() {
		c := redis.NewClient(&redis.Options{Addr: s.srv.Addr(), ReadTimeout: time.Minute, MaxRetries: -1})
		defer c.Close()
		_ = c.Eval(context.Background(), "while true do end", nil).Err()
	}()
	for limit := time.Now().Add(10 * time.Second); time.Now().Before(limit); time.Sleep(time.Millisecond) {
		if err := s.admin.Ping(context.Background()).Err(); err != nil && strings.HasPrefix(err.Error(), "BUSY") {
			return nil
		}
	}
	return nil
}
