package limiter_test

import (
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
