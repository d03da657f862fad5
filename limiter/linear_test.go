package limiter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

type outcome struct {
	known     bool // decided by Redis; else it may have been charged or not
	allowed   bool
	remaining int
}

// counter is the sequential model of one key whose limit does not come back: a
// cost is charged when it fits.
func counter(limit int) porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{0} },
		Step: func(state, input, output any) []any {
			used, n, out := state.(int), input.(int), output.(outcome)
			fits := used+n <= limit
			after := used
			if fits {
				after += n
			}
			switch {
			case !out.known && fits:
				return []any{used, after}
			case !out.known: // or, of what it owes, was charged as much as there was room for
				return []any{used, limit}
			case out.allowed == fits && out.remaining == limit-after:
				return []any{after}
			}
			return nil
		},
		Equal: func(a, b any) bool { return a == b },
	}).ToModel()
}

// TestLinearizable: while Redis answers, the decisions on a key are those of one
// counter that all callers use in turn; a decision whose reply was lost may have
// been charged once or not at all.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	const limit, callers, each = 60, 8, 6
	decided := 0
	for round := range 6 {
		proxy, rdb := behind(t, srv, redis.Options{})
		lim := newLimiter(t, rdb, limiter.FixedWindow(limiter.Per(limit, 24*time.Hour)), limiter.WithShare(1), limiter.WithBudget(250*time.Millisecond), limiter.WithoutDenialCache(),
			limiter.WithPrefix(fmt.Sprint("linear", round)), limiter.WithBreaker(breaker.Settings{MinRequests: 1e6, ConsecutiveFailures: 1e6}))
		var mu sync.Mutex
		var history []porcupine.Operation
		lost := 0
		start := time.Now()
		var wg sync.WaitGroup
		for id := range callers {
			wg.Go(func() {
				for i := range each {
					if id == 0 && round > 0 {
						// Replies are late and then lost, but few: each that is lost doubles the
						// histories that are possible.
						d := []time.Duration{0, 100, 0, 300, 100, 0}[i] * time.Millisecond
						proxy.Set(faultproxy.Mode{ReplyDelay: d})
					}
					n := 1 + rand.IntN(3)
					call := time.Since(start)
					res, err := lim.AllowN(context.Background(), "k", n)
					ret := time.Since(start)
					if err != nil {
						t.Errorf("call %d: %v", i, err)
						return
					}
					op := porcupine.Operation{ClientId: id, Input: n, Call: int64(call), Return: int64(ret),
						Output: outcome{res.Source == limiter.SourceRedis, res.Allowed, res.Remaining}}
					mu.Lock()
					if res.Source != limiter.SourceRedis {
						// It may still be executed after its caller has left.
						op.Return = int64(time.Hour)
						lost++
					}
					history = append(history, op)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		t.Logf("%d decisions, %d replies lost", len(history), lost)
		decided++
		switch porcupine.CheckOperationsTimeout(counter(limit), history, 3*time.Second) {
		case porcupine.Illegal:
			t.Errorf("round %d: not linearizable: %+v", round, history)
		case porcupine.Unknown:
			decided--
			t.Logf("round %d: too long to decide", round)
		}
	}
	if decided == 0 {
		t.Error("no round could be decided")
	}
}
