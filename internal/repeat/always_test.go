package repeat_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/repeat"
)

// TestAlways: now, and then once in each period until the end.
func TestAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		task := repeat.Always(time.Second, func(f func(context.Context)) bool { f(t.Context()); return true }, func(context.Context) {
			at = append(at, time.Since(start))
		})
		time.Sleep(2500 * time.Millisecond)
		task.End()
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []time.Duration{0, 1e9, 2e9}; !slices.Equal(at, want) {
			t.Errorf("runs at %v, want %v", at, want)
		}
	})
}
