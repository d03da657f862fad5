package redislink

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
)

// TestCloseAnswersThoseWhoWait: Close does not let callers wait until their budget ends,
// whether their request waits for its turn or for an answer, unless the request lasts.
func TestCloseAnswersThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, a := unused(t, 128), args(t, algo.GCRA)
		q := only(l)
		q.flights = inFlight(depth) // so that nothing is sent
		sent, waits, lasts := decision(a, "sent", 1), decision(a, "waits", 1), decision(a, "lasts", 1)
		lasts.Lasts = true
		begin := func(o *Op) {
			if _, ok := q.start(t.Context(), o, 50*time.Millisecond, true); !ok {
				t.Fatal("nothing to await")
			}
		}
		begin(sent)
		q.mu.Lock()
		f := q.gather(q.waiting.pop())
		f.ticket, _ = q.breaker.Acquire()
		f.sent = time.Now()
		q.mu.Unlock()
		begin(waits)
		begin(lasts)
		start := time.Now()
		go q.drain(false)
		for _, o := range []*Op{sent, waits} {
			if class, err := q.await(t.Context(), o); err != ErrClosed || class != breaker.ClassCaller || time.Since(start) != 0 {
				t.Errorf("%s: %v, %v after %v", o.ID, class, err, time.Since(start))
			}
		}
		if _, err := q.await(t.Context(), lasts); err != errNoTurn || time.Since(start) != 50*time.Millisecond {
			t.Errorf("what lasts: %v after %v", err, time.Since(start))
		}
		q.mu.Lock()
		q.flights = nil // for drain
		q.landed.Broadcast()
		q.mu.Unlock()
	})
}
