package admission

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// farAway needs a moment to stop a key for the fleet.
type farAway struct {
	*script
	took time.Duration
}

func (f farAway) Block(ctx context.Context, key string, d time.Duration, _ ...limiter.Limit) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(f.took):
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blocked = append(f.blocked, key+" "+d.String())
	return nil
}

// TestFleetIsToldForCallersThatLeave: the fleet learns of a cooldown although the caller that met
// it has no time left, and that one does not wait for it.
func TestFleetIsToldForCallersThatLeave(t *testing.T) {
	for left, wait := range map[time.Duration]time.Duration{
		0: 0, time.Millisecond: time.Millisecond, time.Second: 20 * time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			lim := farAway{new(script), 20 * time.Millisecond}
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			x := Begin(ctx, newClient(t, lim, nil), "h", "k")
			start := time.Now()
			if d := x.Cool(Cooldown{For: 3 * time.Second}); d != 3*time.Second || time.Since(start) != wait {
				t.Errorf("%v left: %v after %v", left, d, time.Since(start))
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if len(lim.blocked) != 1 || lim.blocked[0] != "k 3s" {
				t.Errorf("%v left: the fleet was told %q", left, lim.blocked)
			}
		})
	}
}
