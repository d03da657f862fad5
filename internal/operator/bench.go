package operator

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/random"
	"github.com/holdfast-go/holdfast/limiter"
)

// Bench is what a Redis does for limiters, as this machine sees it. It loads Redis while it runs.
type Bench struct {
	Server    string     `json:"server"`
	RoundTrip Duration   `json:"round_trip_p50"`
	Slowest   Duration   `json:"round_trip_max"`
	Rows      []BenchRow `json:"rows"`
	Advice    string     `json:"advice"`
}

// BenchRow is what was measured of one algorithm.
type BenchRow struct {
	Algorithm string   `json:"algorithm"`
	Callers   int      `json:"callers"`
	PerSecond float64  `json:"decisions_per_second"`
	P50       Duration `json:"p50"`
	P99       Duration `json:"p99"`
	// Late is the part of the decisions that Redis did not make within the budget.
	Late float64 `json:"late"`
	// CPU is what one decision takes of Redis, 0 where that is not known.
	CPU Duration `json:"redis_cpu,omitempty"`
}

// benchKeys is how many keys are in use.
const benchKeys = 1000

// Bench measures each algorithm with one caller and with many, each for a time: decisions of a limiter like any
// other's, on keys of a prefix of its own, which expire within seconds.
func (o *Operator) Bench(ctx context.Context, each time.Duration, callers int) (*Bench, error) {
	checked, err := o.Check(ctx)
	if err != nil {
		return nil, err
	}
	b := &Bench{Rows: []BenchRow{}}
	for _, s := range checked.Servers {
		b.Server, b.RoundTrip, b.Slowest = s.Addr, max(b.RoundTrip, s.P50), max(b.Slowest, s.P99)
	}
	if n := len(checked.Servers); n > 1 {
		b.Server = fmt.Sprintf("%d masters", n)
	}
	rate := limiter.PerSecond(1_000_000) // keys are fully reset within a second
	for _, l := range []limiter.Limit{
		limiter.FixedWindow(rate), limiter.SlidingWindowLog(limiter.PerSecond(10_000)), limiter.SlidingWindowCounter(rate),
		limiter.TokenBucket(rate, rate.N), limiter.LeakyBucket(rate, rate.N), limiter.LeakyBucketShaping(rate, rate.N), limiter.GCRA(rate, rate.N),
	} {
		for _, n := range slices.Compact([]int{1, callers}) {
			row, err := o.bench(ctx, l, n, each)
			if err != nil {
				return nil, err
			}
			if row.Late == 1 { // what was measured is no Redis
				return nil, fmt.Errorf("redis made no decision of %s%s", row.Algorithm, because(checked))
			}
			b.Rows = append(b.Rows, row)
		}
	}
	b.Advice = adviceOf(b)
	return b, nil
}

// because is why decisions are local, as far as a check has found that.
func because(c *Checked) string {
	if c.Worst() != Failing {
		return ""
	}
	return ": " + c.Findings[0].What
}

// adviceOf says what the figures mean for a user.
func adviceOf(b *Bench) string {
	var worst Duration
	late := 0.0
	for _, r := range b.Rows {
		if r.Callers == 1 {
			worst, late = max(worst, r.P99), max(late, r.Late)
		}
	}
	switch {
	case late > 0.01 || time.Duration(worst) > budget/2:
		return fmt.Sprintf("the p99 of a lone caller is %v: set WithBudget to at least %v, or decisions will be made locally", time.Duration(worst).Round(time.Millisecond), (4 * time.Duration(worst)).Round(10*time.Millisecond))
	case time.Duration(worst) > budget/10:
		return fmt.Sprintf("the default budget of %v is enough; WithLease saves the round trip of most decisions", budget)
	}
	return fmt.Sprintf("the default budget of %v is more than enough", budget)
}

// bench measures one limit.
func (o *Operator) bench(ctx context.Context, l limiter.Limit, callers int, each time.Duration) (row BenchRow, err error) {
	prefix := fmt.Sprintf("holdfast-bench-%08x", uint32(random.Uint64()))
	lim, err := limiter.New(o.rdb, l, limiter.WithPrefix(prefix), limiter.WithShare(1), limiter.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return row, err
	}
	defer func() { _ = lim.Close() }()
	took, late := make([][]time.Duration, callers), atomic.Int64{}
	cpu := o.cpu(ctx)
	end, start := time.Now().Add(each), time.Now()
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := c; ctx.Err() == nil; i += callers {
				begin := time.Now()
				res, err := lim.Allow(ctx, "k"+strconv.Itoa(i%benchKeys))
				took[c] = append(took[c], time.Since(begin))
				if err != nil || res.Source == limiter.SourceLocal {
					late.Add(1)
				}
				if time.Now().After(end) { // each makes one, however short the time is
					return
				}
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return row, ctx.Err()
	}
	row = rowOf(slices.Concat(took...), late.Load(), time.Since(start), cpu, o.cpu(ctx))
	row.Algorithm, row.Callers = l.Algorithm(), callers
	return row, nil
}

// rowOf says what decisions are that took so long each, of which so many were late, while the CPU that Redis had used
// became another.
func rowOf(took []time.Duration, late int64, elapsed, before, after time.Duration) BenchRow {
	slices.Sort(took)
	n := len(took)
	row := BenchRow{
		PerSecond: float64(n) / elapsed.Seconds(), Late: float64(late) / float64(n),
		P50: Duration(took[n/2]), P99: Duration(took[n*99/100]),
	}
	if before > 0 && after > before {
		row.CPU = Duration((after - before) / time.Duration(n))
	}
	return row
}

// cpu is what one server has used since its start, 0 where that is not known: other programs use it, too.
func (o *Operator) cpu(ctx context.Context) (sum time.Duration) {
	one, ok := o.rdb.(*redis.Client)
	if !ok {
		return 0
	}
	text, err := one.Info(ctx, "cpu").Result()
	if err != nil {
		return 0
	}
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, _ := strconv.ParseFloat(infoOf(text)[name], 64)
		sum += time.Duration(seconds * float64(time.Second))
	}
	return sum
}
