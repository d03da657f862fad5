package lua_test

import (
	"context"
	"errors"
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
	p         algo.Params
	at, units int64
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
	item := lua.Item{Keys: tr.names.KeysOf(p.Kind, key), Params: lua.NewArgs(p), Cost: n}
	if n < 0 && p.Kind.Windowed() && tr.rng.IntN(2) == 0 {
		item.Age = tr.rng.Int64N(5 * p.Den / 2)
	}
	at, out, err := tr.lua.Decide(context.Background(), now, fmt.Sprint("n", tr.calls), []lua.Item{item}, nil)
	if late(err) && now == 0 && p.Calendar != nil {
		return // the call took longer than a window, and has done nothing
	}
	if err != nil {
		tr.t.Fatalf("step %d, key %q, cost %d: %v", tr.calls, key, n, err)
	}
	s := tr.of(key)
	before := *s
	var want algo.Decision
	if n < 0 {
		want = algo.Debit(p, s, at, -n, item.Age)
	} else {
		want = algo.Decide(p, s, at, n)
	}
	if out[0] != want {
		tr.t.Fatalf("step %d: %+v, key %q, cost %d, now %d, state %+v\nRedis: %+v\nGo:    %+v",
			tr.calls, p, key, n, at, before, out[0], want)
	}
	if n > 0 && want.Allowed {
		tr.taken[key] = grant{p, at, n}
	}
}

// irregular is windows of half of mean to one and a half.
func irregular(mean int64, seed uint64) *algo.Calendar {
	start := func(i int64) int64 {
		h := (uint64(i) ^ seed) * 0x9e3779b97f4a7c15
		return i*mean + int64(h>>33)%(mean/2)
	}
	return &algo.Calendar{
		Least: mean / 2, Start: start,
		Number: func(now int64) int64 {
			i := now / mean
			if start(i) > now {
				i--
			}
			return i
		},
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
		if kind == algo.FixedWindow && tr.rng.IntN(2) == 0 {
			l.Calendar = irregular(max(per, 50_000), tr.rng.Uint64())
		}
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

// late reports that a call took longer than a window of a calendar.
func late(err error) bool {
	_, ok := errors.AsType[*lua.ClockError](err)
	return ok
}
