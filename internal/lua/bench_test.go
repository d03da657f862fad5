package lua_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// BenchmarkScript measures what a decision costs Redis itself, alone and among 64: µs
// by its own count of the time in EVALSHA.
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
				run := func() {
					for i := range items {
						items[i] = lua.Item{Keys: names.Keys(kind, strconv.Itoa((calls*size+i)%1000)), Params: args, Cost: 1}
					}
					calls++
					if _, _, err := c.Decide(ctx, 0, strconv.Itoa(calls), items, nil); err != nil {
						b.Fatal(err)
					}
				}
				for range 2000 / size {
					run()
				}
				rdb.ConfigResetStat(ctx)
				b.ResetTimer()
				for range b.N {
					run()
				}
				b.StopTimer()
				m := regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=(\d+)`).FindStringSubmatch(rdb.Info(ctx, "commandstats").Val())
				if m == nil {
					b.Fatal("no calls were counted")
				}
				us, _ := strconv.ParseFloat(m[1], 64)
				b.ReportMetric(us/float64(b.N*size), "redis-µs/decision")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
