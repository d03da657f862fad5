package analytics

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/limiter"
)

// step is a decision after a while.
type step struct {
	after   time.Duration
	key     string
	cost    int
	allowed bool
}

// truth is what happened to a key in a period.
type truth struct{ denied, units, allowed int64 }

// TestGuarantee: what Report and Key promise, over shards and periods, next to plain
// maps.
func TestGuarantee(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		capacity := rapid.IntRange(1, 4).Draw(rt, "capacity")
		keys := rapid.IntRange(1, 120).Draw(rt, "keys")
		n := rapid.IntRange(0, 400).Draw(rt, "decisions")
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			s := step{cost: rapid.IntRange(1, 3).Draw(rt, "cost"), allowed: rapid.IntRange(0, 3).Draw(rt, "allowed") == 0}
			s.key = fmt.Sprint("k", min(rapid.IntRange(1, keys).Draw(rt, "key"), rapid.IntRange(1, keys).Draw(rt, "or")))
			if rapid.IntRange(0, 60).Draw(rt, "waits") == 0 {
				s.after = time.Duration(rapid.IntRange(0, 300).Draw(rt, "seconds")) * time.Second
			}
			return s
		}), n, n).Draw(rt, "steps")
		var err error
		synctest.Test(t, func(*testing.T) { err = replay(capacity, steps) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

func replay(capacity int, steps []step) error {
	const period = 100 * time.Second
	top, err := New(capacity, WithPeriod(period))
	if err != nil {
		return err
	}
	begin := time.Now()
	byPeriod := make(map[int64]map[string]truth)
	last := make(map[string]time.Time)
	for _, s := range steps {
		time.Sleep(s.after)
		top.Hooks().Decision(context.Background(), limiter.DecisionInfo{Key: s.key, Cost: s.cost, Result: limiter.Result{Allowed: s.allowed}})
		p := int64(time.Since(begin) / period)
		if byPeriod[p] == nil {
			byPeriod[p] = make(map[string]truth)
		}
		tr := byPeriod[p][s.key]
		switch {
		case !s.allowed:
			tr.denied, tr.units = tr.denied+1, tr.units+int64(s.cost)
			last[s.key] = time.Now()
		case tr.denied > 0:
			tr.allowed++
		}
		byPeriod[p][s.key] = tr
	}
	now := int64(time.Since(begin) / period)
	want := make(map[string]truth)
	var n int64
	for _, p := range []int64{now - 1, now} {
		for key, tr := range byPeriod[p] {
			w := want[key]
			want[key] = truth{w.denied + tr.denied, w.units + tr.units, w.allowed + tr.allowed}
			n += tr.denied
		}
	}

	r := top.Report(math.MaxInt)
	if since := begin.Add(time.Duration(max(0, now-1)) * period); !r.Since.Equal(since.Round(time.Millisecond)) || r.Denied != n {
		return fmt.Errorf("%d denied since %v, want %d since %v", r.Denied, r.Since, n, since)
	}
	all := make(map[string]total)
	for _, k := range top.periods.Load().merge() {
		if _, twice := all[k.key]; twice {
			return fmt.Errorf("%s is there twice", k.key)
		}
		all[k.key] = k
		w := want[k.key]
		switch {
		case w.denied > k.count || w.denied < k.count-k.error:
			return fmt.Errorf("%s was denied %d times: %+v", k.key, w.denied, k)
		case w.units < k.units || w.allowed < k.allowed:
			return fmt.Errorf("%s has %+v, of which are known %+v", k.key, w, k)
		case k.error == 0 && (w.units != k.units || w.allowed != k.allowed):
			return fmt.Errorf("%s has no error, and %+v for %+v", k.key, k, w)
		case k.error*int64(capacity) > n:
			return fmt.Errorf("%s has an error above %d/%d: %+v", k.key, n, capacity, k)
		case k.error == 0 && !begin.Add(time.Duration(k.last)).Equal(last[k.key]):
			return fmt.Errorf("%s was denied last at %v: %+v", k.key, last[k.key].Sub(begin), k)
		}
	}
	reported := make(map[string]bool)
	for i, k := range r.Keys {
		reported[k.Key] = true
		if i > 0 && k.Denied-k.Error > r.Keys[i-1].Denied-r.Keys[i-1].Error {
			return fmt.Errorf("%+v comes after %+v", k, r.Keys[i-1])
		}
	}
	if len(reported) != min(capacity, len(all)) {
		return fmt.Errorf("%d keys are reported, of %d, with a capacity of %d", len(reported), len(all), capacity)
	}
	for key, w := range want {
		if _, kept := all[key]; !kept && w.denied*int64(capacity) > n {
			return fmt.Errorf("%s was denied %d of %d times, and is not kept", key, w.denied, n)
		}
		if !reported[key] && w.denied*int64(capacity) > 2*n {
			return fmt.Errorf("%s was denied %d of %d times, and is not reported", key, w.denied, n)
		}
		if e := all[key].error; len(want) <= capacity && e != 0 {
			return fmt.Errorf("%s has an error of %d, with room for all keys", key, e)
		}
	}
	return nil
}
