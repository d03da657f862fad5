package lua_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
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

// pause spins: a sleep is too coarse for windows of microseconds.
func pause(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
	}
}
