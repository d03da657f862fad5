package main

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/examples/internal/demotest"
	"github.com/holdfast-go/holdfast/internal/sim"
)

// TestSharedCooldown: a fleet that shares a cooldown is served as much as one that does not, and refused
// less often.
func TestSharedCooldown(t *testing.T) {
	var got [2]fleetSecond
	for i, shared := range []bool{false, true} {
		sim.Test(t, func(t *testing.T, r *sim.Redis) {
			l := make(demotest.Pipes)
			f, err := newFleet(shared, l, l.Dial, func() *redis.Client { return r.Client("p", redis.Options{MaxRetries: -1}) }, "demo", time.Second)
			if err != nil {
				t.Fatal(err)
			}
			f.set(t.Context(), true)
			time.Sleep(time.Minute)
			got[i] = f.cut(time.Now())
			if err := f.close(); err != nil {
				t.Error(err)
			}
		})
	}
	alone, shared := got[0], got[1]
	t.Logf("%d served and %d refused alone, %d and %d with the shared cooldown", alone.Served, alone.Refused, shared.Served, shared.Refused)
	if shared.Refused*3 > alone.Refused || shared.Served*10 < alone.Served*9 {
		t.Errorf("%d served and %d refused alone, %d and %d with the shared cooldown", alone.Served, alone.Refused, shared.Served, shared.Refused)
	}
}
