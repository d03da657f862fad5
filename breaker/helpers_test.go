package breaker_test

import (
	"math"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
)

// never keeps ConsecutiveFailures out of a test of the ratio.
const never = math.MaxUint32

func newBreaker(t testing.TB, s breaker.Settings) *breaker.Breaker {
	t.Helper()
	b, err := breaker.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// acquire is Acquire by a caller who must be let through.
func acquire(t testing.TB, b *breaker.Breaker) breaker.Ticket {
	t.Helper()
	p, ok := b.Acquire()
	if !ok {
		t.Fatalf("refused while %v", b.State())
	}
	return p
}

func refused(t testing.TB, b *breaker.Breaker) {
	t.Helper()
	if _, ok := b.Acquire(); ok {
		t.Fatalf("let through, now %v", b.State())
	}
}

// results reports n calls that ended in c.
func results(t testing.TB, b *breaker.Breaker, n int, c breaker.Class) {
	t.Helper()
	for range n {
		acquire(t, b).Done(c, 0)
	}
}

func isState(t testing.TB, b *breaker.Breaker, want breaker.State) {
	t.Helper()
	if got := b.State(); got != want {
		t.Fatalf("state is %v, want %v", got, want)
	}
}

// trip opens a closed breaker of default settings.
func trip(t testing.TB, b *breaker.Breaker) {
	t.Helper()
	results(t, b, 10, breaker.ClassUnavailable)
	isState(t, b, breaker.Open)
}

// sleepOpen sleeps until an open breaker lets someone ask again.
func sleepOpen(t testing.TB, b *breaker.Breaker) {
	t.Helper()
	isState(t, b, breaker.Open)
	time.Sleep(time.Until(b.Snapshot().OpenUntil))
}
