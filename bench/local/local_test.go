// Package local compares limiters within one process, on one key, serial and from
// two goroutines, and on 10,000 keys.
package local

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/holdfast-go/holdfast/limiter"
)

// perSecond is not reached.
const perSecond = 1_000_000_000

// rates are x/time/rate limiters by key: what one key of ours does, plus the map.
type rates struct {
	mu sync.RWMutex
	m  map[string]*rate.Limiter
}

func (r *rates) allow(key string) bool {
	r.mu.RLock()
	l := r.m[key]
	r.mu.RUnlock()
	if l == nil {
		r.mu.Lock()
		if l = r.m[key]; l == nil {
			l = rate.NewLimiter(perSecond, perSecond)
			r.m[key] = l
		}
		r.mu.Unlock()
	}
	return l.Allow()
}

// deciders by name. Those with no keys of their own are as good for one key only.
func deciders(b *testing.B) map[string]func(key string) {
	ctx := context.Background()
	ours := func(limit limiter.Limit) func(string) {
		lim, err := limiter.NewLocal(limit)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { lim.Close() })
		return func(key string) {
			if res, err := lim.AllowN(ctx, key, 1); err != nil || !res.Allowed {
				b.Fatalf("%+v, %v", res, err)
			}
		}
	}
	one := rate.NewLimiter(perSecond, perSecond)
	byKey := &rates{m: map[string]*rate.Limiter{}}
	store, err := memorystore.New(&memorystore.Config{Tokens: perSecond, Interval: time.Second})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { store.Close(ctx) })
	uber := ratelimit.NewUnlimited()
	paced := ratelimit.New(perSecond, ratelimit.WithoutSlack)
	failsafe := ratelimiter.NewBursty[any](perSecond, time.Second)
	return map[string]func(string){
		"x-time-rate":            func(string) { one.Allow() },
		"x-time-rate-map":        func(key string) { byKey.allow(key) },
		"holdfast-token-bucket":  ours(limiter.TokenBucket(limiter.PerSecond(perSecond), perSecond)),
		"holdfast-gcra":          ours(limiter.GCRA(limiter.PerSecond(perSecond), perSecond)),
		"holdfast-fixed-window":  ours(limiter.FixedWindow(limiter.PerSecond(perSecond))),
		"sethvargo-memorystore":  func(key string) { _, _, _, _, _ = store.Take(ctx, key) },
		"failsafe-bursty":        func(string) { failsafe.TryAcquirePermit() },
		"uber-ratelimit":         func(string) { paced.Take() },
		"uber-ratelimit-nolimit": func(string) { uber.Take() },
	}
}

func BenchmarkOneKey(b *testing.B) {
	all := deciders(b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		decide := all[name]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				decide("customer:42")
			}
		})
	}
}

func BenchmarkOneKeyTwoWay(b *testing.B) {
	all := deciders(b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		decide := all[name]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					decide("customer:42")
				}
			})
		})
	}
}

func BenchmarkManyKeys(b *testing.B) {
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprint("user:", i)
	}
	all := deciders(b)
	for _, name := range []string{"x-time-rate-map", "holdfast-token-bucket", "holdfast-gcra", "sethvargo-memorystore"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i += 31 {
				all[name](keys[i%len(keys)])
			}
		})
	}
}
