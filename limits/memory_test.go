package limits_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limits"
)

// memory is a hook in the place of a Redis: its hashes, what it answers instead, and the reads.
type memory struct {
	mu     sync.Mutex
	hashes map[string]map[string]string
	hold   chan struct{} // is waited for before every read, if set
	err    error         // is every answer, if set
	fails  string        // is the command of which it is the answer, where not of all
	reads  int
	ctx    context.Context // of the last read
	left   time.Duration   // of it
}

// inMemory is a client of a Redis in memory.
func inMemory(t *testing.T) (*redis.Client, *memory) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2, MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	m := &memory{hashes: map[string]map[string]string{}}
	rdb.AddHook(m)
	return rdb, m
}

func (m *memory) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *memory) ProcessHook(redis.ProcessHook) redis.ProcessHook { return m.process }

func (m *memory) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) (err error) {
		for _, cmd := range cmds {
			err = errors.Join(err, m.process(ctx, cmd))
		}
		return err
	}
}

func (m *memory) process(ctx context.Context, cmd redis.Cmder) error {
	if m.hold != nil && cmd.Name() == "hgetall" {
		<-m.hold
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil && (m.fails == "" || m.fails == cmd.Name()) {
		cmd.SetErr(m.err)
		return m.err
	}
	var args []string
	for _, arg := range cmd.Args() {
		args = append(args, fmt.Sprint(arg))
	}
	hash := map[string]string{}
	if len(args) > 1 {
		if m.hashes[args[1]] == nil {
			m.hashes[args[1]] = hash
		}
		hash = m.hashes[args[1]]
	}
	count := func(n int) { cmd.(*redis.IntCmd).SetVal(int64(n)) }
	switch cmd.Name() {
	case "hgetall":
		m.reads++
		end, _ := ctx.Deadline()
		m.ctx, m.left = ctx, time.Until(end)
		cmd.(interface{ SetVal(map[string]string) }).SetVal(maps.Clone(hash))
	case "hexists":
		_, is := hash[args[2]]
		cmd.(*redis.BoolCmd).SetVal(is)
	case "hlen":
		count(len(hash))
	case "hset":
		for i := 2; i < len(args); i += 2 {
			hash[args[i]] = args[i+1]
		}
	case "hdel":
		delete(hash, args[2])
	case "hincrby":
		var n, by int
		_, _ = fmt.Sscan(hash[args[2]], &n)
		_, _ = fmt.Sscan(args[3], &by)
		hash[args[2]] = fmt.Sprint(n + by)
		count(n + by)
	case "flushall":
		clear(m.hashes)
	case "multi", "exec":
	default:
		return fmt.Errorf("unexpected: %v", cmd)
	}
	return nil
}

// TestReadsEnd: a table is read at once and then in each interval, about; a read has two seconds,
// and its context ends with it. After Close there is none.
func TestReadsEnd(t *testing.T) {
	for _, c := range []struct {
		opts        []limits.WatchOption
		most, least int // reads within 61 s
	}{
		{nil, 14, 12},
		{[]limits.WatchOption{limits.WithInterval(100 * time.Millisecond)}, 680, 550},
		{[]limits.WatchOption{limits.WithInterval(time.Hour)}, 1, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			rdb, server := inMemory(t)
			table, err := limits.New(rdb, "plans")
			must(t, err)
			w, err := table.Watch(own, c.opts...)
			must(t, err)
			time.Sleep(61 * time.Second)
			synctest.Wait()
			if server.reads < c.least || server.reads > c.most {
				t.Errorf("%d reads, want %d to %d", server.reads, c.least, c.most)
			}
			if server.left != 2*time.Second || server.ctx.Err() == nil {
				t.Errorf("%v for a read, and after it %v", server.left, server.ctx.Err())
			}
			before := server.reads
			must(t, w.Close())
			must(t, w.Close())
			time.Sleep(2 * time.Hour)
			if server.reads != before {
				t.Errorf("%d reads after Close", server.reads-before)
			}
		})
	}
}

// TestNoVersionOfAnError: a change of which any command fails has no version.
func TestNoVersionOfAnError(t *testing.T) {
	rdb, server := inMemory(t)
	table, err := limits.New(rdb, "plans")
	must(t, err)
	server.err = os.ErrDeadlineExceeded
	for _, server.fails = range []string{"hexists", "hlen", "hset"} {
		if v, err := table.Put(t.Context(), "gold", more); v != 0 || err == nil {
			t.Errorf("%s fails: version %d, %v", server.fails, v, err)
		}
	}
}

// TestReadIsNotRepeated: a read that fails is not sent again by the client: the next interval reads.
func TestReadIsNotRepeated(t *testing.T) {
	dials := 0
	rdb := redis.NewClient(&redis.Options{
		MaxRetries: 3, MinRetryBackoff: -1, DialerRetries: 1,
		// Which the client repeats otherwise, as it does not a timeout.
		Dialer: func(context.Context, string, string) (net.Conn, error) { dials++; return nil, io.EOF },
	})
	defer rdb.Close()
	table, err := limits.New(rdb, "plans")
	must(t, err)
	if _, err := table.Read(t.Context()); err == nil || dials != 1 {
		t.Errorf("%v after %d dials", err, dials)
	}
}

// TestCloseWaitsForARead: Close ends after the read that is under way.
func TestCloseWaitsForARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, server := inMemory(t)
		server.hold = make(chan struct{})
		table, err := limits.New(rdb, "plans")
		must(t, err)
		w, err := table.Watch(own)
		must(t, err)
		synctest.Wait()
		closing := make(chan error, 1)
		go func() { closing <- w.Close() }()
		synctest.Wait()
		if len(closing) > 0 {
			t.Error("closed while it reads")
		}
		close(server.hold)
		must(t, <-closing)
	})
}

// TestErrorsOfReads: what cannot be read changes nothing, and is logged once where it is no outage.
func TestErrorsOfReads(t *testing.T) {
	for said, logged := range map[error]int{
		replied("NOPERM this user has no permissions"): 1,
		replied("WRONGTYPE Operation against a key"):   1,
		replied("LOADING Redis is loading"):            0,
		os.ErrDeadlineExceeded:                         0,
	} {
		rdb, server := inMemory(t)
		w := watch(t, rdb)
		_, err := w.Put(t.Context(), "gold", more)
		must(t, err)
		w.reads(t).want(t, "gold", more)
		read := w.Health().ReadAt
		server.err = said
		for range 3 {
			w.reads(t).want(t, "gold", more)
		}
		if h := w.Health(); h.Err == nil || h.Version != 1 || h.ReadAt != read || w.lines("cannot be read") != logged {
			t.Errorf("%v: %+v\n%s", said, h, w.logged)
		}
		server.err = nil
		if h := w.reads(t).Health(); h.Err != nil || !h.ReadAt.After(read) {
			t.Errorf("%v: then %+v", said, h)
		}
	}
}

// replied is an error that Redis replies.
type replied string

func (r replied) Error() string { return string(r) }
func (replied) RedisError()     {}

// TestOnlyLostTablesAreGone: a table whose last name was removed is not one that is gone, and nor is
// one that was written without its version.
func TestOnlyLostTablesAreGone(t *testing.T) {
	const key = "holdfast:v1:limits:{plans}"
	for name, c := range map[string]struct {
		then map[string]string
		gone int
	}{
		"nothing":       {nil, 1},
		"a version":     {map[string]string{"%version": "1"}, 0},
		"a limit":       {map[string]string{"new": "1/s"}, 0},
		"a bad limit":   {map[string]string{"new": "?"}, 0},
		"one of each":   {map[string]string{"new": "?", "other": "1/s"}, 0},
		"version below": {map[string]string{"%version": "0"}, 1},
	} {
		rdb, server := inMemory(t)
		w := watch(t, rdb)
		w.reads(t)
		if w.lines("gone from redis") != 0 {
			t.Errorf("%s: what was never there is gone", name)
		}
		_, err := w.Put(t.Context(), "gold", more)
		must(t, err)
		w.reads(t)
		server.hashes[key] = c.then
		if w.reads(t); w.lines("gone from redis") != c.gone {
			t.Errorf("%s:\n%s", name, w.logged)
		}
	}
}

// TestChangesAreLogged: each name that has another limit than before, and nothing else.
func TestChangesAreLogged(t *testing.T) {
	rdb, _ := inMemory(t)
	w := watch(t, rdb)
	for _, c := range []struct {
		put    map[string]limiter.Limit
		remove string
		says   string
	}{
		{map[string]limiter.Limit{"gold": gold}, "", ""}, // as the program has it
		{map[string]limiter.Limit{"gold": more, "new": free}, "",
			`changed="gold: token bucket 20/1s burst 100 (was token bucket 10/1s burst 50); new: token bucket 1/1s burst 5 (was no limit)"`},
		{nil, "", ""},
		{nil, "gold", `changed="gold: token bucket 10/1s burst 50 (was token bucket 20/1s burst 100)"`},
	} {
		for name, l := range c.put {
			_, err := w.Put(t.Context(), name, l)
			must(t, err)
		}
		if c.remove != "" {
			_, err := w.Remove(t.Context(), c.remove)
			must(t, err)
		}
		w.logged.Reset()
		if w.reads(t); !strings.Contains(w.logged.String(), c.says) || (c.says == "") != (w.logged.Len() == 0) {
			t.Errorf("%+v: %s", c, w.logged)
		}
	}
}
