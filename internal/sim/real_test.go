//go:build !race

package sim

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// redisServer is a real server, whose databases are the servers of a world. Its keys live for
// as long as those of the world do: one that is gone there is removed before a script runs.
type redisServer struct {
	mu    sync.Mutex // the servers of a cluster execute at the same time
	conn  net.Conn
	in    *bufio.Reader
	bases map[string]int    // the database of a server
	base  int               // the one that is selected
	known map[string]string // the SHA-1 of a script that it has executed, by its text
}

func connect(t *testing.T) *redisServer {
	t.Helper()
	conn, err := net.Dial("tcp", redistest.Start(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &redisServer{conn: conn, in: bufio.NewReader(conn), bases: map[string]int{}, known: map[string]string{}}
}

// Script executes one.
func (r *redisServer) Script(server, text string, keys, argv, gone []string) ([]int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	commands := r.select_(server)
	if len(gone) > 0 {
		commands = append(commands, append([]string{"del"}, gone...))
	}
	script := slices.Concat([]string{"evalsha", r.known[text], strconv.Itoa(len(keys))}, keys, argv)
	if r.known[text] == "" { // a text is long, and is sent once
		script[0], script[1] = "eval", text
		r.known[text] = lua.SHA(text)
	}
	commands = append(commands, script)
	for _, k := range keys { // the time of a world is not that of Redis
		commands = append(commands, []string{"pttl", k}, []string{"pexpire", k, strconv.FormatInt(ages, 10)})
	}
	replies, err := r.do(commands)
	if err != nil {
		return nil, err
	}
	at := len(commands) - 1 - 2*len(keys)
	for i, k := range keys {
		if ttl := replies[at+1+2*i]; ttl[0] == -1 {
			return nil, fmt.Errorf("%q has no time to live", k)
		}
	}
	return replies[at], nil
}

// ages is longer than any test, in milliseconds.
const ages = 1_000_000_000_000

// Remove removes members of a sorted set.
func (r *redisServer) Remove(server, key string, members []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.do(append(r.select_(server), append([]string{"zrem", key}, members...)))
	return err
}

func (r *redisServer) select_(server string) [][]string {
	base, ok := r.bases[server]
	if !ok {
		base = len(r.bases) + 1
		r.bases[server] = base
	}
	if base == r.base {
		return nil
	}
	r.base = base
	return [][]string{{"select", strconv.Itoa(base)}}
}

// do sends commands, with mu held or before a world is there, and returns their replies, without those that are no integers.
func (r *redisServer) do(commands [][]string) (replies [][]int64, err error) {
	var b []byte
	for _, args := range commands {
		items := make([][]byte, len(args))
		for i, a := range args {
			items[i] = bulk(a)
		}
		b = append(b, array(items)...)
	}
	if _, err = r.conn.Write(b); err != nil {
		return nil, err
	}
	for range commands {
		reply, said := r.read()
		if said != nil {
			err = said
		}
		replies = append(replies, reply)
	}
	return replies, err
}

// read reads the integers of a reply.
func (r *redisServer) read() (reply []int64, err error) {
	line, err := r.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	switch line[0] {
	case '+':
		return nil, nil
	case ':':
		return []int64{number(line[1:])}, nil
	case '*':
		for range number(line[1:]) {
			items, said := r.read()
			if said != nil {
				err = said
			}
			reply = append(reply, items...)
		}
		return reply, err
	}
	return nil, fmt.Errorf("redis says %q", line)
}

// TestScriptsReplyAsStepFunctions lets a real Redis execute every script of 5 fleets, or of as
// many as there is time for by SIM: it replies what the simulated servers do. Without
// failovers and migrations, after which it would have another state.
func TestScriptsReplyAsStepFunctions(t *testing.T) {
	wish := wanted(t)
	seed, length := wish.seed, wish.length
	began, worlds, checks := time.Now(), 0, 0
	real := connect(t)
	for worlds == 0 || !testing.Short() && !t.Failed() && (worlds < 5 || time.Since(began) < length) {
		p := Draw(seed + 200)
		seed++
		worlds++
		p.Life = min(p.Life, 5*time.Minute)
		p.Faults = slices.DeleteFunc(p.Faults, func(f Fault) bool { return f.Kind == FailedOver || f.Kind == Migrated })
		rep := RunReal(t, p, false, real)
		for _, v := range rep.Violations {
			t.Errorf("seed %d: %v", p.Seed, v)
		}
		checks += rep.Checks
		if _, err := real.do([][]string{{"flushall"}}); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d fleets, %d checks in %v", worlds, checks, time.Since(began).Round(time.Second))
}
