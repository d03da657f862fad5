//go:build !race

package lua_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// several sends many items at once, some of them for several callers, and
// compares each with as many steps, one after the other.
func (tr *tracer) several(limits map[string]algo.Params, now int64) {
	tr.calls++
	items := make([]lua.Item, 1+tr.rng.IntN(6))
	keys := make([]string, len(items))
	for i := range items {
		keys[i] = fmt.Sprint("k", tr.rng.IntN(len(limits)))
		p := limits[keys[i]]
		items[i] = lua.Item{Keys: tr.names.KeysOf(p.Kind, keys[i]), Params: lua.NewArgs(p), Cost: 1 + tr.rng.Int64N(min(p.Cap-p.Keep, 5)), Count: tr.rng.Int64N(6)}
		if p.Kind == algo.LeakyBucketShaping {
			items[i].Count = 1
		}
	}
	at, out, err := tr.lua.Decide(context.Background(), now, fmt.Sprint("s", tr.calls), items, nil)
	if err != nil {
		tr.t.Fatal(err)
	}
	for i, item := range items {
		p, n := limits[keys[i]], item.Cost
		s := tr.of(keys[i])
		var want algo.Decision
		var admitted int64
		for range max(1, item.Count) {
			d := algo.Decide(p, s, at, n)
			if d.Allowed {
				admitted++
			} else if admitted > 0 {
				d.Allowed = true // the decision is on them all
			}
			want = d
		}
		if out[i] != want || item.Admitted != admitted {
			tr.t.Fatalf("call %d, item %d: %+v, cost %d for %d\nRedis: %+v, %d admitted\nGo:    %+v, %d admitted",
				tr.calls, i, p, n, item.Count, out[i], item.Admitted, want, admitted)
		}
	}
}

// TestTraceSeveral: many keys and many callers of a key in one call are as many
// decisions, one after the other.
func TestTraceSeveral(t *testing.T) {
	t.Parallel()
	for _, kind := range algo.Kinds {
		t.Run(kind.Short(), func(t *testing.T) {
			tr := newTracer(t, newClient(t))
			limits := make(map[string]algo.Params)
			for i := range 8 {
				limits[fmt.Sprint("k", i)] = tr.limit(kind, 100*time.Microsecond, 50*time.Millisecond)
			}
			for range *traceSteps / 10 {
				tr.several(limits, 0)
				if tr.rng.IntN(100) == 0 {
					key := fmt.Sprint("k", tr.rng.IntN(len(limits)))
					tr.blockFor(limits[key], key, 0, 1+tr.rng.Int64N(5000))
				}
				if tr.rng.IntN(50) == 0 {
					pause(time.Duration(tr.rng.IntN(5000)) * time.Microsecond)
				}
			}
		})
	}
}

// TestTraceAll: several limits of any algorithms in one call are charged all or not
// at all, as in Go.
func TestTraceAll(t *testing.T) {
	t.Parallel()
	rdb := newClient(t)
	for _, functions := range []bool{false, true} {
		t.Run(fmt.Sprint("functions ", functions), func(t *testing.T) {
			tr := newTracer(t, rdb)
			if functions {
				tr.lua.UseFunctions(rdb)
			}
			limits := make([]algo.Params, 12)
			for i := range limits {
				limits[i] = tr.limit(algo.Kinds[i%len(algo.Kinds)], 100*time.Microsecond, 50*time.Millisecond)
			}
			denied := 0
			for range *traceSteps / 5 {
				if !tr.all(limits) {
					denied++
				}
				if k := tr.rng.IntN(len(limits)); tr.rng.IntN(100) == 0 {
					tr.blockFor(limits[k], fmt.Sprint("k", k), 0, 1+tr.rng.Int64N(5000))
				}
				if k := tr.rng.IntN(len(limits)); tr.rng.IntN(100) == 0 {
					tr.reset(limits[k], fmt.Sprint("k", k))
				}
				if tr.rng.IntN(50) == 0 {
					pause(time.Duration(tr.rng.IntN(5000)) * time.Microsecond)
				}
			}
			if denied == 0 || denied == *traceSteps/5 {
				t.Errorf("%d of %d denied: not much of a trace", denied, *traceSteps/5)
			}
		})
	}
}

func (tr *tracer) all(limits []algo.Params) bool {
	tr.calls++
	chosen := tr.rng.Perm(len(limits))[:1+tr.rng.IntN(4)]
	items := make([]lua.Item, len(chosen))
	asks := make([]algo.Ask, len(chosen))
	for i, k := range chosen {
		p, key := limits[k], fmt.Sprint("k", k)
		n := tr.rng.Int64N(min(p.Cap-p.Keep, 3) + 1)
		items[i] = lua.Item{Keys: tr.names.KeysOf(p.Kind, key), Params: lua.NewArgs(p), Cost: n}
		asks[i] = algo.Ask{Params: p, State: tr.of(key), N: n}
	}
	out, err := tr.lua.DecideAll(context.Background(), 0, fmt.Sprint("a", tr.calls), items)
	if err != nil {
		tr.t.Fatal(err)
	}
	want, all := algo.StepAll(asks, items[0].At)
	for i := range out {
		if out[i] != want[i] {
			tr.t.Fatalf("call %d, item %d of %d: %+v\nRedis: %+v\nGo:    %+v", tr.calls, i, len(items), asks[i], out[i], want[i])
		}
	}
	return all
}
