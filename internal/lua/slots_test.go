package lua_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/lua"
)

// TestEndedSlotWhileOthersWait: a slot that has ended is none, also to a caller who is
// refused because of those before it.
func TestEndedSlotWhileOthersWait(t *testing.T) {
	rdb := newClient(t)
	c, keys := lua.NewClient(rdb), lua.NewNamer("slots").Slots("k")
	now := int64(1_760_000_000_000_000)
	ask := func(caller string, ttl, patience int64) lua.SlotReply {
		t.Helper()
		r, err := c.Acquire(t.Context(), now, "n", &lua.SlotAsk{Keys: keys, Most: 3, TTL: ttl, Patience: patience, Callers: []string{caller}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	const short, long = 1000, 3_600_000_000
	for _, c := range []struct {
		caller string
		ttl    int64
	}{{"ends", short}, {"stays", long}, {"goes", long}} {
		if r := ask(c.caller, c.ttl, 0); !r.Granted[0] {
			t.Fatalf("%s: %+v", c.caller, r)
		}
	}
	if r := ask("waits", long, long); r.Granted[0] || r.NextEnd != short {
		t.Fatalf("%+v", r)
	}
	if err := rdb.ZRem(t.Context(), keys.Held, "goes").Err(); err != nil {
		t.Fatal(err)
	}
	now += 2 * short
	if r := ask("comes later", long, 0); !r.Granted[0] || r.Held != 2 {
		t.Errorf("one of two that are free is for the one who waits: %+v", r)
	}
	if r := ask("waits", long, long); !r.Granted[0] || r.Held != 3 {
		t.Errorf("the one who waited: %+v", r)
	}
}

// TestNobodyPassesBy: a free slot is for the one who waits, but for critical callers.
func TestNobodyPassesBy(t *testing.T) {
	rdb := newClient(t)
	c := lua.NewClient(rdb)
	ask := func(keys lua.SlotKeys, caller string, patience int64, critical bool) bool {
		t.Helper()
		r, err := c.Acquire(t.Context(), 0, "n", &lua.SlotAsk{Keys: keys, Most: 1, TTL: 3_600_000_000, Patience: patience, Critical: critical, Callers: []string{caller}})
		if err != nil {
			t.Fatal(err)
		}
		return r.Granted[0]
	}
	for name, steps := range map[string][]struct {
		caller   string
		patience int64
		critical bool
		granted  bool
	}{
		"others":   {{"passes by", 0, false, false}, {"waits", 3_600_000_000, false, true}},
		"critical": {{"passes by", 0, true, true}, {"waits", 3_600_000_000, false, false}},
		"both":     {{"also waits", 3_600_000_000, false, false}, {"critical", 3_600_000_000, true, true}, {"waits", 3_600_000_000, false, false}},
	} {
		keys := lua.NewNamer("slots").Slots(name)
		if !ask(keys, "holds", 0, false) || ask(keys, "waits", 3_600_000_000, false) {
			t.Fatal("the slot is not held")
		}
		if err := rdb.ZRem(t.Context(), keys.Held, "holds").Err(); err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			if got := ask(keys, s.caller, s.patience, s.critical); got != s.granted {
				t.Errorf("%s: the one who %s got it: %v", name, s.caller, got)
			}
		}
	}
}
