package lua_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

var (
	traceSeed  = flag.Uint64("trace.seed", 0, "seed of the random traces; 0 draws one")
	traceSteps = flag.Int("trace.steps", defaultSteps(), "steps of each random trace")
)

// defaultSteps is few for a run while one works, and many with HOLDFAST_LONG=1.
func defaultSteps() int {
	if os.Getenv("HOLDFAST_LONG") == "1" {
		return 100_000
	}
	return 5_000
}

// tracer replays every reply of Redis through the step functions at the time
// that the reply carries, and fails at the first difference in any field.
type tracer struct {
	t     *testing.T
	rng   *rand.Rand
	rdb   *redis.Client
	lua   *lua.Client
	names *lua.Namer
	state map[string]*algo.State
	calls int
	// returned and kept count items given back that returned something, and nothing.
	returned, kept int
	taken          map[string]grant
}

// grant is units that were admitted and may be given back.
type grant struct {
	at, units int64
	member    string
}

func newTracer(t *testing.T, rdb *redis.Client) *tracer {
	seed := *traceSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("rerun with: go test -run '%s' ./internal/lua -args -trace.seed=%d -trace.steps=%d", t.Name(), seed, *traceSteps)
	return &tracer{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), rdb: rdb, lua: lua.NewClient(rdb),
		names: lua.NewNamer(fmt.Sprintf("trace-%d", rand.Uint32())),
		state: map[string]*algo.State{}, taken: map[string]grant{},
	}
}

func (tr *tracer) step(p algo.Params, key string, now, n int64) {
	tr.calls++
	item := lua.Item{Keys: tr.names.Keys(p.Kind, key), Params: lua.NewArgs(p), Cost: n}
	at, out, err := tr.lua.Decide(context.Background(), now, fmt.Sprint("n", tr.calls), []lua.Item{item}, nil)
	if err != nil {
		tr.t.Fatalf("step %d, key %q, cost %d: %v", tr.calls, key, n, err)
	}
	s := tr.of(key)
	before := *s
	var want algo.Decision
	if n < 0 {
		want = algo.Debit(p, s, at, -n)
	} else {
		want = algo.Decide(p, s, at, n)
	}
	if out[0] != want {
		tr.t.Fatalf("step %d: %+v, key %q, cost %d, now %d, state %+v\nRedis: %+v\nGo:    %+v",
			tr.calls, p, key, n, at, before, out[0], want)
	}
	if n > 0 && want.Allowed {
		tr.taken[key] = grant{at, n, lua.Member(fmt.Sprint("n", tr.calls), 0)}
	}
}

// of is the state of a key.
func (tr *tracer) of(key string) *algo.State {
	if tr.state[key] == nil {
		tr.state[key] = new(algo.State)
	}
	return tr.state[key]
}

// reset forgets a key, as a Reset, an eviction or a flush does. What was taken of it
// may still be given back.
func (tr *tracer) reset(p algo.Params, key string) {
	var err error
	if tr.rng.IntN(3) == 0 {
		err = tr.rdb.FlushAll(context.Background()).Err()
		clear(tr.state)
	} else {
		err = tr.rdb.Del(context.Background(), tr.names.Keys(p.Kind, key).State()).Err()
		delete(tr.state, key)
	}
	if err != nil {
		tr.t.Fatal(err)
	}
}

// back gives back some of what was admitted last of some keys, once, in one call.
func (tr *tracer) back(limits map[string]algo.Params, keys ...string) {
	var items []lua.Taken
	var of []string
	latest, window := int64(0), int64(1<<60)
	for _, key := range keys {
		g, ok := tr.taken[key]
		if !ok {
			continue
		}
		delete(tr.taken, key)
		p, n := limits[key], 1+tr.rng.Int64N(g.units)
		items = append(items, lua.Taken{Keys: tr.names.Keys(p.Kind, key), Params: lua.NewArgs(p), Units: n, Of: g.units, At: g.at, Member: g.member, First: g.units - n + 1})
		of = append(of, key)
		latest, window = max(latest, g.at), min(window, tr.window(p))
	}
	if len(items) == 0 {
		return
	}
	// By a clock of ours, since the reply has none: at most a window later.
	now := latest + tr.rng.Int64N(window+1)
	got, err := tr.lua.GiveBack(context.Background(), now, "n", items)
	if err != nil {
		tr.t.Fatal(err)
	}
	for i, it := range items {
		s := tr.of(of[i])
		before := *s
		if want := algo.GiveBack(it.Params.Params, s, now, it.At, it.Of, it.Units); got[i] != want {
			tr.t.Fatalf("call %d, item %d: %+v, %d of %d units taken at %d are given back at %d, state %+v\nRedis: %d\nGo:    %d",
				tr.calls, i, it.Params.Params, it.Units, it.Of, it.At, now, before, got[i], want)
		}
		if got[i] > 0 {
			tr.returned++
		} else if s.At != 0 || s.V > 0 {
			tr.kept++
		}
	}
}

// refund gives back some of what anybody took.
func (tr *tracer) refund(p algo.Params, key string, now int64) {
	n := 1 + tr.rng.Int64N(p.Cap)
	before := *tr.of(key)
	got, err := tr.lua.GiveBack(context.Background(), now, "n", []lua.Taken{{Keys: tr.names.Keys(p.Kind, key), Params: lua.NewArgs(p), Units: n}})
	if err != nil {
		tr.t.Fatal(err)
	}
	if want := algo.Refund(p, tr.of(key), now, n); got[0] != want {
		tr.t.Fatalf("call %d: %+v, a refund of %d at %d, state %+v\nRedis: %d\nGo:    %d", tr.calls, p, n, now, before, got[0], want)
	}
}

// window is the time after which a key is as if never used.
func (tr *tracer) window(p algo.Params) int64 {
	if p.Kind.Windowed() {
		return p.Den
	}
	return p.Cap * p.Den / p.Num
}

// TestTraceGiveBack: what is given back is the same in Redis, whatever was asked
// before and after.
func TestTraceGiveBack(t *testing.T) {
	t.Parallel()
	for _, kind := range algo.Kinds {
		t.Run(kind.Short(), func(t *testing.T) {
			tr := newTracer(t, newClient(t))
			now := int64(1_760_000_000_123_456)
			limits, keys := map[string]algo.Params{}, make([]string, 3)
			for i := range *traceSteps / 4 {
				if i%200 == 0 {
					// Longer than the test, so that no TTL fires meanwhile.
					for k := range keys {
						keys[k] = fmt.Sprint("k", i, "-", k)
						limits[keys[k]] = tr.limit(kind, 10*time.Minute, 10*24*time.Hour)
					}
				}
				key := keys[tr.rng.IntN(len(keys))]
				p := limits[key]
				if tr.rng.IntN(3) == 0 {
					now += tr.rng.Int64N(tr.window(p)/p.Cap + 1)
				}
				tr.step(p, key, now, tr.cost(p))
				if tr.rng.IntN(4) == 0 {
					tr.back(limits, keys[:1+tr.rng.IntN(len(keys))]...)
				}
				switch tr.rng.IntN(20) {
				case 0:
					tr.refund(p, key, now)
					delete(tr.taken, key) // it may have been these
				case 1:
					tr.reset(p, key)
					now++ // the log knows units by their time in Go, and by their names in Redis
				case 2:
					tr.blockFor(p, key, now, 1+tr.rng.Int64N(tr.window(p)))
				}
			}
			if kind != algo.LeakyBucketShaping && tr.returned == 0 || tr.kept == 0 {
				t.Errorf("%d items returned something and %d nothing: not much of a trace", tr.returned, tr.kept)
			}
		})
	}
}

// several sends many items at once, some of them for several callers, and
// compares each with as many steps, one after the other.
func (tr *tracer) several(limits map[string]algo.Params, now int64) {
	tr.calls++
	items := make([]lua.Item, 1+tr.rng.IntN(6))
	keys := make([]string, len(items))
	for i := range items {
		keys[i] = fmt.Sprint("k", tr.rng.IntN(len(limits)))
		p := limits[keys[i]]
		items[i] = lua.Item{Keys: tr.names.Keys(p.Kind, keys[i]), Params: lua.NewArgs(p), Cost: 1 + tr.rng.Int64N(min(p.Cap-p.Keep, 5)), Count: tr.rng.Int64N(6)}
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
		items[i] = lua.Item{Keys: tr.names.Keys(p.Kind, key), Params: lua.NewArgs(p), Cost: n}
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

// limits of one algorithm, from very short to very long windows, with rates
// whose interval is no whole number of microseconds.
func (tr *tracer) limit(kind algo.Kind, shortest, longest time.Duration) algo.Params {
	for {
		per := int64(shortest/time.Microsecond) + tr.rng.Int64N(int64((longest-shortest)/time.Microsecond)+1)
		l := algo.Limit{Kind: kind, N: 1 + tr.rng.Int64N(30), Per: per, Burst: 1 + tr.rng.Int64N(30)}
		if p, err := l.Params(); err == nil {
			if kind == algo.LeakyBucketShaping && tr.rng.IntN(3) == 0 {
				p.MaxDelay = 1 + tr.rng.Int64N(per)
			}
			if tr.rng.IntN(3) == 0 {
				p.Keep = tr.rng.Int64N(p.Cap)
			}
			return p
		}
	}
}

// TestTraceServerClock: mixed keys, costs, pauses and changes of limit, by the
// server's clock.
func TestTraceServerClock(t *testing.T) {
	t.Parallel()
	for _, kind := range algo.Kinds {
		t.Run(kind.Short(), func(t *testing.T) {
			rdb := newClient(t)
			tr := newTracer(t, rdb)
			limits := map[string]algo.Params{}
			for range *traceSteps {
				key := fmt.Sprint("k", tr.rng.IntN(8))
				p, ok := limits[key]
				if !ok || tr.rng.IntN(100) == 0 {
					p = tr.limit(kind, 100*time.Microsecond, 20*time.Millisecond)
					limits[key] = p
				}
				tr.step(p, key, 0, tr.cost(p))
				if tr.rng.IntN(400) == 0 {
					pause(time.Duration(tr.rng.IntN(5000)) * time.Microsecond)
				}
				if tr.rng.IntN(500) == 0 {
					tr.blockFor(p, key, 0, 1+tr.rng.Int64N(5000))
				}
				if tr.rng.IntN(500) == 0 {
					tr.reset(p, key)
				}
			}
		})
	}
}

// TestTraceFunctions: the same scripts as functions give the same answers.
func TestTraceFunctions(t *testing.T) {
	t.Parallel()
	for _, kind := range algo.Kinds {
		t.Run(kind.Short(), func(t *testing.T) {
			rdb := newClient(t)
			tr := newTracer(t, rdb)
			tr.lua.UseFunctions(rdb)
			p := tr.limit(kind, 100*time.Microsecond, 20*time.Millisecond)
			for i := range *traceSteps / 10 {
				if i%100 == 0 {
					p = tr.limit(kind, 100*time.Microsecond, 20*time.Millisecond)
				}
				tr.step(p, fmt.Sprint("k", i/100), 0, tr.cost(p))
			}
			if used, err := tr.lua.Functions(); !used || err != nil {
				t.Errorf("functions were given up: %v", err)
			}
		})
	}
}

// TestTraceGivenClock: the same on a clock that jumps, forward and back.
func TestTraceGivenClock(t *testing.T) {
	t.Parallel()
	for _, kind := range algo.Kinds {
		t.Run(kind.Short(), func(t *testing.T) {
			rdb := newClient(t)
			tr := newTracer(t, rdb)
			now := int64(1_760_000_000_123_456)
			p := algo.Params{}
			for i := range *traceSteps {
				// A key lives for few steps, so that no TTL fires on the real
				// clock while the given one stands still.
				key := fmt.Sprint("k", i/200)
				if i%200 == 0 || tr.rng.IntN(50) == 0 {
					p = tr.limit(kind, 10*time.Minute, 10*24*time.Hour)
				}
				span := p.Den
				if !kind.Windowed() {
					span = p.Den * (1 + p.Cap) / p.Num
				}
				if now > 4_000_000_000_000_000 {
					now = 1_760_000_000_123_456
				}
				switch r := tr.rng.IntN(20); {
				case r == 0:
					now -= tr.rng.Int64N(min(4*span, now/2))
				case r < 4:
					now += tr.rng.Int64N(2 * span)
				case r < 16:
					now += tr.rng.Int64N(span/p.Cap + 1)
				}
				tr.step(p, key, now, tr.cost(p))
				if tr.rng.IntN(100) == 0 {
					tr.blockFor(p, key, now, 1+tr.rng.Int64N(2*span))
				}
			}
		})
	}
}

func (tr *tracer) cost(p algo.Params) int64 {
	switch tr.rng.IntN(10) {
	case 0:
		return 0
	case 1, 2:
		return tr.rng.Int64N(p.Cap-p.Keep) + 1
	case 3:
		return -tr.rng.Int64N(2*p.Cap) - 1
	}
	return 1
}

func (tr *tracer) blockFor(p algo.Params, key string, now, d int64) {
	keys, s := tr.names.Keys(p.Kind, key), tr.of(key)
	left, err := tr.lua.Block(context.Background(), now, keys, lua.NewArgs(p), d)
	if err != nil {
		tr.t.Fatal(err)
	}
	until, length := tr.blocked(p.Kind, keys.State())
	if now == 0 {
		// The time at which the server blocked is known only from what it wrote.
		if until == s.Until {
			return
		}
		now = until - d
	}
	if want := algo.Block(s, now, d); left != want || until != s.Until || length != s.Length {
		tr.t.Fatalf("call %d: block for %d at %d\nRedis: %d left, until %d, of %d\nGo:    %d left, %+v", tr.calls, d, now, left, until, length, want, *s)
	}
}

// blocked is the end and the length of the block under a key.
func (tr *tracer) blocked(kind algo.Kind, key string) (until, length int64) {
	ctx := context.Background()
	if kind != algo.SlidingWindowLog {
		at := strings.Split(tr.rdb.Get(ctx, key).Val(), ":")
		if len(at) == 8 {
			until, _ = strconv.ParseInt(at[2], 10, 64)
			length, _ = strconv.ParseInt(at[3], 10, 64)
		}
		return until, length
	}
	for _, z := range tr.rdb.ZRangeByScoreWithScores(ctx, key, &redis.ZRangeBy{Min: "-inf", Max: "(0"}).Val() {
		until = int64(-z.Score)
		length, _ = strconv.ParseInt(strings.TrimPrefix(z.Member.(string), "block:"), 10, 64)
	}
	return until, length
}

// pause spins: a sleep is too coarse for windows of microseconds.
func pause(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
	}
}
