package lua_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

func newClient(t *testing.T) *redis.Client {
	t.Helper()
	return redistest.Client(t, redistest.Start(t))
}
