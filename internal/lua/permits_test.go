package lua_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/lua"
)

// TestEndedPermitWhileOthersWait: a permit that has ended is none, also to a caller who is
// refused because of those before it.
func TestEndedPermitWhileOthersWait(t *testing.T) {
	rdb := newClient(t)
	c, key := lua.NewClient(rdb), lua.NewNamer("permits").Permits("k")
	now := int64(1_760_000_000_000_000)
	const short, long = 1000, 3_600_000_000
	ask := func(caller string, ttl int64, wait bool) lua.PermitReply {
		t.Helper()
		r, err := c.Acquire(t.Context(), now, "n", &lua.PermitAsk{Key: key, Most: 3, TTL: ttl, Patience: long, Wait: wait, Callers: []string{caller}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, c := range []struct {
		caller string
		ttl    int64
	}{{"ends", short}, {"stays", long}, {"goes", long}} {
		if r := ask(c.caller, c.ttl, false); !r.Granted[0] {
			t.Fatalf("%s: %+v", c.caller, r)
		}
	}
	if r := ask("waits", long, true); r.Granted[0] || r.NextEnd != short {
		t.Fatalf("%+v", r)
	}
	if err := c.LeavePermits(t.Context(), key, "goes"); err != nil {
		t.Fatal(err)
	}
	now += 2 * short
	if r := ask("comes later", long, false); !r.Granted[0] || r.Held != 2 {
		t.Errorf("one of two that are free is for the one who waits: %+v", r)
	}
	if r := ask("waits", long, true); !r.Granted[0] || r.Held != 3 {
		t.Errorf("the one who waited: %+v", r)
	}
}

// TestFreePermitIsForTheFirstWaiter: a free permit is for the one who waits, but for critical callers.
func TestFreePermitIsForTheFirstWaiter(t *testing.T) {
	rdb := newClient(t)
	c := lua.NewClient(rdb)
	ask := func(key, caller string, wait, critical bool) bool {
		t.Helper()
		r, err := c.Acquire(t.Context(), 0, "n", &lua.PermitAsk{Key: key, Most: 1, TTL: 3_600_000_000, Patience: 3_600_000_000, Wait: wait, Critical: critical, Callers: []string{caller}})
		if err != nil {
			t.Fatal(err)
		}
		return r.Granted[0]
	}
	for name, steps := range map[string][]struct {
		caller   string
		wait     bool
		critical bool
		granted  bool
	}{
		"others":   {{"passes by", false, false, false}, {"waits", true, false, true}},
		"critical": {{"passes by", false, true, true}, {"waits", true, false, false}},
		"both":     {{"also waits", true, false, false}, {"critical", true, true, true}, {"waits", true, false, false}},
	} {
		key := lua.NewNamer("permits").Permits(name)
		if !ask(key, "holds", false, false) || ask(key, "waits", true, false) {
			t.Fatal("the permit is not held")
		}
		if err := c.LeavePermits(t.Context(), key, "holds"); err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			if got := ask(key, s.caller, s.wait, s.critical); got != s.granted {
				t.Errorf("%s: the one who %s got it: %v", name, s.caller, got)
			}
		}
	}
}

// permitsAt asks for permits at given times.
type permitsAt struct {
	t   *testing.T
	rdb *redis.Client
	lua *lua.Client
	key string
	now int64
	lua.PermitAsk
}

const second = 1_000_000

func newPermitsAt(t *testing.T, most int64) *permitsAt {
	rdb := newClient(t)
	s := &permitsAt{t: t, rdb: rdb, lua: lua.NewClient(rdb), key: lua.NewNamer("permits").Permits("k"), now: 1_760_000_000_000_000}
	s.PermitAsk = lua.PermitAsk{Key: s.key, Most: most, TTL: 15 * second, Patience: 2 * second}
	return s
}

func (s *permitsAt) ask(ask lua.PermitAsk, callers ...string) lua.PermitReply {
	s.t.Helper()
	ask.Callers = callers
	r, err := s.lua.Acquire(s.t.Context(), s.now, "n", &ask)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *permitsAt) try(caller string) bool {
	s.t.Helper()
	return s.ask(s.PermitAsk, caller).Granted[0]
}

func (s *permitsAt) wait(caller string) bool {
	s.t.Helper()
	ask := s.PermitAsk
	ask.Wait, ask.Again = true, true
	return s.ask(ask, caller).Granted[0]
}

func (s *permitsAt) leave(caller string) {
	s.t.Helper()
	if err := s.lua.LeavePermits(s.t.Context(), s.key, caller); err != nil {
		s.t.Fatal(err)
	}
}

// TestEvictedQueue: whichever key Redis evicts of what it keeps, one who died while
// waiting is waited for no longer than it is believed to live.
func TestEvictedQueue(t *testing.T) {
	s := newPermitsAt(t, 1)
	for evict := 0; ; evict++ {
		if err := s.rdb.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if !s.try("holds") || s.wait("dies") {
			t.Fatal("the permit is not held")
		}
		keys := s.rdb.Keys(t.Context(), "*").Val()
		slices.Sort(keys)
		if evict == len(keys) {
			if evict != 1 {
				t.Errorf("it is kept in %d keys: %v", evict, keys)
			}
			return
		}
		if err := s.rdb.Del(t.Context(), keys[evict]).Err(); err != nil {
			t.Fatal(err)
		}
		s.leave("holds")
		s.now += s.Patience + 1
		if !s.wait("lives") {
			t.Errorf("after the loss of %s the dead one is waited for", keys[evict])
		}
	}
}

// TestDeadWaiter: one who is not heard of keeps its place as long as it is believed to
// wait, and no longer; those who are heard of keep theirs for good.
func TestDeadWaiter(t *testing.T) {
	s := newPermitsAt(t, 1)
	if !s.try("holds") || s.wait("dies") || s.wait("second") || s.wait("third") {
		t.Fatal("the permit is not held")
	}
	s.leave("holds")
	s.now += s.Patience - 1
	if s.wait("third") || s.wait("second") {
		t.Error("one who may still live was passed by")
	}
	s.now++
	if s.wait("third") {
		t.Error("one who waits was passed by")
	}
	s.now += s.Patience - 2
	if s.wait("third") || !s.wait("second") {
		t.Error("one who waits lost its place")
	}
	s.leave("third")
	if left := s.rdb.ZRange(t.Context(), s.key, 0, -1).Val(); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

// TestPermitClockStepsBack: what a dead process left ends with its time to live, though
// the clock steps back, and those who came first are first.
func TestPermitClockStepsBack(t *testing.T) {
	const hour = 3600 * second
	t.Run("holder", func(t *testing.T) {
		s := newPermitsAt(t, 1)
		if !s.try("dies") {
			t.Fatal("no permit")
		}
		s.now -= hour
		if s.try("early") {
			t.Error("a permit that is held was given away")
		}
		if r := s.ask(s.PermitAsk, "early"); r.NextEnd != s.TTL {
			t.Errorf("it ends in %d µs", r.NextEnd)
		}
		s.now += s.TTL + 1
		if !s.try("late") {
			t.Error("a dead one holds its permit")
		}
	})
	t.Run("a longer time to live", func(t *testing.T) {
		s := newPermitsAt(t, 1)
		long := s.PermitAsk
		long.TTL = 60 * second
		if !s.ask(long, "dies/60000000").Granted[0] {
			t.Fatal("no permit")
		}
		s.now += s.TTL + 1
		if s.try("early") {
			t.Error("a permit that is held was given away to one with a shorter time to live")
		}
		s.now -= hour
		s.try("early")
		s.now += long.TTL - 1
		if s.try("early") {
			t.Error("a permit that is held was given away")
		}
		s.now += 2
		if !s.try("late") {
			t.Error("a dead one holds its permit")
		}
	})
	t.Run("waiter", func(t *testing.T) {
		s := newPermitsAt(t, 1)
		if !s.try("holds") || s.wait("dies") {
			t.Fatal("the permit is not held")
		}
		s.now -= hour
		s.leave("holds")
		if s.try("early") {
			t.Error("one who waits was passed by")
		}
		s.now += s.Patience + 1
		if !s.try("late") {
			t.Error("a dead one is waited for")
		}
	})
	t.Run("order", func(t *testing.T) {
		s := newPermitsAt(t, 1)
		if !s.try("holds") || s.wait("first") {
			t.Fatal("the permit is not held")
		}
		s.now -= hour
		if s.wait("second") || s.wait("first") {
			t.Fatal("the permit is not held")
		}
		s.leave("holds")
		if s.wait("second") || !s.wait("first") {
			t.Error("the second one was first")
		}
	})
}

// TestEveryPermitExpires: in a set of holders and waiters the longest time to live is that
// of the key, and a lost one is set again.
func TestEveryPermitExpires(t *testing.T) {
	s := newPermitsAt(t, 1)
	ttl := func() time.Duration { return s.rdb.PTTL(t.Context(), s.key).Val() }
	s.TTL = 600 * second
	if !s.try("holds") {
		t.Fatal("no permit")
	}
	s.wait("waits")
	if _, err := s.lua.KeepPermits(t.Context(), s.now, 5*second, []lua.Holders{{Key: s.key, Callers: []string{"another"}}}); err != nil {
		t.Fatal(err)
	}
	if d := ttl(); d < 500*time.Second {
		t.Errorf("the key lives for %v", d)
	}
	if err := s.rdb.Persist(t.Context(), s.key).Err(); err != nil {
		t.Fatal(err)
	}
	s.wait("waits")
	if d := ttl(); d <= 0 {
		t.Errorf("a lost time to live is %v", d)
	}
}

// TestLeavingIsOneStep: a caller who leaves is taken out of all that is kept.
func TestLeavingIsOneStep(t *testing.T) {
	s := newPermitsAt(t, 1)
	if !s.try("holds") || s.wait("waits") {
		t.Fatal("the permit is not held")
	}
	if err := s.lua.LeavePermits(t.Context(), s.key, "waits", "holds"); err != nil {
		t.Fatal(err)
	}
	if n := s.rdb.Exists(t.Context(), s.key).Val(); n != 0 {
		t.Errorf("left: %v", s.rdb.ZRangeWithScores(t.Context(), s.key, 0, -1).Val())
	}
}

// TestPermitsTogether: in one command those who leave are taken out before others ask, each asks with its own
// numbers, and a key that holds something else is refused alone.
func TestPermitsTogether(t *testing.T) {
	rdb := newClient(t)
	names, c := lua.NewNamer("permits"), lua.NewClient(rdb)
	if err := rdb.Set(t.Context(), names.Permits("broken"), "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	ask := func(id string, most int64, wait bool, callers ...string) lua.PermitItem {
		return lua.PermitItem{Ask: &lua.PermitAsk{ID: id, Key: names.Permits(id), Most: most, TTL: 3600 * second, Patience: 3600 * second, Wait: wait, Callers: callers}}
	}
	leave := func(id, caller string, queued bool) lua.PermitItem {
		return lua.PermitItem{Leave: &lua.Leaver{ID: id, Key: names.Permits(id), Caller: caller, Queued: queued}}
	}
	step := func(items ...lua.PermitItem) []lua.PermitItem {
		t.Helper()
		p := lua.Permits{Nonce: "n", Items: items}
		if err := c.One(t.Context(), &p); err != nil {
			t.Fatal(err)
		}
		return p.Items
	}
	step(ask("a", 1, false, "1"), ask("b", 2, false, "2", "3"), ask("b", 2, true, "4", "5"))
	got := step(
		ask("a", 1, false, "6"), ask("a", 1, true, "7"), leave("a", "1", false),
		ask("broken", 1, false, "8", "9"), leave("broken", "10", true),
		ask("b", 2, true, "4", "5"), leave("b", "2", false), leave("b", "4", true),
		ask("c", 9, false), ask("c", 9, false, "11", "12"),
	)
	for i, want := range map[int][]bool{0: {true}, 1: {false}, 5: {false, true}, 8: {}, 9: {true, true}} {
		if r := got[i].Got; r.Err != nil || !slices.Equal(r.Granted, want) {
			t.Errorf("item %d: %+v, want %v", i, r, want)
		}
	}
	if r := got[3].Got; r.Err == nil || r.Granted != nil {
		t.Errorf("the key that holds something else: %+v", r)
	}
	if held := [3]int64{got[1].Got.Held, got[5].Got.Held, got[9].Got.Held}; held != [3]int64{1, 2, 2} {
		t.Errorf("held: %v", held)
	}
	if left := rdb.ZRange(t.Context(), names.Permits("a"), 0, -1).Val(); !slices.Equal(left, []string{"q7", "h6", "w7"}) {
		t.Errorf("a: %v", left)
	}
}

// TestAsksOfOneCommandAreTheirOwn: what one ask of a command says of permits and callers does not count for the
// next one.
func TestAsksOfOneCommandAreTheirOwn(t *testing.T) {
	rdb := newClient(t)
	names, c := lua.NewNamer("permits"), lua.NewClient(rdb)
	for name, first := range map[string]lua.PermitAsk{
		"kept for critical callers": {Most: 2, TTL: 10 * second},
		"critical":                  {Most: 2, Keep: 1, TTL: 10 * second, Critical: true},
		"time to live":              {Most: 2, Keep: 1, TTL: 3600 * second},
		"number":                    {Most: 9, Keep: 1, TTL: 10 * second},
	} {
		first.ID, first.Key, first.Callers = "first", names.Permits(name+"1"), []string{"1"}
		ask := func(callers ...string) lua.PermitItem {
			return lua.PermitItem{Ask: &lua.PermitAsk{ID: "second", Key: names.Permits(name + "2"), Most: 2, Keep: 1, TTL: 10 * second, Callers: callers}}
		}
		p := lua.Permits{Nonce: "n", Items: []lua.PermitItem{{Ask: &first}, ask("2", "3")}}
		if err := c.One(t.Context(), &p); err != nil {
			t.Fatal(err)
		}
		if got := p.Items[1].Got; !slices.Equal(got.Granted, []bool{true, false}) || got.NextEnd > 10*second {
			t.Errorf("after one of another %s: %+v", name, got)
		}
	}
}

// TestRoomWithoutMemory: when Redis is out of memory, permits are still given back, together with others that are
// asked for.
func TestRoomWithoutMemory(t *testing.T) {
	rdb := newClient(t)
	names, c := lua.NewNamer("permits"), lua.NewClient(rdb)
	key := names.Permits("k")
	ask := func(id string) lua.PermitItem {
		return lua.PermitItem{Ask: &lua.PermitAsk{ID: id, Key: names.Permits(id), Most: 1, TTL: 3600 * second, Callers: []string{"c"}}}
	}
	if err := c.One(t.Context(), &lua.Permits{Nonce: "n", Items: []lua.PermitItem{ask("k")}}); err != nil {
		t.Fatal(err)
	}
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	defer rdb.ConfigSet(context.Background(), "maxmemory", "0")
	_ = c.One(t.Context(), &lua.Permits{Nonce: "n", Items: []lua.PermitItem{ask("other"), {Leave: &lua.Leaver{ID: "k", Key: key, Caller: "c"}}}})
	if held := rdb.ZRange(t.Context(), key, 0, -1).Val(); len(held) > 0 {
		t.Errorf("held: %v", held)
	}
}
