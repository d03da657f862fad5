package semaphore

import (
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestDroppedPermits: in whatever order permits are dropped, those that are left are the others.
func TestDroppedPermits(t *testing.T) {
	var k key
	permits := []*Permit{{}, {}, {}, {}}
	for _, p := range permits {
		k.hold(p)
	}
	for len(permits) > 0 {
		i := len(permits) / 2
		k.drop(permits[i])
		permits = slices.Delete(permits, i, i+1)
		for _, p := range permits {
			if !slices.Contains(k.holding, p) {
				t.Fatalf("one of %d that were not dropped is gone", len(permits))
			}
		}
		if len(k.holding) != len(permits) {
			t.Fatalf("%d are held, want %d", len(k.holding), len(permits))
		}
	}
}

// TestLostBeforeItIsAsked: also then the channel is closed; and a permit may be lost twice.
func TestLostBeforeItIsAsked(t *testing.T) {
	p := Permit{free: func() {}}
	p.lose()
	select {
	case <-p.Lost():
	default:
		t.Error("it was lost, and the channel is open")
	}
	p.lose()
	if asked := (Permit{free: func() {}}); asked.Lost() != nil {
		asked.lose()
		asked.lose()
	}
}

// TestFirstOfItsRank: callers who wait are before others of their rank, and critical ones before all.
func TestFirstOfItsRank(t *testing.T) {
	s := Semaphore{ledger: &ledger{}}
	for _, c := range []struct {
		critical, others  int
		criticalFirst, ok bool
	}{{0, 0, true, true}, {1, 0, false, false}, {0, 1, true, false}, {1, 1, false, false}, {2, 1, false, false}} {
		k := &key{}
		k.waiting[0], k.waiting[1] = make([]*waiter, c.critical), make([]*waiter, c.others)
		if s.first(k, 0) != c.criticalFirst || s.first(k, 1) != c.ok {
			t.Errorf("%+v: critical %v, other %v", c, s.first(k, 0), s.first(k, 1))
		}
	}
}

// TestInFlightOfClosed: nothing is said to be in flight of a key that is not asked about.
func TestInFlightOfClosed(t *testing.T) {
	c, err := New(redistest.Client(t, redistest.Start(t)), 1, limiter.WithShare(1))
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if n, err := c.InFlight(t.Context(), "k"); n != 0 || err != limiter.ErrClosed {
		t.Errorf("%d, %v", n, err)
	}
}

// TestNumberOfPermits: that of the last caller who asks for permits, and that of the semaphore before one does.
func TestNumberOfPermits(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	s, err := New(rdb, 5, limiter.WithShare(1))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct{ permits, want int }{{0, 5}, {2, 2}, {0, 2}, {1, 1}, {0, 1}, {3, 3}} {
		if k := s.ledger.enter("k", c.permits); k.permits() != c.want {
			t.Errorf("%d permits after one who asks for %d, want %d", k.permits(), c.permits, c.want)
		}
	}
}
