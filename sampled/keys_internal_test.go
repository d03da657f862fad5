package sampled

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/random"
	"github.com/holdfast-go/holdfast/limiter"
)

// unreachable is a limiter without a server, of 10 units in an interval.
func unreachable(t *testing.T, opts ...Option) *Limiter {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	return turning(t, rdb, limiter.PerMinute(10), append(opts, limiter.WithShare(1))...)
}

// TestPeeksAreNoDemand: a key that is only peeked at is no candidate for those that are tracked, and others are, one call in
// eight.
func TestPeeksAreNoDemand(t *testing.T) {
	s := unreachable(t, WithTopKeys(1))
	if _, err := s.Allow(t.Context(), "top"); err != nil {
		t.Fatal(err)
	}
	for random.Of(s.salt+s.counts[1].Load())%candidateEvery != 0 {
		s.salt++
	}
	for range 100 {
		if _, err := s.AllowN(t.Context(), "peeked", 0); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.candidates.Load().Len(); n != 0 {
		t.Errorf("%d candidates after peeks", n)
	}
	for i := range 40_000 {
		if _, err := s.Allow(t.Context(), fmt.Sprint("asked", i%2)); err != nil {
			t.Fatal(err)
		}
	}
	found, _ := s.candidates.Load().Items()
	counted := int64(0)
	for _, c := range found {
		counted += c.Count
	}
	if len(found) != 2 || counted < 4600 || counted > 5400 {
		t.Errorf("%d of 40000 calls were counted, for %d keys", counted, len(found))
	}
}

// TestDroppedKeysKeepWhatTheyUsed: a key that is not tracked any more has used as much as it had, and begins with the rest when
// it is tracked again.
func TestDroppedKeysKeepWhatTheyUsed(t *testing.T) {
	for used := range 11 {
		s := unreachable(t)
		for range used {
			if res, err := s.Allow(t.Context(), "k"); err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		k := s.track("k")
		if k.left.Load() != int64(10-used) {
			t.Fatalf("%d left of 10", k.left.Load())
		}
		s.drop(k)
		if left := s.store.Decide("k", s.params, 0).Remaining; left != int64(10-used) {
			t.Errorf("%d used: %d left when it was dropped", used, left)
		}
		if k = s.track("k"); k.left.Load() != int64(10-used) {
			t.Errorf("%d used: %d left when it is tracked again", used, k.left.Load())
		}
	}
}

// TestSizes: a thousand keys are tracked by default, and a quarter as many and some more are candidates.
func TestSizes(t *testing.T) {
	if s := unreachable(t); s.table.max != 1000 {
		t.Errorf("%d keys", s.table.max)
	}
	s := unreachable(t, WithTopKeys(8))
	for i := range uint64(1000) {
		s.candidates.Load().Add(i<<32, fmt.Sprint(i), 1)
	}
	if n := s.candidates.Load().Len(); n != 18 {
		t.Errorf("%d candidates", n)
	}
}
