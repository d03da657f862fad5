package breaker_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
)

// opened returns a breaker that stays open for the rest of the test.
func opened(t testing.TB) *breaker.Breaker {
	t.Helper()
	b := newBreaker(t, breaker.Settings{OpenMin: 24 * time.Hour, OpenMax: 24 * time.Hour})
	trip(t, b)
	return b
}

func TestAllocations(t *testing.T) {
	b := opened(t)
	if n := testing.AllocsPerRun(1000, func() { b.Acquire() }); n != 0 {
		t.Errorf("open: %v allocations, want 0", n)
	}
	b = newBreaker(t, breaker.Settings{})
	if n := testing.AllocsPerRun(1000, func() {
		p, _ := b.Acquire()
		p.Done(breaker.ClassOK, 0)
	}); n > 1 {
		t.Errorf("closed: %v allocations, want at most 1", n)
	}
	ctx := context.Background()
	if n := testing.AllocsPerRun(1000, func() { breaker.Classify(ctx, nil) }); n != 0 {
		t.Errorf("classify nil: %v allocations, want 0", n)
	}
}

func BenchmarkOpen(b *testing.B) {
	br := opened(b)
	b.ReportAllocs()
	for b.Loop() {
		br.Acquire()
	}
}

func BenchmarkOpenParallel(b *testing.B) {
	br := opened(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			br.Acquire()
		}
	})
}

func BenchmarkClosed(b *testing.B) {
	br := newBreaker(b, breaker.Settings{})
	b.ReportAllocs()
	for b.Loop() {
		p, _ := br.Acquire()
		p.Done(breaker.ClassOK, 0)
	}
}

func BenchmarkClosedParallel(b *testing.B) {
	br := newBreaker(b, breaker.Settings{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p, _ := br.Acquire()
			p.Done(breaker.ClassOK, 0)
		}
	})
}

func BenchmarkClassifyReply(b *testing.B) {
	ctx := context.Background()
	err := error(reply("READONLY You can't write against a read only replica."))
	b.ReportAllocs()
	for b.Loop() {
		breaker.Classify(ctx, err)
	}
}
