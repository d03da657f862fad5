package lua_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// movedOften is a server that answers so many scripts with MOVED to itself, and to the next one
// ends the connection without an answer.
func movedOften(t *testing.T, times int) *redis.ClusterClient {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns sync.WaitGroup
	serve := func(c net.Conn) {
		defer c.Close()
		for r := bufio.NewScanner(c); r.Scan(); {
			answer := ""
			switch line := strings.ToLower(r.Text()); line { // each name of a command is a line
			case "evalsha":
				mu.Lock()
				times--
				ends := times < 0
				mu.Unlock()
				if ends {
					return
				}
				answer = fmt.Sprintf("-MOVED 1 %s\r\n", l.Addr())
			case "command": // go-redis asks for it, and logs what is missing
				answer = "*1\r\n*6\r\n$7\r\nevalsha\r\n:-3\r\n*0\r\n:0\r\n:0\r\n:0\r\n"
			case "hello", "client", "cluster":
				answer = "-ERR unknown command\r\n"
			default:
				continue
			}
			if _, err := c.Write([]byte(answer)); err != nil {
				return
			}
		}
	}
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { serve(c) })
		}
	})
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Protocol: 2, DisableIdentity: true, ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: l.Addr().String()}}}}, nil
	}})
	t.Cleanup(func() {
		_ = rdb.Close()
		_ = l.Close()
		conns.Wait()
	})
	return rdb
}

// TestRedirectIsTheLastAnswer: a MOVED is the error of commands whose last answer it was, which
// Redis has not executed, and not of those that were sent once more and whose reply was lost.
func TestRedirectIsTheLastAnswer(t *testing.T) {
	p := lua.NewArgs(algo.Params{Kind: algo.FixedWindow, Cap: 10, Num: 10, Den: 3_600_000_000})
	names := lua.NewNamer("p")
	keys := names.KeysOf(algo.FixedWindow, "k")
	for _, together := range []int{1, 2} { // one alone is no pipeline
		for _, moved := range []int{together, 1000} {
			cmds := []lua.Command{
				&lua.Decide{Nonce: "n", Items: []lua.Item{{Keys: keys, Params: p, Cost: 1}}},
				&lua.GiveBack{Nonce: "m", Items: []lua.Taken{{Keys: keys, Params: p, Units: 1}}},
			}[:together]
			errs := make([]error, together)
			lua.NewClient(movedOften(t, moved)).Do(t.Context(), cmds, errs)
			for i, err := range errs {
				if want := moved > together; err == nil || redis.HasErrorPrefix(err, "MOVED") != want {
					t.Errorf("%d of %d, moved %d times: %v", i, together, moved, err)
				}
			}
		}
	}
}
