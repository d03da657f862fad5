package demo

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

func TestMain(m *testing.M) { redistest.VerifyNoLeaks(m) }

// TestLookOnTheEmbeddedRedis: it has scripts that only read, but they must not ask for
// the time; those that may write are used then.
func TestLookOnTheEmbeddedRedis(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	t.Setenv("PATH", "")
	t.Setenv("HOLDFAST_REDIS_SERVER", "")
	server, err := StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(server.Options)
	defer rdb.Close()
	lim, err := limiter.New(rdb, limiter.GCRA(limiter.PerHour(1), 5))
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close()
	for want := 5; want > 2; want-- {
		if res, err := lim.Peek(t.Context(), "k"); err != nil || res.Source != limiter.SourceRedis || res.Remaining != want {
			t.Errorf("look: %+v, %v, want %d remaining", res, err, want)
		}
		if res, err := lim.Allow(t.Context(), "k"); err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
	}
}
