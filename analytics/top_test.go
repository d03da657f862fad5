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
		"capacity is 0":                         func() (*analytics.Top, error) { return analytics.New(0) },
		"capacity is -1":                        func() (*analytics.Top, error) { return analytics.New(-1) },
		"capacity is 10001: must be 1 to 10000": func() (*analytics.Top, error) { return analytics.New(10_001) },
		"period is 999ms":                       func() (*analytics.Top, error) { return analytics.New(1, analytics.WithPeriod(999*time.Millisecond)) },
		"period is 24h0m1s: must be between 1s and 24h0m0s": func() (*analytics.Top, error) {
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
