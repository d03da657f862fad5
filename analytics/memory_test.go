//go:build !race

package analytics_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/analytics"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestFloodStaysBounded: a million keys, each longer than what is kept, and twice, cost
// no more memory than the documented; and those that are denied more are found.
func TestFloodStaysBounded(t *testing.T) {
	const capacity = 100
	n := 1_000_000
	if testing.Short() {
		n = 100_000
	}
	synctest.Test(t, func(t *testing.T) {
		before := heap()
		top := newTop(t, capacity)
		tail := strings.Repeat("x", 120)
		for i := range n {
			if i == n/2 {
				time.Sleep(analytics.DefaultPeriod)
			}
			tell(top, fmt.Sprintf("%07d%s", i, tail), 1, false)
			if i%100 == 0 {
				tell(top, fmt.Sprint("abuser:", i/100%5), 1, false)
			}
		}
		const most = 2 * 8 * capacity * 300 // bytes
		if used := heap() - before; used > most {
			t.Errorf("%d bytes are used, want at most %d", used, most)
		} else {
			t.Logf("%d bytes are used", used)
		}
		r := top.Report(math.MaxInt)
		if r.Denied != int64(n+n/100) || len(r.Keys) != capacity {
			t.Errorf("%d denied, %d keys", r.Denied, len(r.Keys))
		}
		for i, k := range r.Keys[:5] {
			if !strings.HasPrefix(k.Key, "abuser:") {
				t.Errorf("%d: %+v", i, k)
			}
		}
		runtime.KeepAlive(top)
	})
}

// TestAllocations: none for a decision on a key that is kept, also a long one, nor for
// one that is allowed.
func TestAllocations(t *testing.T) {
	top := newTop(t, 10)
	lim := newLocal(t, limiter.GCRA(limiter.PerHour(1), 1), limiter.WithHooks(top.Hooks()))
	open := newLocal(t, limiter.GCRA(limiter.PerHour(1_000_000), 1_000_000), limiter.WithHooks(top.Hooks()))
	ctx := context.Background()
	for _, key := range []string{"k", strings.Repeat("k", 1000)} {
		for range 2 {
			_, _ = lim.Allow(ctx, key)
		}
		for what, decide := range map[string]func(){
			"denied":            func() { _, _ = lim.Allow(ctx, key) },
			"allowed":           func() { _, _ = open.Allow(ctx, key) },
			"allowed, not kept": func() { _, _ = open.Allow(ctx, "another") },
		} {
			if n := testing.AllocsPerRun(500, decide); n != 0 {
				t.Errorf("%s: %v allocations", what, n)
			}
		}
	}
	if k, _ := byKey(top.Report(10), "k"); k.Denied < 500 || k.Allowed < 500 {
		t.Errorf("%+v", k)
	}
}
