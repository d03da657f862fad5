package redislink

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestBackgroundEndsWithClose: what runs is told, is waited for, and nothing starts again.
func TestBackgroundEndsWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBackground()
		var over atomic.Bool
		if !b.Start(func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(time.Second) // what it has begun
			over.Store(true)
		}) {
			t.Fatal("nothing is started")
		}
		b.Close()
		if !over.Load() {
			t.Error("closed while something runs")
		}
		if b.Start(func(context.Context) { t.Error("started after the end") }) {
			t.Error("started after the end")
		}
	})
}
