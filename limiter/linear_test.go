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
	for round := range 20 {
		proxy, rdb := behind(t, srv, redis.Options{})
		lim := newLimiter(t, rdb, limiter.FixedWindow(limiter.Per(limit, 24*time.Hour)), limiter.WithShare(1), limiter.WithBudget(10*time.Second), limiter.WithoutDenialCache(),
			limiter.WithPrefix(fmt.Sprint("linear", round)), limiter.WithBreaker(breaker.Settings{MinRequests: 1e6, ConsecutiveFailures: 1e6}))
		var history []porcupine.Operation
		lost := 0
		start := time.Now()
		for i := range each {
			// The callers of a turn decide at the same time, and wait for each other before the next: each
			// reply that is lost doubles the histories that are possible, and so it is at most those of
			// some turns.
			if round > 0 {
				proxy.Set([]faultproxy.Mode{{}, {ReplyDelay: 20 * time.Millisecond}, {}, {CutAfter: 1}, {ReplyDelay: 20 * time.Millisecond}, {}}[(i+round)%each])
			}
			turn := make([]porcupine.Operation, callers)
			var wg sync.WaitGroup
			for id := range callers {
				wg.Go(func() {
					n := 1 + rand.IntN(3)
					call := time.Since(start)
					res, err := lim.AllowN(context.Background(), "k", n)
					ret := time.Since(start)
					if err != nil {
						t.Errorf("turn %d: %v", i, err)
					}
					turn[id] = porcupine.Operation{ClientId: id, Input: n, Call: int64(call), Return: int64(ret),
						Output: outcome{res.Source == limiter.SourceRedis, res.Allowed, res.Remaining}}
					if res.Source != limiter.SourceRedis {
						turn[id].Return = int64(time.Hour) // it may still be executed
					}
				})
			}
			wg.Wait()
			for _, op := range turn {
				if !op.Output.(outcome).known {
					lost++
				}
			}
			history = append(history, turn...)
		}
		begin := time.Now()
		ok := porcupine.CheckOperations(counter(limit), history)
		t.Logf("%d decisions, %d replies lost, %v", len(history), lost, time.Since(begin))
		if !ok {
			t.Errorf("round %d: not linearizable: %+v", round, history)
		}
	}
}
