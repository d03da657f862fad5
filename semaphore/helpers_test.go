package semaphore_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis on every failed dial
	redistest.VerifyNoLeaks(m)
}

var (
	// quiet keeps a test's log short.
	quiet = limiter.WithLogger(slog.New(slog.DiscardHandler))
	// fast lets breakers close soon.
	fast = limiter.WithBreaker(breaker.Settings{OpenMin: 50 * time.Millisecond, OpenMax: 200 * time.Millisecond})
)

// both is several options.
type both []semaphore.Option

func (b both) ForSemaphore(c *options.Semaphore[limiter.DecisionInfo]) error {
	for _, o := range b {
		if err := o.ForSemaphore(c); err != nil {
			return err
		}
	}
	return nil
}

// patient outlives any hiccup of a busy machine, so that Redis decides always,
// and sends no heartbeat.
func patient() semaphore.Option {
	return both{limiter.WithBudget(10 * time.Second), limiter.WithShare(1)}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// behind returns a proxy in front of the server, and a client that goes through it.
func behind(t *testing.T, srv *redisproc.Server, opt redis.Options) (*faultproxy.Proxy, *redis.Client) {
	t.Helper()
	p, err := faultproxy.New(srv.Addr())
	must(t, err)
	opt.Addr = p.Addr()
	rdb := redis.NewClient(&opt)
	t.Cleanup(func() {
		_ = rdb.Close()
		p.Close()
	})
	return p, rdb
}
