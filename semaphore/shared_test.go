package semaphore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

// generous is a hook in the place of a server that grants all permits, after a round trip.
type generous struct {
	trip     time.Duration
	commands atomic.Int64
}

func (g *generous) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *generous) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		time.Sleep(g.trip)
		return g.answer(cmd)
	}
}

func (g *generous) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		time.Sleep(g.trip)
		for _, cmd := range cmds {
			_ = g.answer(cmd)
		}
		return nil
	}
}

// answer replies as permits.lua does where all are granted.
func (g *generous) answer(cmd redis.Cmder) error {
	g.commands.Add(1)
	if cmd.Name() != "evalsha" {
		return nil // one that is given back alone
	}
	args := cmd.Args()[3:]
	keys := cmd.Args()[2].(int)
	gone := args[keys+2].(int)
	reply := []int64{1_760_000_000_000_000}
	for range keys - gone {
		reply = append(reply, 1, 0, 0, 1)
	}
	cmd.(interface{ SetVal([]int64) }).SetVal(reply)
	return nil
}

// TestPermitsShareACommand: what callers acquire and release while others are on their way leaves in one
// command. Alone it is two commands a permit; there is also the heartbeat.
func TestPermitsShareACommand(t *testing.T) {
	for callers, most := range map[int]float64{1: 2.1, 8: 1.2, 64: 0.2} {
		t.Run(fmt.Sprint(callers, " callers"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2})
				defer rdb.Close()
				server := &generous{trip: 50 * time.Microsecond}
				rdb.AddHook(server)
				s, err := semaphore.New(rdb, 10, limiter.WithShare(1), quiet)
				must(t, err)
				const each = 50
				var wg sync.WaitGroup
				for i := range callers {
					wg.Go(func() {
						for n := range each {
							p, err := s.TryAcquire(t.Context(), fmt.Sprint("k", i, n%3))
							if err != nil || p.Source != limiter.SourceRedis {
								t.Errorf("%+v, %v", p, err)
								return
							}
							time.Sleep(time.Microsecond) // not all at the same moment
							if err := p.Release(); err != nil {
								t.Error(err)
							}
						}
					})
				}
				wg.Wait()
				if n := float64(server.commands.Load()) / float64(callers*each); n > most {
					t.Errorf("%.2f commands a permit, want at most %v", n, most)
				}
				must(t, s.Close())
			})
		})
	}
}
