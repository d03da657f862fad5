package sim

import (
	"context"
	"io"
	"log/slog"
	rand1 "math/rand"
	"net"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

// TestHeldPermitsStay: the permit of a process that died is granted to another one when its time to
// live is over. Those of processes that live are held for as long as they need them. TestCrashedProcess
// of package semaphore has the first half on a real server.
func TestHeldPermitsStay(t *testing.T) {
	const ttl = 600 * time.Millisecond
	cryptotest.SetGlobalRandom(t, 1)
	rand1.Seed(1) //nolint:staticcheck // go-redis draws from it
	emptyPools()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(2 * time.Second) // go-redis dials once more after its Close
		network := newNetwork(1, 200*time.Microsecond)
		srv := newServer(network, newLedger(&Plan{}, map[string]*rule{}, false), "10.0.0.1:6379", 1)
		start := func(name string) *semaphore.Semaphore {
			rdb := Single.client([]*Server{srv}, false, func(ctx context.Context, addr string) (net.Conn, error) { return network.dial(ctx, name, addr) })
			sem := must(semaphore.New(rdb, 2, semaphore.WithTTL(ttl), limiter.WithProcess(name), limiter.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))))
			t.Cleanup(func() { _ = sem.Close(); _ = rdb.Close() })
			return sem
		}
		acquire := func(sem *semaphore.Semaphore) *semaphore.Permit {
			ctx, cancel := context.WithTimeout(t.Context(), 10*ttl)
			defer cancel()
			p, err := sem.Acquire(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		dies, lives := start("a"), start("b")
		acquire(dies)
		first, began := acquire(lives), time.Now()
		_ = dies.Close() // which releases nothing, as its work may go on
		second := acquire(lives)
		if waited := time.Since(began); waited < ttl-10*time.Millisecond || waited > 2*ttl {
			t.Errorf("the permit of a dead process was granted after %v, its time to live is %v", waited, ttl)
		}
		for range 100 {
			time.Sleep(ttl / 2)
			if other, err := lives.TryAcquire(t.Context(), "k"); err != nil || other.Allowed {
				t.Fatalf("a third of two: %+v, %v", other, err)
			}
		}
		for i, p := range []*semaphore.Permit{first, second} {
			select {
			case <-p.Lost():
				t.Errorf("permit %d was lost", i)
			default:
			}
		}
	})
}
