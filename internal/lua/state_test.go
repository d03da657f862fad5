package lua_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// decider decides on one key of an algorithm.
type decider struct {
	t     *testing.T
	c     *lua.Client
	keys  lua.Keys
	p     lua.Args
	calls *int
}

func newDecider(t *testing.T, rdb redis.UniversalClient, kind algo.Kind, n, per int64, id string) decider {
	t.Helper()
	return decider{t, lua.NewClient(rdb), lua.NewNamer("state").KeysOf(kind, id), params(t, algo.Limit{Kind: kind, N: n, Per: per, Burst: n}), new(int)}
}

func (d decider) at(now, n int64) algo.Decision {
	d.t.Helper()
	*d.calls++
	_, out, err := d.c.Decide(context.Background(), now, "n"+strconv.Itoa(*d.calls), []lua.Item{{Keys: d.keys, Params: d.p, Cost: n}}, nil)
	if err != nil {
		d.t.Fatalf("%v: %v", d.p.Kind, err)
	}
	return out[0]
}

func (d decider) block(now, us int64) int64 {
	d.t.Helper()
	left, err := d.c.Block(context.Background(), now, d.keys, d.p, us)
	if err != nil {
		d.t.Fatalf("%v: %v", d.p.Kind, err)
	}
	return left
}

// TestBlockInTheState: a block and the state it is a part of live as long as the
// longer one of them, and neither forgets the other.
func TestBlockInTheState(t *testing.T) {
	rdb := newClient(t)
	ttl := func(d decider) time.Duration { return rdb.PTTL(t.Context(), d.keys.State()).Val() }
	between := func(d decider, from, to time.Duration) {
		t.Helper()
		// Two seconds more let the time to live stay while a key is in use.
		if got := ttl(d); got <= from || got > to+2*time.Second {
			t.Errorf("%v: lives for %v, want more than %v and at most 2 s more than %v", d.p.Kind, got, from, to)
		}
	}
	const hour = 3600 * sec
	for _, kind := range algo.Kinds {
		fresh := newDecider(t, rdb, kind, 10, hour, "never used")
		if left := fresh.block(0, 5*sec); left != 5*sec {
			t.Errorf("%v: %d left", kind, left)
		}
		between(fresh, 4*time.Second, 5*time.Second) // nothing but a block
		if d := fresh.at(0, 3); d.Allowed || d.Remaining != 0 || d.RetryAfter <= 4*sec || d.ResetAfter < d.RetryAfter {
			t.Errorf("%v, blocked: %+v", kind, d)
		}
		between(fresh, 4*time.Second, 5*time.Second)
		if left := fresh.block(0, sec); left <= 4*sec || left > 5*sec {
			t.Errorf("%v: a shorter block leaves %d", kind, left)
		}

		used := newDecider(t, rdb, kind, 10, 240*hour, "used")
		used.at(0, 10)
		before := ttl(used)
		used.block(0, sec)
		between(used, before-time.Minute, before+time.Millisecond)
		used.block(0, 1000*hour)
		between(used, 999*time.Hour, 1000*time.Hour)
		// What is charged or given back meanwhile changes no block, and no more than
		// the state.
		given, err := used.c.GiveBack(t.Context(), 0, "n", []lua.Taken{{Keys: used.keys, Params: used.p, Units: 4}})
		if want := int64(4); err != nil || given[0] != want && kind != algo.LeakyBucketShaping {
			t.Errorf("%v: %v given back, %v", kind, given, err)
		}
		between(used, 999*time.Hour, 1000*time.Hour)
		if d := used.at(0, -2); d.RetryAfter != 0 {
			t.Errorf("%v: a debt while blocked: %+v", kind, d)
		}
		between(used, 999*time.Hour, 1000*time.Hour)
		if d := used.at(0, 0); d.Allowed || d.RetryAfter < 999*hour {
			t.Errorf("%v: the block is gone: %+v", kind, d)
		}
	}
}

// TestBlockWhenRedisStepsBack: a block lasts no longer than it was long, wherever the
// clock of Redis is, and is forgotten by the first that is admitted after it.
func TestBlockWhenRedisStepsBack(t *testing.T) {
	rdb := newClient(t)
	for _, kind := range algo.Kinds {
		d := newDecider(t, rdb, kind, 10, sec, "k")
		d.block(t0, sec)
		now := t0 - 3600*sec
		for _, c := range []struct{ later, n, retry int64 }{{0, 0, sec}, {0, 1, sec}, {sec / 2, 1, sec / 2}, {sec, 1, 0}} {
			if got := d.at(now+c.later, c.n); got.RetryAfter != c.retry || got.Allowed != (c.retry == 0) {
				t.Errorf("%v: %d after an hour back: %+v, want a retry after %d", kind, c.later, got, c.retry)
			}
		}
		if got := d.at(now-3600*sec, 0); !got.Allowed {
			t.Errorf("%v: the block is still there: %+v", kind, got)
		}
	}
}

// TestGiveBackAfterAReset: of the units that were charged to a state which is lost,
// none is given back to what has begun since.
func TestGiveBackAfterAReset(t *testing.T) {
	rdb := newClient(t)
	for _, kind := range algo.Kinds {
		for name, lose := range map[string]func(key string) error{
			"reset":    func(key string) error { return rdb.Del(t.Context(), key).Err() },
			"flushall": func(string) error { return rdb.FlushAll(t.Context()).Err() },
		} {
			d := newDecider(t, rdb, kind, 10, 36000*sec, "k"+name)
			item := []lua.Item{{Keys: d.keys, Params: d.p, Cost: 8}}
			if _, _, err := d.c.Decide(t.Context(), 0, "first", item, nil); err != nil {
				t.Fatal(err)
			}
			if err := lose(d.keys.State()); err != nil {
				t.Fatal(err)
			}
			if !d.at(0, 10).Allowed {
				t.Fatalf("%v: denied after a %s", kind, name)
			}
			given, err := d.c.GiveBack(t.Context(), 0, "n", []lua.Taken{{Keys: d.keys, Params: d.p, Units: 8, At: item[0].At}})
			if err != nil || given[0] != 0 || d.at(0, 1).Allowed {
				t.Errorf("%v: after a %s %v were given back, %v", kind, name, given, err)
			}
		}
	}
}

// TestUnitsOfOneTimeAreAlike: what a refund took of units that were charged at one time is still given back
// to each of those who share them.
func TestUnitsOfOneTimeAreAlike(t *testing.T) {
	rdb := newClient(t)
	const now = 1_760_000_000_123_456
	for _, kind := range algo.Kinds {
		d := newDecider(t, rdb, kind, 10, 36000*sec, "k")
		d.at(now, 3)
		d.at(now, 5) // a refund takes these first
		back := func(units, at int64) int64 {
			given, err := d.c.GiveBack(t.Context(), now, "n", []lua.Taken{{Keys: d.keys, Params: d.p, Units: units, Of: 5, At: at}})
			if err != nil {
				t.Fatal(err)
			}
			return given[0]
		}
		want := []int64{1, 2, 5}
		if kind == algo.LeakyBucketShaping {
			want = []int64{0, 0, 0}
		}
		if got := []int64{back(1, 0), back(2, 0), back(5, now)}; !slices.Equal(got, want) {
			t.Errorf("%v: refunds and a reservation gave %v back, want %v", kind, got, want)
		}
	}
}

// TestLogIsSweptBitByBit: what a step takes out of a log is bounded, and it never
// counts although it is there.
func TestLogIsSweptBitByBit(t *testing.T) {
	rdb := newClient(t)
	d := newDecider(t, rdb, algo.SlidingWindowLog, 1000, sec, "k")
	s := new(algo.State)
	now, seen := t0, int64(0)
	for i, c := range []struct{ pause, n, held int64 }{
		{0, 1000, 1000}, {sec, 1, 900}, {1, 50, 800}, {1, 0, 800}, {1, 949, 1000}, {1, 1, 1000},
		{-sec / 2, 1, 1000}, {sec * 3 / 2, 1, 900}, {1, 999, 1000}, {3 * sec, -10, 900},
	} {
		now += c.pause
		var want algo.Decision
		if c.n < 0 {
			want = algo.Debit(d.p.Params, s, now, -c.n, 0)
		} else {
			want = algo.Decide(d.p.Params, s, now, c.n)
		}
		if got := d.at(now, c.n); got != want {
			t.Fatalf("step %d: Redis %+v, Go %+v", i, got, want)
		}
		held := rdb.ZCard(t.Context(), d.keys.State()).Val()
		if held != c.held || held != s.V {
			t.Errorf("step %d: %d units are kept in Redis and %d in Go, want %d", i, held, s.V, c.held)
		}
		seen = max(seen, held)
	}
	if seen > 1000 {
		t.Errorf("a log of 1000 has grown to %d", seen)
	}
}

// TestWork: what bounds a call counts the units of logs, and one for others.
func TestWork(t *testing.T) {
	for _, kind := range algo.Kinds {
		p := params(t, algo.Limit{Kind: kind, N: 100, Per: 3600 * sec, Burst: 100})
		for units, want := range map[int64]int64{0: 1, 1: 1, 21: 21, 5000: 100} {
			if kind != algo.SlidingWindowLog {
				want = 1
			}
			if got := lua.Work(&p.Params, units); got != want {
				t.Errorf("%v: %d units are %d, want %d", kind, units, got, want)
			}
		}
	}
}

// FuzzState: whatever text stands under a key, the answer is a decision or names the
// key, and other keys of the call are decided all the same.
func FuzzState(f *testing.F) {
	for _, text := range []string{
		"", "x", "1", "1:2:3", "1:2:3:4", "1:2:3:4:", "1:2:3:4:5", "1:2:3:4:5:6", "1:2:3:4:5:6:7", "0:0:0:0", "0:0:0:0:9007199254740991:9007199254740991",
		"-1:2:3:4", "1:2:3:4:-5:6", "1:2:3:4:-9007199254740991:6", "9007199254740991:1:9007199254740991:9007199254740991:-9007199254740991:0", "1e3:2:3:4", "1:2:0:4", "9007199254740991:9007199254740991:9007199254740991:9007199254740991:9:9",
		"99999999999999999999999999:99999999999999999999999999:9999999999999999999999999:99999999999999999999999999", "1760000000000000:5:10000:1760000000000000:1760000001000000:1000000\n",
		strings.Repeat("9", 400) + ":" + strings.Repeat("9", 400) + ":0:" + strings.Repeat("9", 400),
	} {
		f.Add(text)
	}
	redistest.Require(f)
	rdb := redistest.Client(f, redistest.Start(f))
	f.Fuzz(func(t *testing.T, text string) {
		c, names := lua.NewClient(rdb), lua.NewNamer("fuzz")
		for _, kind := range algo.Kinds {
			p := params(t, algo.Limit{Kind: kind, N: 10, Per: sec, Burst: 10})
			items := make([]lua.Item, 2)
			for i := range items {
				items[i] = lua.Item{Keys: names.KeysOf(kind, fmt.Sprint(i)), Params: p, Cost: 1}
			}
			rdb.Del(t.Context(), items[1].Keys.State())
			if err := rdb.Set(t.Context(), items[0].Keys.State(), text, time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
			_, out, err := c.Decide(t.Context(), t0, "n", items, nil)
			var reply *lua.ReplyError
			if err != nil && !errors.As(err, &reply) {
				t.Fatalf("%v of %q: %v", kind, text, err)
			}
			if err == nil && !out[1].Allowed || len(out) == 2 && items[0].Broken && !out[1].Allowed {
				t.Fatalf("%v of %q: the other key has %+v, %v", kind, text, out, err)
			}
			if _, err := c.Block(t.Context(), t0, items[0].Keys, p, sec); err != nil && !errors.As(err, &reply) && !redis.HasErrorPrefix(err, "WRONGTYPE") {
				t.Fatalf("a block of %v of %q: %v", kind, text, err)
			}
			if _, err := c.GiveBack(t.Context(), t0, "n", []lua.Taken{{Keys: items[0].Keys, Params: p, Units: 3, At: t0}}); err != nil && !errors.As(err, &reply) {
				t.Fatalf("a give-back to %v of %q: %v", kind, text, err)
			}
		}
	})
}

// TestMigratingSlot: while a slot is moved, Redis decides on its keys: on those that
// are still here, on those that are there, and on new ones.
func TestMigratingSlot(t *testing.T) {
	cluster := redistest.StartCluster(t, 2, 0)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { _ = rdb.Close() })
	ctx := t.Context()
	slot := rdb.ClusterKeySlot(ctx, "{here}").Val()
	ids := []string{"here"}
	for i := 0; len(ids) < 3; i++ {
		if id := fmt.Sprint("k", i); rdb.ClusterKeySlot(ctx, id).Val() == slot {
			ids = append(ids, id)
		}
	}
	from, err := cluster.MasterOf(int(slot))
	if err != nil {
		t.Fatal(err)
	}
	to := cluster.Masters[0]
	if to == from {
		to = cluster.Masters[1]
	}
	source, target := redistest.Admin(t, from), redistest.Admin(t, to)
	deciders := map[string][]decider{}
	for _, kind := range algo.Kinds {
		for _, id := range ids {
			d := newDecider(t, rdb, kind, 10, 36000*sec, id)
			deciders[id] = append(deciders[id], d)
			if id != ids[2] { // which is new
				d.at(0, 4)
			}
		}
	}
	sourceID, targetID := source.Do(ctx, "cluster", "myid").Val(), target.Do(ctx, "cluster", "myid").Val()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(target.Do(ctx, "cluster", "setslot", slot, "importing", sourceID).Err())
	must(source.Do(ctx, "cluster", "setslot", slot, "migrating", targetID).Err())
	for _, d := range deciders[ids[1]] {
		must(source.Do(ctx, "migrate", "127.0.0.1", to.Port(), d.keys.State(), 0, 5000).Err())
	}
	for id, want := range map[string]int64{ids[0]: 5, ids[1]: 5, ids[2]: 9} {
		for _, d := range deciders[id] {
			if got := d.at(0, 1); !got.Allowed || got.Remaining != want {
				t.Errorf("%v of %s: %+v, want %d remaining", d.p.Kind, id, got, want)
			}
			d.block(0, 3600*sec)
			if got := d.at(0, 1); got.Allowed || got.Remaining != 0 {
				t.Errorf("%v of %s, blocked: %+v", d.p.Kind, id, got)
			}
			if _, err := d.c.GiveBack(ctx, 0, "n", []lua.Taken{{Keys: d.keys, Params: d.p, Units: 1}}); err != nil {
				t.Errorf("%v of %s: %v", d.p.Kind, id, err)
			}
		}
	}
	if n := target.DBSize(ctx).Val(); n != int64(2*len(algo.Kinds)) {
		t.Errorf("%d keys are at the new server", n)
	}
}

// TestGiveBackThroughAFasterLimit: what a faster limit has drained is not given back, although the slow one has written again.
func TestGiveBackThroughAFasterLimit(t *testing.T) {
	c, names := lua.NewClient(newClient(t)), lua.NewNamer("faster")
	for _, kind := range []algo.Kind{algo.TokenBucket, algo.LeakyBucket, algo.GCRA} {
		keys, now := names.KeysOf(kind, "k"), int64(1_760_000_000_000_000)
		of := func(n int64) lua.Args {
			p, err := algo.Limit{Kind: kind, N: n, Per: 1_000_000, Burst: 100}.Params()
			if err != nil {
				t.Fatal(err)
			}
			return lua.NewArgs(p)
		}
		slow, fast := of(1), of(1000)
		for i, step := range []struct {
			at    int64
			limit lua.Args
			cost  int64
		}{{now, slow, 50}, {now, fast, 1}, {now + 100_000, slow, 1}} {
			if _, out, err := c.Decide(t.Context(), step.at, fmt.Sprint(kind, i), []lua.Item{{Keys: keys, Params: step.limit, Cost: step.cost}}, nil); err != nil || !out[0].Allowed {
				t.Fatalf("%v, step %d: %+v, %v", kind, i, out, err)
			}
		}
		if given, err := c.GiveBack(t.Context(), now+100_000, "n", []lua.Taken{{Keys: keys, Params: slow, Units: 50, At: now}}); err != nil || given[0] != 0 {
			t.Errorf("%v: %v given back, %v", kind, given, err)
		}
	}
}
