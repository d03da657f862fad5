//go:build !race

package semaphore_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

// TestAllocations: a permit that is acquired and released.
func TestAllocations(t *testing.T) {
	s, err := semaphore.New(redistest.Client(t, redistest.Start(t)), 10, limiter.WithShare(1), limiter.WithBudget(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n := testing.AllocsPerRun(500, func() {
		p, err := s.TryAcquire(t.Context(), "k")
		if err == nil {
			err = p.Release()
		}
		if err != nil {
			t.Fatal(err)
		}
	}); n > 27 {
		t.Errorf("%v allocations, want at most 27", n)
	}
}
