package analytics_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/analytics"
	"github.com/holdfast-go/holdfast/limiter"
)

// tell passes a decision on.
func tell(top *analytics.Top, key string, cost int, allowed bool) {
	top.Hooks().Decision(context.Background(), limiter.DecisionInfo{Key: key, Cost: cost, Result: limiter.Result{Allowed: allowed}})
}

// TestExact: while there are no more keys than capacity, everything is.
func TestExact(t *testing.T) {
	top := newTop(t, 50)
	for i := 1; i <= 50; i++ {
		key := fmt.Sprint("key:", i)
		tell(top, key, 1, true) // before the first that is denied
		for range i {
			tell(top, key, 2, false)
		}
		tell(top, key, 1, true)
	}
	r := top.Report(50)
	if r.Denied != 50*51/2 || len(r.Keys) != 50 {
		t.Fatalf("%d denied, of %d keys", r.Denied, len(r.Keys))
	}
	for i, k := range r.Keys {
		n := int64(50 - i)
		want := analytics.Key{Key: fmt.Sprint("key:", n), Denied: n, DeniedUnits: 2 * n, Allowed: 1, LastDenied: k.LastDenied}
		if k != want || time.Since(k.LastDenied) > time.Minute {
			t.Errorf("%d: %+v, want %+v", i, k, want)
		}
	}
	for n, want := range map[int]int{-1: 0, 0: 0, 1: 1, 10: 10, 51: 50, math.MaxInt: 50} {
		if r := top.Report(n); len(r.Keys) != want || r.Denied != 50*51/2 {
			t.Errorf("Report(%d) has %d keys of %d denials, want %d", n, len(r.Keys), r.Denied, want)
		}
	}
}

// TestNotCounted: what is no denial, and what is denied elsewhere.
func TestNotCounted(t *testing.T) {
	top := newTop(t, 10)
	hook := top.Hooks().Decision
	hook(t.Context(), limiter.DecisionInfo{Key: "k", Cost: 1, Err: limiter.ErrUnavailable})
	hook(t.Context(), limiter.DecisionInfo{Key: "k", Cost: 1, NotCharged: true, Result: limiter.Result{Allowed: true}})
	hook(t.Context(), limiter.DecisionInfo{Key: "k", Cost: 1, Result: limiter.Result{Allowed: true}})
	if r := top.Report(10); r.Denied != 0 || len(r.Keys) != 0 {
		t.Errorf("%+v", r)
	}
	tell(top, "k", 1, false)
	hook(t.Context(), limiter.DecisionInfo{Key: "k", Cost: 1, Err: context.Canceled, Result: limiter.Result{Allowed: true}})
	hook(t.Context(), limiter.DecisionInfo{Key: "k", Cost: 1, NotCharged: true, Result: limiter.Result{Allowed: true}})
	if r := top.Report(10); r.Denied != 1 || len(r.Keys) != 1 || r.Keys[0].Denied != 1 || r.Keys[0].Allowed != 0 {
		t.Errorf("%+v", r)
	}
}

// TestUnitsDoNotOverflow: sums of units stop before int64 ends.
func TestUnitsDoNotOverflow(t *testing.T) {
	if math.MaxInt < math.MaxInt64 {
		t.Skip("no cost is as large")
	}
	synctest.Test(t, func(t *testing.T) {
		top := newTop(t, 10)
		for range 2 {
			for range 2200 { // 2048 times 1<<53 is 0 again
				tell(top, "k", math.MaxInt, false)
			}
			time.Sleep(analytics.DefaultPeriod)
			tell(top, "k", 1, false)
			if r := top.Report(1); len(r.Keys) != 1 || r.Keys[0].DeniedUnits < math.MaxInt64/4 {
				t.Errorf("%+v", r)
			}
		}
	})
}

// TestZipf: the ten most frequent of many keys are found, in order, in a tenth of the
// room that they would need.
func TestZipf(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	z := rand.NewZipf(r, 1.2, 1, 200_000)
	top := newTop(t, 100)
	truth := make(map[string]int64)
	for range 300_000 {
		key := fmt.Sprint("user:", z.Uint64())
		truth[key]++
		tell(top, key, 1, false)
	}
	if len(truth) < 8000 {
		t.Fatalf("only %d keys", len(truth))
	}
	report := top.Report(10)
	if report.Denied != 300_000 || len(report.Keys) != 10 {
		t.Fatalf("%+v", report)
	}
	for i, k := range report.Keys {
		if k.Key != fmt.Sprint("user:", i) {
			t.Errorf("%d: %+v", i, k)
		}
		if c := truth[k.Key]; c > k.Denied || c < k.Denied-k.Error {
			t.Errorf("%s was denied %d times: %+v", k.Key, c, k)
		}
	}
}

// TestFloodStaysBounded: a million keys, each longer than what is kept, and twice, cost
// no more memory than the documented; and those that are denied more are found.
func TestFloodStaysBounded(t *testing.T) {
	const capacity = 100
	n := 1_000_000
	if raceEnabled || testing.Short() {
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
		if used := heap() - before; used > most && !raceEnabled {
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

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestThousandCallers: nothing is lost between many who deny, allow, read, and begin
// new periods.
func TestThousandCallers(t *testing.T) {
	const callers, each = 1000, 100
	top := newTop(t, 20)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := range each {
				tell(top, fmt.Sprint("key:", (i+j)%50), 3, false)
				tell(top, fmt.Sprint("key:", (i+j)%50), 1, true)
			}
			if i%50 == 0 {
				if r := top.Report(20); r.Denied > callers*each {
					t.Errorf("%d denied", r.Denied)
				}
			}
		})
	}
	wg.Wait()
	r := top.Report(20)
	if r.Denied != callers*each || len(r.Keys) != 20 {
		t.Fatalf("%d denied, %d keys", r.Denied, len(r.Keys))
	}
	for _, k := range r.Keys {
		if k.Denied-k.Error > callers*each/50 || k.Denied < callers*each/50 {
			t.Errorf("%+v, want %d", k, callers*each/50)
		}
	}
}

// TestConfiguration: what is refused, by name, and the limits of what is not.
func TestConfiguration(t *testing.T) {
	for want, make := range map[string]func() (*analytics.Top, error){
		"capacity is 0":     func() (*analytics.Top, error) { return analytics.New(0) },
		"capacity is -1":    func() (*analytics.Top, error) { return analytics.New(-1) },
		"capacity is 10001": func() (*analytics.Top, error) { return analytics.New(10_001) },
		"period is 999ms":   func() (*analytics.Top, error) { return analytics.New(1, analytics.WithPeriod(999*time.Millisecond)) },
		"period is 24h0m1s": func() (*analytics.Top, error) {
			return analytics.New(1, analytics.WithPeriod(24*time.Hour+time.Second))
		},
		"option is nil":       func() (*analytics.Top, error) { return analytics.New(1, nil) },
		"period is -1s: must": func() (*analytics.Top, error) { return analytics.New(1, analytics.WithPeriod(-time.Second)) },
	} {
		if top, err := make(); !errors.Is(err, limiter.ErrInvalidConfig) || !strings.HasPrefix(err.Error(), "analytics: "+want) || top != nil {
			t.Errorf("%q: %v", want, err)
		}
	}
	newTop(t, 1, analytics.WithPeriod(time.Second))
	newTop(t, analytics.MaxCapacity, analytics.WithPeriod(24*time.Hour))
}

// TestAllocations: none for a decision on a key that is kept, also a long one, nor for
// one that is allowed.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("allocations are counted without the race detector")
	}
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
