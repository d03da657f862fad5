//go:build !race

package lua_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// reset forgets a key, as a Reset, an eviction or a flush does. What was taken of it
// may still be given back.
func (tr *tracer) reset(p algo.Params, key string) {
	var err error
	if tr.rng.IntN(3) == 0 {
		err = tr.rdb.FlushAll(context.Background()).Err()
		clear(tr.state)
	} else {
		err = tr.rdb.Del(context.Background(), tr.names.KeysOf(p.Kind, key).State()).Err()
		delete(tr.state, key)
	}
	if err != nil {
		tr.t.Fatal(err)
	}
}

// back gives back some of what was admitted last of some keys, once, in one call.
func (tr *tracer) back(keys ...string) {
	var items []lua.Taken
	var of []string
	latest, window := int64(0), int64(1<<60)
	for _, key := range keys {
		g, ok := tr.taken[key]
		if !ok {
			continue
		}
		delete(tr.taken, key)
		p, n := g.p, 1+tr.rng.Int64N(g.units)
		items = append(items, lua.Taken{Keys: tr.names.KeysOf(p.Kind, key), Params: lua.NewArgs(p), Units: n, Of: g.units, At: g.at})
		of = append(of, key)
		latest, window = max(latest, g.at), min(window, tr.window(p))
	}
	if len(items) == 0 {
		return
	}
	// By a clock of ours, since the reply has none: at most a window later, mostly soon.
	now := latest + tr.rng.Int64N(window>>tr.rng.IntN(6)+1)
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
	got, err := tr.lua.GiveBack(context.Background(), now, "n", []lua.Taken{{Keys: tr.names.KeysOf(p.Kind, key), Params: lua.NewArgs(p), Units: n}})
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
// before and after, also of an earlier limit.
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
				if tr.rng.IntN(30) == 0 {
					limits[key] = tr.limit(kind, 10*time.Minute, 10*24*time.Hour)
				} else if p := limits[key]; tr.rng.IntN(30) == 0 && !kind.Windowed() { // another burst at the same rate
					p.Cap, p.Keep = 1+tr.rng.Int64N(30), 0
					limits[key] = p
				}
				p := limits[key]
				switch {
				case i%50 == 25:
					now += 2 * tr.window(p) // what was taken before comes too late
				case tr.rng.IntN(3) == 0:
					now += tr.rng.Int64N(tr.window(p)/p.Cap + 1)
				}
				tr.step(p, key, now, tr.cost(p))
				if tr.rng.IntN(4) == 0 {
					tr.back(keys[:1+tr.rng.IntN(len(keys))]...)
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
			t.Logf("%d items returned something and %d nothing", tr.returned, tr.kept)
			if kind != algo.LeakyBucketShaping && tr.returned == 0 || tr.kept == 0 {
				t.Errorf("%d items returned something and %d nothing: not much of a trace", tr.returned, tr.kept)
			}
		})
	}
}

func (tr *tracer) blockFor(p algo.Params, key string, now, d int64) {
	keys, s := tr.names.KeysOf(p.Kind, key), tr.of(key)
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
