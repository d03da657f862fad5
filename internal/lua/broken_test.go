package lua_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// TestBrokenKeyChargesNothing: when one of several keys is not ours, none of the
// others is charged.
func TestBrokenKeyChargesNothing(t *testing.T) {
	rdb := newClient(t)
	tr := newTracer(t, rdb)
	for _, kind := range algo.Kinds {
		for _, value := range []string{"list", "string", "hash"} {
			bad := fmt.Sprint("bad ", kind, value)
			items := make([]lua.Item, len(algo.Kinds)+1)
			for i, k := range algo.Kinds {
				items[i] = lua.Item{Keys: tr.names.KeysOf(k, lua.EncodeID(fmt.Sprint(k, "with", bad))), Params: lua.NewArgs(tr.limit(k, time.Hour, 24*time.Hour)), Cost: 1}
				items[i].Params.Keep = 0
				items[i].Params = lua.NewArgs(items[i].Params.Params)
			}
			items[len(items)-1] = lua.Item{Keys: tr.names.KeysOf(kind, lua.EncodeID(bad)), Params: items[kind-1].Params, Cost: 1}
			ctx, key := t.Context(), items[len(items)-1].Keys.State()
			switch value {
			case "list":
				rdb.LPush(ctx, key, "x")
			case "string":
				rdb.Set(ctx, key, "x", 0)
			case "hash":
				rdb.HSet(ctx, key, "l", "x")
			}
			before := len(rdb.Keys(ctx, "*").Val())
			if _, err := tr.lua.DecideAll(ctx, 0, bad, items); err == nil {
				t.Errorf("%v, a %s: no error", kind, value)
			}
			if after := len(rdb.Keys(ctx, "*").Val()); after != before {
				t.Errorf("%v, a %s: %d keys before, %d after", kind, value, before, after)
			}
		}
	}
}

// TestBrokenKeyFailsAlone: what is not ours under one key, of whatever type, is
// no harm to the decisions on others in the same call.
func TestBrokenKeyFailsAlone(t *testing.T) {
	for _, kind := range algo.Kinds {
		t.Run(kind.Short(), func(t *testing.T) {
			rdb := newClient(t)
			tr := newTracer(t, rdb)
			p := tr.limit(kind, time.Second, time.Minute)
			items := make([]lua.Item, 4)
			for i := range items {
				items[i] = lua.Item{Keys: tr.names.KeysOf(kind, fmt.Sprint(i)), Params: lua.NewArgs(p), Cost: 1}
			}
			ctx := t.Context()
			if err := rdb.LPush(ctx, items[1].Keys.State(), "x").Err(); err != nil {
				t.Fatal(err)
			}
			_, out, err := tr.lua.Decide(ctx, 0, "n", items, nil)
			var reply *lua.ReplyError
			if !errors.As(err, &reply) || len(out) != len(items) {
				t.Fatalf("%v, %v", out, err)
			}
			for i := range items {
				if broken := i == 1; items[i].Broken != broken || out[i].Allowed == broken {
					t.Errorf("item %d: broken %v, %+v", i, items[i].Broken, out[i])
				}
			}
		})
	}
}

// TestBrokenKeyFailsItsRequest: what is not ours under a key of one request of several is no harm to
// the others.
func TestBrokenKeyFailsItsRequest(t *testing.T) {
	for _, kind := range algo.Kinds {
		t.Run(kind.Short(), func(t *testing.T) {
			rdb := newClient(t)
			tr := newTracer(t, rdb)
			p := tr.limit(kind, time.Second, time.Minute)
			items := make([]lua.Item, 6)
			for i := range items {
				items[i] = lua.Item{Keys: tr.names.KeysOf(kind, fmt.Sprint(i)), Params: lua.NewArgs(p), Cost: 1}
			}
			ctx := t.Context()
			if err := rdb.LPush(ctx, items[3].Keys.State(), "x").Err(); err != nil {
				t.Fatal(err)
			}
			d := lua.DecideAll{Nonce: "n", Of: 2, Items: items}
			var reply *lua.ReplyError
			if err := tr.lua.One(ctx, &d); !errors.As(err, &reply) || len(d.Out) != len(items) {
				t.Fatalf("%v, %v", d.Out, err)
			}
			for i := range items {
				if broken := i == 3; items[i].Broken != broken || d.Out[i].Allowed == broken {
					t.Errorf("item %d: broken %v, %+v", i, items[i].Broken, d.Out[i])
				}
				if charged := i/2 != 1; rdb.Exists(ctx, items[i].Keys.State()).Val() == 1 != charged && i != 3 {
					t.Errorf("item %d: charged %v", i, !charged)
				}
			}
		})
	}
}
