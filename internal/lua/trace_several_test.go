//go:build !race

package lua_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redistest"
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
	if err != nil && !late(err) {
		tr.t.Fatal(err)
	}
	for i, item := range items {
		if item.Broken {
			continue // late: it did nothing
		}
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
// decisions, one after the other, also when limits change.
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
				if tr.rng.IntN(50) == 0 {
					limits[fmt.Sprint("k", tr.rng.IntN(len(limits)))] = tr.limit(kind, 100*time.Microsecond, 50*time.Millisecond)
				}
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
// at all, as in Go, also when limits change.
func TestTraceAll(t *testing.T) {
	t.Parallel()
	rdb := newClient(t)
	for _, functions := range []bool{false, true} {
		t.Run(fmt.Sprint("functions ", functions), func(t *testing.T) {
			tr := newTracer(t, rdb)
			if functions {
				redistest.Since(t, 7, 0, "functions")
				tr.lua.UseFunctions(rdb)
			}
			limits := make([]algo.Params, 3*len(algo.Kinds))
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
				if k := tr.rng.IntN(len(limits)); tr.rng.IntN(10) == 0 {
					limits[k] = tr.limit(limits[k].Kind, 100*time.Microsecond, 50*time.Millisecond)
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

// all sends one to three requests at once, each for limits of the same algorithms, and compares each
// with a step in Go, one after the other. It reports whether the first one was admitted.
func (tr *tracer) all(limits []algo.Params) bool {
	tr.calls++
	of, kinds := 1+tr.rng.IntN(4), len(algo.Kinds)
	chosen := tr.rng.Perm(len(limits))[:of]
	var items []lua.Item
	var asks []algo.Ask
	for range 1 + tr.rng.IntN(3) {
		taken := map[int]bool{}
		for i, k := range chosen {
			for len(items) >= of && tr.rng.IntN(2) == 0 || taken[k] {
				k = (k + kinds) % len(limits) // another limit of that algorithm
			}
			taken[k] = true
			p, key := limits[k], fmt.Sprint("k", k)
			n := tr.rng.Int64N(min(p.Cap-p.Keep, 3) + 1)
			if len(items) >= of && tr.rng.IntN(2) == 0 && limits[chosen[i]] == p {
				n = items[i].Cost
			}
			items = append(items, lua.Item{Keys: tr.names.KeysOf(p.Kind, key), Params: lua.NewArgs(p), Cost: n})
			asks = append(asks, algo.Ask{Params: p, State: tr.of(key), N: n})
		}
	}
	d := lua.DecideAll{Nonce: fmt.Sprint("a", tr.calls), Of: of, Items: items}
	if err := tr.lua.One(context.Background(), &d); err != nil && !late(err) {
		tr.t.Fatal(err)
	}
	first := false
	for at := 0; at < len(items); at += of {
		if slices.ContainsFunc(items[at:at+of], func(it lua.Item) bool { return it.Broken }) {
			continue // late: nothing was charged for this request
		}
		want, all := algo.StepAll(asks[at:at+of], items[0].At)
		first = first || at == 0 && all
		for i := range want {
			if d.Out[at+i] != want[i] {
				tr.t.Fatalf("call %d, item %d of %d: %+v\nRedis: %+v\nGo:    %+v", tr.calls, at+i, len(items), asks[at+i], d.Out[at+i], want[i])
			}
		}
	}
	return first
}
