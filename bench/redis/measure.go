package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/redisproc"
)

// errLocal counts a decision that Redis did not make as an error.
var errLocal = errors.New("not decided by Redis")

// load is how many callers ask about how many keys.
type load struct{ callers, keys int }

func (l load) String() string { return fmt.Sprintf("%d callers, %d keys", l.callers, l.keys) }

var loads = []load{{1, 10_000}, {8, 10_000}, {64, 10_000}, {512, 10_000}, {512, 1}}

// limit is high enough for hardly anything to be denied.
const limit = 1_000_000

type result struct {
	rate, allocs   float64
	p50, p99, p999 time.Duration
	errors         int64
}

func measure(srv *redisproc.Server, list []contender, l load, rounds int, length time.Duration) ([]result, error) {
	all := make([][]result, len(list))
	decide := make([]func(context.Context, string) error, len(list))
	for i, c := range list {
		f, closeIt, err := c.make(srv.Addr(), fmt.Sprint("bench", i), limit)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		defer closeIt()
		decide[i] = f
		turn(f, l, length/4) // warms up
	}
	for round := range rounds {
		for i := range list {
			i = (i + round) % len(list)
			all[i] = append(all[i], turn(decide[i], l, length))
		}
	}
	medians := make([]result, len(list))
	for i, rs := range all {
		by := func(less func(a, b result) int) result {
			slices.SortFunc(rs, less)
			return rs[len(rs)/2]
		}
		m := by(func(a, b result) int { return int(a.rate - b.rate) })
		m.p50 = by(func(a, b result) int { return int(a.p50 - b.p50) }).p50
		m.p99 = by(func(a, b result) int { return int(a.p99 - b.p99) }).p99
		m.p999 = by(func(a, b result) int { return int(a.p999 - b.p999) }).p999
		m.errors = 0
		for _, r := range rs {
			m.errors += r.errors
		}
		medians[i] = m
	}
	return medians, nil
}

// turn lets all callers decide for a while.
func turn(decide func(context.Context, string) error, l load, length time.Duration) result {
	keys := make([]string, l.keys)
	for i := range keys {
		keys[i] = fmt.Sprint("user:", i)
	}
	ctx := context.Background()
	took := make([][]time.Duration, l.callers)
	var stop atomic.Bool
	var failed atomic.Int64
	var wg sync.WaitGroup
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	for c := range l.callers {
		took[c] = make([]time.Duration, 0, 1<<12)
		wg.Go(func() {
			for i := c * 7919; !stop.Load(); i += 31 {
				begin := time.Now()
				if err := decide(ctx, keys[i%len(keys)]); err != nil {
					failed.Add(1)
				}
				took[c] = append(took[c], time.Since(begin))
			}
		})
	}
	time.Sleep(length)
	stop.Store(true)
	wg.Wait()
	elapsed := time.Since(start)
	runtime.ReadMemStats(&after)
	flat := slices.Concat(took...)
	slices.Sort(flat)
	n := len(flat)
	at := func(q float64) time.Duration { return flat[min(n-1, int(q*float64(n)))] }
	return result{
		rate: float64(n) / elapsed.Seconds(), allocs: float64(after.Mallocs-before.Mallocs) / float64(n),
		p50: at(0.5), p99: at(0.99), p999: at(0.999), errors: failed.Load(),
	}
}
