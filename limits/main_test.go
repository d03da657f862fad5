package limits_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limits"
)

func TestMain(m *testing.M) {
	logging.Disable()
	redistest.VerifyNoLeaks(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var (
	free = limiter.TokenBucket(limiter.PerSecond(1), 5)
	gold = limiter.TokenBucket(limiter.PerSecond(10), 50)
	more = limiter.TokenBucket(limiter.PerSecond(20), 100)
	own  = map[string]limiter.Limit{"free": free, "gold": gold}
)

// watched is a table with a watcher that reads when the test says so, and what it logs.
type watched struct {
	*limits.Table
	*limits.Watcher
	logged *bytes.Buffer
}

func watch(t *testing.T, rdb redis.UniversalClient, opts ...limits.WatchOption) *watched {
	t.Helper()
	table, err := limits.New(rdb, "plans")
	must(t, err)
	w := &watched{Table: table, logged: new(bytes.Buffer)}
	text := slog.New(slog.NewTextHandler(w.logged, nil))
	w.Watcher, err = table.Watch(own, append([]limits.WatchOption{limits.WithInterval(time.Hour), limits.WithLogger(text)}, opts...)...)
	must(t, err)
	t.Cleanup(func() { must(t, w.Close()) })
	w.settle(t)
	return w
}

// settle waits for the read with which a watcher begins.
func (w *watched) settle(t *testing.T) {
	t.Helper()
	redistest.Until(t, "the first read", func() bool {
		h := w.Health()
		return !h.ReadAt.IsZero() || h.Err != nil
	})
}

// lines returns how many lines with a word were logged.
func (w *watched) lines(word string) int { return strings.Count(w.logged.String(), word) }

func (w *watched) reads(t *testing.T) *watched {
	t.Helper()
	w.Watcher.Read(t.Context())
	return w
}

func (w *watched) want(t *testing.T, name string, l limiter.Limit) {
	t.Helper()
	if got := w.For(name); got != l {
		t.Errorf("%s is %v, want %v", name, got, l)
	}
}
