package limiter_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/sim"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limiter/limitertest"
)

// combined is how many callers ask while calls are under way.
const combined = 1024

// TestCallsOfManyCallers: most calls are full ones, of 64, so that 1.05 commands are executed for a decision.
func TestCallsOfManyCallers(t *testing.T) {
	for _, limit := range limitertest.Limits(limiter.PerHour(10_000)) {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			lim, _ := simulatedLimiter(t, r, "a", limit, patient())
			decide := func(i int) (limiter.Result, error) { return lim.Allow(t.Context(), fmt.Sprint("k", i)) }
			if _, err := decide(0); err != nil {
				t.Fatal(err)
			}
			r.SetPath("a", func(p *sim.Path) { p.Delay = time.Second }) // in which the others gather
			before := r.Commands()
			for _, a := range together(combined, decide) {
				if a.err != nil || a.res.Source != limiter.SourceRedis {
					t.Fatalf("%+v, %v", a.res, a.err)
				}
			}
			if n := r.Commands() - before; n > combined/64+8 {
				t.Errorf("%s: %d commands for %d decisions", limit, n, combined)
			}
		})
	}
}

// TestCommandsOfADecision: what Redis executes for decisions, by its own count: for each script
// the script itself, a look at the clock and one read of all keys; for each decision one write.
func TestCommandsOfADecision(t *testing.T) {
	t.Parallel()
	for _, limit := range limitertest.Limits(limiter.PerHour(10_000)) {
		if limit.Algorithm() == "sliding window log" {
			continue // which has a command for each unit that it forgets
		}
		t.Run(limit.Algorithm(), func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			proxy, rdb := behind(t, srv, redis.Options{})
			lim := newLimiter(t, rdb, limit, patient())
			decide := func(i int) (limiter.Result, error) { return lim.Allow(context.Background(), fmt.Sprint("k", i)) }
			// After it, the client is connected and the script is loaded.
			if _, err := decide(0); err != nil {
				t.Fatal(err)
			}
			executed := func(do func()) (commands, scripts int64) {
				commands, scripts = redistest.Commands(t, srv), redistest.Calls(t, srv, "evalsha")
				do()
				return redistest.Commands(t, srv) - commands, redistest.Calls(t, srv, "evalsha") - scripts
			}
			const alone = 100
			commands, scripts := executed(func() {
				for i := range alone {
					if res, err := decide(i); err != nil || res.Source != limiter.SourceRedis {
						t.Fatalf("%+v, %v", res, err)
					}
				}
			})
			if scripts != alone || commands != 4*alone {
				t.Errorf("%d decisions alone: %d scripts, %d commands", alone, scripts, commands)
			}
			proxy.Set(faultproxy.Mode{ReplyDelay: 50 * time.Millisecond}) // in which others gather
			commands, scripts = executed(func() {
				for _, a := range together(combined, decide) {
					if a.err != nil || a.res.Source != limiter.SourceRedis {
						t.Fatalf("%+v, %v", a.res, a.err)
					}
				}
			})
			// A new connection says who it is.
			if n := commands - scripts; n < combined+2*scripts || n > combined+2*scripts+20 {
				t.Errorf("%d decisions together: %d scripts, %d commands", combined, scripts, commands)
			}
		})
	}
}
