package holdfastgrpc_test

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis on every failed dial
	redistest.VerifyNoLeaks(m)
}
