package limiter

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

const (
	testHeld  = "holdfast:v1:slots:{k}"
	testQueue = testHeld + ":q"
)

// lasting returns slots that time never frees, in a test of a few seconds, so that
// what is free was released; and a proxy in front of Redis.
func lasting(t *testing.T, max int) (*Concurrency, *redis.Client, *faultproxy.Proxy) {
	t.Helper()
	srv := redistest.Start(t)
	proxy, err := faultproxy.New(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	c, err := NewConcurrency(rdb, max, WithSlotTTL(time.Hour), WithBudget(5*time.Second), WithShare(1), WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	c.patience = time.Hour
	t.Cleanup(func() {
		_ = c.Close()
		_ = rdb.Close()
		proxy.Close()
	})
	return c, redistest.Client(t, srv), proxy
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 15 s: %s", what)
		}
	}
}

// TestLeftCallIsTakenBack: a caller that leaves while its call is on the way does not
// keep the slot that it was granted.
func TestLeftCallIsTakenBack(t *testing.T) {
	c, rdb, proxy := lasting(t, 3)
	s, err := c.TryAcquire(t.Context(), "k") // the script is known from now on
	if err != nil || s.Release() != nil {
		t.Fatal(err)
	}
	proxy.Set(faultproxy.Mode{ReplyDelay: 200 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := c.TryAcquire(ctx, "k")
		left <- err
	}()
	held := func() int64 { return rdb.ZCard(t.Context(), testHeld).Val() }
	eventually(t, "Redis grants the slot", func() bool { return held() == 1 })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	eventually(t, "the slot is taken back", func() bool { return held() == 0 })
}

// TestHeartbeatBringsNothingBack: a slot that is released while a heartbeat with it
// is on its way is free afterwards.
func TestHeartbeatBringsNothingBack(t *testing.T) {
	c, rdb, _ := lasting(t, 3)
	s, err := c.TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	beat := []beatOf{{s.g, []*Slot{s, other}}}
	if err := s.Release(); err != nil {
		t.Fatal(err)
	}
	c.keepOn(t.Context(), beat)
	if got := rdb.ZRange(t.Context(), testHeld, 0, -1).Val(); len(got) != 1 || got[0] != other.caller {
		t.Errorf("held: %v", got)
	}
}

// TestPlaceIsGivenUp: one who leaves the queue is not waited for.
func TestPlaceIsGivenUp(t *testing.T) {
	c, rdb, _ := lasting(t, 1)
	s, err := c.TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := c.Acquire(ctx, "k")
		left <- err
	}()
	queued := func() int64 { return rdb.ZCard(t.Context(), testQueue).Val() }
	eventually(t, "the caller waits", func() bool { return queued() == 1 })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	eventually(t, "the place is given up", func() bool { return queued() == 0 })
	if err := s.Release(); err != nil {
		t.Fatal(err)
	}
	if s, err = c.TryAcquire(t.Context(), "k"); err != nil || !s.Allowed {
		t.Errorf("%+v, %v", s, err)
	}
}
