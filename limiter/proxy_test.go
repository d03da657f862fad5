package limiter_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// behind returns a proxy in front of the server, and a client of default options
// that goes through it.
func behind(t *testing.T, srv *redisproc.Server, opt redis.Options) (*faultproxy.Proxy, *redis.Client) {
	t.Helper()
	return redistest.Behind(t, srv, opt)
}

// callsRunning counts the goroutines that wait for Redis on behalf of callers.
func callsRunning() int {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			return strings.Count(string(buf[:n]), "redislink.(*queue).run(")
		}
		buf = make([]byte, 2*len(buf))
	}
}
