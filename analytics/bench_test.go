package analytics_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/analytics"
	"github.com/holdfast-go/holdfast/limiter"
)

// BenchmarkDecision: a local decision without analytics, with a hook that does
// nothing, and with analytics.
func BenchmarkDecision(b *testing.B) {
	open := limiter.GCRA(limiter.PerSecond(100_000_000), 10_000_000)
	for _, c := range []struct {
		name  string
		limit limiter.Limit
		kept  bool
	}{
		{"allowed", open, false},
		{"allowed-kept", open, true},
		{"denied", limiter.GCRA(limiter.PerHour(1), 1), true},
	} {
		for _, with := range []string{"bare", "hook", "analytics"} {
			b.Run(c.name+"/"+with, func(b *testing.B) {
				top := newTop(b, 100)
				var opts []limiter.LocalOption
				switch with {
				case "hook":
					opts = []limiter.LocalOption{limiter.WithHooks(limiter.Hooks{Decision: func(context.Context, limiter.DecisionInfo) {}})}
				case "analytics":
					opts = []limiter.LocalOption{limiter.WithHooks(top.Hooks())}
				}
				lim := newLocal(b, c.limit, opts...)
				ctx := context.Background()
				_, _ = lim.Allow(ctx, "customer:42")
				if c.kept {
					deny(top, "customer:42")
				}
				b.ReportAllocs()
				for b.Loop() {
					_, _ = lim.Allow(ctx, "customer:42")
				}
			})
		}
	}
}

// BenchmarkHook: what the hook alone costs, from one goroutine and from many.
func BenchmarkHook(b *testing.B) {
	flood := make([]string, 1<<17)
	for i := range flood {
		flood[i] = "customer:" + strconv.Itoa(i)
	}
	for _, c := range []struct {
		name string
		keys int
		info limiter.DecisionInfo
	}{
		{"allowed", 1, limiter.DecisionInfo{Cost: 1, Result: limiter.Result{Allowed: true}}},
		{"denied/one-key", 1, limiter.DecisionInfo{Cost: 1}},
		{"denied/100-keys", 100, limiter.DecisionInfo{Cost: 1}},
		{"denied/a-flood-of-keys", len(flood), limiter.DecisionInfo{Cost: 1}},
	} {
		b.Run(c.name, func(b *testing.B) {
			ctx, hook := context.Background(), newTop(b, 100).Hooks().Decision
			b.ReportAllocs()
			info := c.info
			for i := 0; b.Loop(); i++ {
				info.Key = flood[i%c.keys]
				hook(ctx, info)
			}
		})
		b.Run(c.name+"/parallel", func(b *testing.B) {
			ctx, hook := context.Background(), newTop(b, 100).Hooks().Decision
			b.ReportAllocs()
			b.SetParallelism(32)
			var callers atomic.Uint64
			b.RunParallel(func(pb *testing.PB) {
				info := c.info
				for i := int(callers.Add(1)) * 7919; pb.Next(); i++ {
					info.Key = flood[i%c.keys]
					hook(ctx, info)
				}
			})
		})
	}
}

// deny tells that a unit of a key was denied.
func deny(top *analytics.Top, key string) {
	top.Hooks().Decision(context.Background(), limiter.DecisionInfo{Key: key, Cost: 1})
}
