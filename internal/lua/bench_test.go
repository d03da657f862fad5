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

// BenchmarkScript measures what a decision costs Redis itself, alone and among 64, by its
// own count of the time in EVALSHA, and as a multiple of the plain script: both run in
// turns, and the lower quartile of the turns counts, since other programs only add time.
func BenchmarkScript(b *testing.B) {
	for _, kind := range algo.Kinds {
		for _, size := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", kind.Short(), size), func(b *testing.B) {
				rdb := redistest.Client(b, redistest.Start(b))
				p, err := algo.Limit{Kind: kind, N: 100, Per: 1_000_000, Burst: 100}.Params()
				if err != nil {
					b.Fatal(err)
				}
				c, names, args := lua.NewClient(rdb), lua.NewNamer("bench"), lua.NewArgs(p)
				items := make([]lua.Item, size)
				ctx, calls := context.Background(), 0
				ours := func() {
					for i := range items {
						items[i] = lua.Item{Keys: names.KeysOf(kind, strconv.Itoa((calls*size+i)%1000)), Params: args, Cost: 1}
					}
					calls++
					if _, _, err := c.Decide(ctx, 0, strconv.Itoa(calls), items, nil); err != nil {
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
			})
		}
	}
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
