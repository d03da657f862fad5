package lua_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// plainScript is a GCRA with the least that it must do, as in bench/redis.
const plainScript = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local next_ = tat + interval
if next_ - burst * interval > now then return {0, next_ - burst * interval - now} end
redis.call('SET', KEYS[1], string.format('%.0f', next_), 'PX', math.ceil((next_ - now) / 1000) + 1)
return {1, 0}`

// BenchmarkScript measures what a decision costs Redis itself, alone and among 64.
func BenchmarkScript(b *testing.B) {
	for _, kind := range algo.Kinds {
		for _, size := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", kind.Short(), size), func(b *testing.B) {
				args, names := argsOf(b, kind), lua.NewNamer("bench")
				items := make([]lua.Item, size)
				againstPlain(b, size, func(c *lua.Client, call int) error {
					for i := range items {
						items[i] = lua.Item{Keys: names.KeysOf(kind, strconv.Itoa((call*size+i)%1000)), Params: args, Cost: 1}
					}
					_, _, err := c.Decide(context.Background(), 0, strconv.Itoa(call), items, nil)
					return err
				})
			})
		}
	}
}

// BenchmarkScriptAll measures the same of a request to three limits, all or nothing.
func BenchmarkScriptAll(b *testing.B) {
	kinds := []algo.Kind{algo.GCRA, algo.TokenBucket, algo.FixedWindow}
	for _, size := range []int{1, 4, 20} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			var args []lua.Args
			for _, kind := range kinds {
				args = append(args, argsOf(b, kind))
			}
			names := lua.NewNamer("bench")
			againstPlain(b, size, func(c *lua.Client, call int) error {
				items := make([]lua.Item, 3*size)
				for i := range items {
					items[i] = lua.Item{Keys: names.KeysOf(kinds[i%3], strconv.Itoa((call*size+i/3)%1000)), Params: args[i%3], Cost: 1}
				}
				return c.One(context.Background(), &lua.DecideAll{Nonce: strconv.Itoa(call), Of: 3, Items: items})
			})
		})
	}
}

func argsOf(b *testing.B, kind algo.Kind) lua.Args {
	p, err := algo.Limit{Kind: kind, N: 100, Per: 1_000_000, Burst: 100}.Params()
	if err != nil {
		b.Fatal(err)
	}
	return lua.NewArgs(p)
}

// againstPlain measures calls for size requests each by Redis's own count of the time in
// EVALSHA, and as a multiple of the plain script: both run in turns, and the lower quartile of the
// turns counts, since other programs only add time.
func againstPlain(b *testing.B, size int, call func(c *lua.Client, nr int) error) {
	rdb := redistest.Client(b, redistest.Start(b))
	c, ctx, calls := lua.NewClient(rdb), context.Background(), 0
	ours := func() {
		calls++
		if err := call(c, calls); err != nil {
			b.Fatal(err)
		}
	}
	plain := func() {
		calls++
		if err := rdb.EvalSha(ctx, lua.SHA(plainScript), []string{"plain:" + strconv.Itoa(calls%1000)}, 10_000, 100).Err(); err != nil {
			b.Fatal(err)
		}
	}
	if err := rdb.ScriptLoad(ctx, plainScript).Err(); err != nil {
		b.Fatal(err)
	}
	for range 2000 / size {
		ours()
	}
	var us [2][]float64
	for b.Loop() {
		us[0] = append(us[0], inRedis(b, rdb, 500/size+1, ours)/float64(size))
		us[1] = append(us[1], inRedis(b, rdb, 500, plain))
	}
	for i := range us {
		slices.Sort(us[i])
	}
	own, other := us[0][len(us[0])/4], us[1][len(us[1])/4]
	b.ReportMetric(own, "redis-µs/decision")
	b.ReportMetric(own/other, "×plain")
	b.ReportMetric(0, "ns/op")
}

// inRedis is the time of one call in Redis, in µs, of n of them.
func inRedis(b *testing.B, rdb *redis.Client, n int, call func()) float64 {
	ctx := context.Background()
	rdb.ConfigResetStat(ctx)
	for range n {
		call()
	}
	m := regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=(\d+)`).FindStringSubmatch(rdb.Info(ctx, "commandstats").Val())
	if m == nil {
		b.Fatal("no calls were counted")
	}
	us, _ := strconv.ParseFloat(m[1], 64)
	return us / float64(n)
}
