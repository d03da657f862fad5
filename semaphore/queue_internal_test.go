package semaphore

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
)

// alone is a semaphore of one permit without a server.
func alone(t *testing.T) *Semaphore {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	s, err := New(rdb, 1, limiter.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		_ = rdb.Close()
	})
	return s
}

// TestQueueAfterClose: a caller that is denied while the semaphore closes does not wait.
func TestQueueAfterClose(t *testing.T) {
	s := alone(t)
	k, w := s.ledger.enter("k", 1), &waiter{done: make(chan struct{})}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.queue(k, w, 1)
	if <-w.done; !errors.Is(w.err, limiter.ErrClosed) {
		t.Error(w.err)
	}
}

// TestLeavesWithAPermit: a caller that leaves at the moment at which it got its permit, whether that was before or after it
// left the queue, releases it; one that got an error, or a denial, has nothing to release.
func TestLeavesWithAPermit(t *testing.T) {
	for _, before := range []bool{true, false} {
		s := alone(t)
		k := s.ledger.enter("k", 1)
		p, err := s.TryAcquire(t.Context(), "k")
		if err != nil || !p.Allowed {
			t.Fatal(p, err)
		}
		w := &waiter{done: make(chan struct{})}
		if before {
			k.waiting[1] = []*waiter{w}
			s.settle(k, w, p, nil)
			if p.released.Load() || len(k.waiting[1]) != 0 {
				t.Error("one that waits has lost its permit, or waits on")
			}
			s.unqueue(k, w, 1)
		} else {
			s.unqueue(k, w, 1)
			s.settle(k, w, p, nil)
		}
		if !p.released.Load() {
			t.Errorf("got it before it left %v: not released", before)
		}
		for _, got := range []*Permit{nil, {}} {
			w := &waiter{done: make(chan struct{}), permit: got}
			close(w.done)
			s.unqueue(k, w, 1)
		}
		failed := &waiter{done: make(chan struct{})}
		if s.settle(k, failed, nil, errors.New("broken")); failed.err == nil || failed.permit != nil {
			t.Errorf("%+v", failed)
		}
	}
}

// TestHeartbeatsEnd: they go on while a permit is held.
func TestHeartbeatsEnd(t *testing.T) {
	s := alone(t)
	if s.ledger.heartbeat(t.Context()) {
		t.Error("there is more to do without permits")
	}
	p, err := s.TryAcquire(t.Context(), "k")
	if err != nil || !s.ledger.heartbeat(t.Context()) {
		t.Error("nothing is to do with one", err)
	}
	if err := p.Release(); err != nil || s.ledger.heartbeat(t.Context()) {
		t.Error("there is more to do when it was released", err)
	}
}
