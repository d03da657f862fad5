package limiter_test

import (
	"bytes"
	"context"
	"regexp"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redisproc"
)

// traced counts the goroutines that code has started, and those that these started, so
// that tests that run at the same time do not count each other's. They carry a label.
type traced struct{ name string }

func trace(t *testing.T) traced { return traced{t.Name()} }

// do runs f, the goroutines of which are counted. Others that it wakes are not.
func (tr traced) do(f func()) {
	pprof.Do(context.Background(), pprof.Labels("traced", tr.name), func(context.Context) { f() })
}

var stacks = regexp.MustCompile(`(?m)^(\d+) @`)

// running counts those with a function in their stack; all for an empty name.
func (tr traced) running(function string) int {
	var buf bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&buf, 1)
	label := `"traced":` + strconv.Quote(tr.name)
	all := 0
	for stack := range strings.SplitSeq(buf.String(), "\n\n") {
		if m := stacks.FindStringSubmatch(stack); m != nil && strings.Contains(stack, label) && strings.Contains(stack, function) {
			n, _ := strconv.Atoi(m[1])
			all += n
		}
	}
	return all
}

// calls counts those that wait for Redis on behalf of callers.
func (tr traced) calls() int { return tr.running("redislink.(*queue).run+") }

// clientsOf counts the connections to servers, but for that of the one that asks.
func clientsOf(t *testing.T, servers ...*redisproc.Server) (n int) {
	t.Helper()
	for _, srv := range servers {
		rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), TLSConfig: srv.TLSConfig(), PoolSize: 1})
		list, err := rdb.ClientList(t.Context()).Result()
		must(t, err)
		must(t, rdb.Close())
		n += strings.Count(list, "\n") - 1
	}
	return n
}
