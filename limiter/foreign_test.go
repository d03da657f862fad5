package limiter_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
)

// impostor is a server that speaks the protocol and answers every script with
// the same reply.
func impostor(t *testing.T, reply string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c, reply)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

func serve(c net.Conn, reply string) {
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		args, err := readCommand(r)
		if err != nil {
			return
		}
		answer := "-ERR unknown command\r\n"
		if strings.HasPrefix(strings.ToLower(args[0]), "eval") {
			answer = reply
		}
		if _, err := c.Write([]byte(answer)); err != nil {
			return
		}
	}
}

func readCommand(r *bufio.Reader) ([]string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(line[1:]))
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		if _, err := r.ReadString('\n'); err != nil {
			return nil, err
		}
		arg, err := r.ReadString('\n')
		if err != nil {
			return nil, err
		}
		args[i] = strings.TrimSpace(arg)
	}
	return args, nil
}

// TestForeignReplies: what is not a reply of ours is an error, never a panic and
// never a decision.
func TestForeignReplies(t *testing.T) {
	for name, reply := range map[string]string{
		"status":              "+OK\r\n",
		"integer":             ":1\r\n",
		"string":              "$5\r\nhello\r\n",
		"null":                "$-1\r\n",
		"null array":          "*-1\r\n",
		"empty array":         "*0\r\n",
		"too short":           "*2\r\n:1760000000000000\r\n:1\r\n",
		"strings":             "*6\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n$1\r\ne\r\n$1\r\nf\r\n",
		"infinite":            "*6\r\n:1760000000000000\r\n:0\r\n:0\r\n:-9223372036854775808\r\n:0\r\n:0\r\n",
		"beyond an int64":     "*6\r\n:99999999999999999999\r\n:1\r\n:0\r\n:0\r\n:0\r\n:0\r\n",
		"nested":              "*1\r\n*1\r\n:1\r\n",
		"double":              ",1.5\r\n",
		"an error of its own": "-ERR user_script:1: Script attempted to access nonexistent global variable 'x'\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			rdb := redis.NewClient(&redis.Options{Addr: impostor(t, reply)})
			defer rdb.Close()
			lim := newLimiter(t, rdb, good, patient())
			for range 3 {
				res, err := lim.Allow(t.Context(), "k")
				if !errors.Is(err, limiter.ErrState) || res.Allowed {
					t.Fatalf("%+v, %v", res, err)
				}
			}
		})
	}
}

// TestRedirectsThatAreNotFollowed: what a cluster answers with MOVED or ASK to the end, as where a hash slot
// moves on and on, is not executed: the process decides it, and owes it.
func TestRedirectsThatAreNotFollowed(t *testing.T) {
	for _, reply := range []string{"-MOVED 1 127.0.0.1:1\r\n", "-ASK 1 127.0.0.1:1\r\n"} {
		rdb := redis.NewClient(&redis.Options{Addr: impostor(t, reply)})
		defer rdb.Close()
		limit := limiter.FixedWindow(limiter.PerHour(100))
		one, two := newLimiter(t, rdb, limit, patient()), newLimiter(t, rdb, limit, patient(), limiter.WithPrefix("two"))
		both := newMulti(t, limiter.Part{Name: "one", Limiter: one}, limiter.Part{Name: "two", Limiter: two})
		for _, reserve := range []func(context.Context, string, ...limiter.CallOption) (*limiter.Reservation, error){one.Reserve, both.Reserve} {
			r, err := reserve(t.Context(), "k", limiter.Cost(5))
			if err != nil || r.Source != limiter.SourceLocal {
				t.Fatalf("%q: %+v, %v", reply, r, err)
			}
			must(t, r.Settle(t.Context(), 7))
		}
		for _, lim := range []*limiter.Limiter{one, two} {
			if n := lim.Health().Owed; n != 1 {
				t.Errorf("%q: %d keys are owed", reply, n)
			}
		}
	}
}
