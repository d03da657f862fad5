// Watch measures what a limit on one key costs that is decided by WATCH, MULTI and EXEC, beside
// one that is a script: how often a decision must be tried, and how many are made per second.
// It starts its own Redis, prints a table in Markdown, and writes it to a file when it is given one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/bench/internal/machine"
	"github.com/holdfast-go/holdfast/internal/redisproc"
)

const rounds = 3

// Both are a GCRA of 1,000,000 per second that admits everything, by the clock of Redis.
var script = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local tat = math.max(now, tonumber(redis.call('GET', KEYS[1]) or now))
redis.call('SET', KEYS[1], string.format('%.0f', tat + 1), 'PX', 60000)
return 1`)

func byScript(ctx context.Context, rdb *redis.Client) (tries int64, err error) {
	return 1, script.Run(ctx, rdb, []string{"key"}).Err()
}

func byWatch(ctx context.Context, rdb *redis.Client) (tries int64, err error) {
	for {
		tries++
		err := rdb.Watch(ctx, func(tx *redis.Tx) error {
			now, err := tx.Time(ctx).Result()
			if err != nil {
				return err
			}
			tat := now.UnixMicro()
			switch text, err := tx.Get(ctx, "key").Result(); {
			case errors.Is(err, redis.Nil):
			case err != nil:
				return err
			default:
				was, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					return err
				}
				tat = max(tat, was)
			}
			_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
				return p.Set(ctx, "key", tat+1, time.Minute).Err()
			})
			return err
		}, "key")
		if !errors.Is(err, redis.TxFailedErr) {
			return tries, err
		}
	}
}

// figures are those of one round.
type figures struct {
	perSecond, tries float64
	worst            int64
}

func measure(rdb *redis.Client, callers int, length time.Duration, decide func(context.Context, *redis.Client) (int64, error)) (f figures, err error) {
	ctx := context.Background()
	if err := rdb.FlushDB(ctx).Err(); err != nil {
		return f, err
	}
	var all sync.WaitGroup
	var made, tries, worst atomic.Int64
	var failed atomic.Pointer[error]
	start := time.Now()
	for range callers {
		all.Go(func() {
			for time.Since(start) < length {
				n, err := decide(ctx, rdb)
				if err != nil {
					failed.Store(&err)
					return
				}
				made.Add(1)
				tries.Add(n)
				for was := worst.Load(); n > was && !worst.CompareAndSwap(was, n); was = worst.Load() {
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return f, *err
	}
	return figures{float64(made.Load()) / time.Since(start).Seconds(), float64(tries.Load()) / float64(made.Load()), worst.Load()}, nil
}

func main() {
	out := flag.String("out", "", "file to write the table to")
	length := flag.Duration("length", 2*time.Second, "of each round")
	flag.Parse()
	if err := run(*out, *length); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out string, length time.Duration) (err error) {
	srv, err := redisproc.Start(redisproc.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.Close()) }()
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), PoolSize: 128})
	defer rdb.Close()
	watch := machine.New()
	var b strings.Builder
	fmt.Fprintf(&b, "One key, medians of %d interleaved rounds of %v.\n\n", rounds, length)
	b.WriteString("| callers | decisions/s by a script | by WATCH, MULTI, EXEC | × script | tries per decision | most tries of a decision |\n|---|---|---|---|---|---|\n")
	for _, callers := range []int{1, 8, 64} {
		var scripts, watches, tries []float64
		worst := int64(0)
		for range rounds {
			s, err := measure(rdb, callers, length, byScript)
			if err != nil {
				return err
			}
			w, err := measure(rdb, callers, length, byWatch)
			if err != nil {
				return err
			}
			scripts, watches, tries, worst = append(scripts, s.perSecond), append(watches, w.perSecond), append(tries, w.tries), max(worst, w.worst)
		}
		s, w := median(scripts), median(watches)
		fmt.Fprintf(&b, "| %d | %.0f | %.0f | %.2f | %.1f | %d |\n", callers, s, w, w/s, median(tries), worst)
	}
	return watch.Publish(out, "make bench-watch", b.String())
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
